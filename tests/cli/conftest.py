from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.scene import Scene


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(tmp_path, capsys)
