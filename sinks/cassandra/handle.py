"""What the sink stages, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from epochal.txn.model import Handle

VERSION = 2  # 1 had neither `identity` nor `types`


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedEpoch:
    """Everything that a commit needs, in any later process. It holds no secret and no row."""

    table: str
    mode: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    files: tuple[tuple[str, int, int], ...]  # name, bytes, rows
    stamp: int  # microseconds, even: deletes carry it, all other writes the next one
    expiry: int | None  # seconds since 1970, for rows without a time of their own
    expires: bool  # rows have a time of their own
    whole: bool  # every column is written: a row that has expired is deleted, not only its columns
    totals: Mapping[str, str]
    limits: Mapping[str, int]
    mark: str
    offsets: str
    identity: str = ""  # of the table
    types: Mapping[str, str] = field(default_factory=dict)  # the CQL types for which the columns were encoded
    home: str = ""  # the folder that it is staged in; empty in handles of older versions

    def handle(self) -> Handle:
        body: dict[str, Any] = asdict(self)
        body["files"] = [list(file) for file in self.files]
        return Handle(VERSION, {**body, "columns": list(self.columns), "key": list(self.key)})

    @staticmethod
    def read(handle: Handle) -> StagedEpoch:
        body: dict[str, Any] = dict(handle.body if handle.version == 1 else handle.checked_body(VERSION))
        files = tuple((str(name), int(size), int(rows)) for name, size, rows in body["files"])
        return StagedEpoch(**{**body, "columns": tuple(body["columns"]), "key": tuple(body["key"]), "files": files})
