"""The folders of a demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """The folders below one root."""

    root: Path

    @property
    def incoming(self) -> Path:
        return self.root / "incoming"

    @property
    def by_day(self) -> Path:
        return self.root / "epochal" / "by_day"

    @property
    def lake(self) -> Path:
        return self.root / "epochal" / "lake"

    @property
    def plain(self) -> Path:
        return self.root / "plain"

    @property
    def exact_checkpoint(self) -> Path:
        return self.root / "checkpoints" / "epochal"

    @property
    def plain_checkpoint(self) -> Path:
        return self.root / "checkpoints" / "plain"

    @property
    def journal(self) -> Path:
        return self.exact_checkpoint / "epochal"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def log(self) -> Path:
        return self.root / "driver.log"
