from __future__ import annotations

from pathlib import Path

import pytest

from epochal.sinks.config import kinds
from tests.cli.console.gallery import KINDS
from tests.cli.scene import Scene


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(tmp_path, capsys)


@pytest.fixture(autouse=True)
def _kinds_of_the_gallery(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, place in KINDS.items():
        monkeypatch.setitem(kinds.BUILT_IN, name, place)
