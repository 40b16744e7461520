"""What a process brings to stable storage, for tests: a power cut cannot be tried, but what was synced is known."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class Synced:
    """The paths that are synced from now on, in order. `patch` is pytest's ``monkeypatch.setattr``."""

    def __init__(self, patch: Callable[[str, Any], None]) -> None:
        self.paths: list[str] = []
        self._open: dict[int, str] = {}
        opened, synced = os.open, os.fsync

        def opening(path: Any, *given: Any, **more: Any) -> int:
            descriptor = opened(path, *given, **more)
            self._open[descriptor] = os.fspath(path)
            return descriptor

        def syncing(descriptor: int) -> None:
            self.paths.append(self._open.get(descriptor, ""))
            synced(descriptor)

        patch("os.open", opening)
        patch("os.fsync", syncing)
