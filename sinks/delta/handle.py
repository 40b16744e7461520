"""What the sink stages, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from epochal.txn.model import Handle, Json

VERSION = 1


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file for the log: its name in the table's folder, and its metadata for readers."""

    name: str
    size: int
    partition: Mapping[str, str | None]
    stats: str


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One data file: where it is staged, and how the log will name it."""

    staged: str
    new: NewFile


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedEpoch:
    """Everything that a commit needs, in any later process."""

    target: str
    mode: str
    native: bool  # committed by delta-rs, if `why_not_native` still allows it then
    schema: Mapping[str, Any]
    files: tuple[StagedFile, ...]
    offsets: str
    add_columns: bool = False
    keys: tuple[str, ...] = ()
    deletes: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)  # of the session that staged it

    def handle(self) -> Handle:
        files: list[Json] = [
            {
                "staged": f.staged,
                "name": f.new.name,
                "bytes": f.new.size,
                "partition": dict(f.new.partition),
                "stats": f.new.stats,
            }
            for f in self.files
        ]
        body: dict[str, Json] = {
            "target": self.target,
            "mode": self.mode,
            "native": self.native,
            "schema": dict(self.schema),
            "files": files,
            "offsets": self.offsets,
            "add_columns": self.add_columns,
            "keys": list(self.keys),
            "deletes": self.deletes,
            "settings": dict(self.settings),
        }
        return Handle(VERSION, body)

    @staticmethod
    def read(handle: Handle) -> StagedEpoch:
        body: dict[str, Any] = dict(handle.checked_body(VERSION))
        files = tuple(
            StagedFile(f["staged"], NewFile(f["name"], f["bytes"], f["partition"], f["stats"])) for f in body["files"]
        )
        return StagedEpoch(**{**body, "files": files, "keys": tuple(body["keys"])})
