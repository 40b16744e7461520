"""What the sink stages, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from epochal.participant import Handle

VERSION = 1
IN_PIECES = 2  # the version of a handle whose rows are stored as pieces of text, which older versions cannot show


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedEpoch:
    """Everything that a commit needs, in any later process. It holds no secret and no row."""

    mode: str
    columns: tuple[tuple[str, str], ...]  # of the table, with the types that they had
    keys: tuple[str, ...]
    totals: Mapping[str, str] = field(default_factory=dict)
    order: int = 0  # how many columns the order has
    deletes: bool = False
    parts: tuple[int, ...] = ()  # whose rows count, of a staged table; None has any if the rows are stored in one piece
    filed: bool = False  # the rows are stored in one piece
    size: int = 0  # bytes of rows that are stored as text in many pieces; 0 if they are not
    rows: int = 0
    offsets: str = ""
    digest: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns that are written."""
        return [name for name, _ in self.columns]

    def handle(self) -> Handle:
        body: dict[str, Any] = asdict(self)
        if not self.size:
            del body["size"]
        lists = {name: list(body[name]) for name in ("keys", "parts")}
        version = IN_PIECES if self.size else VERSION
        return Handle(version, {**body, **lists, "columns": [list(column) for column in self.columns]})

    @staticmethod
    def read(handle: Handle) -> StagedEpoch:
        body: dict[str, Any] = dict(handle.checked_body(IN_PIECES if handle.version == IN_PIECES else VERSION))
        columns = tuple((str(name), str(kind)) for name, kind in body["columns"])
        parts = tuple(int(part) for part in body["parts"])
        return StagedEpoch(**{**body, "columns": columns, "keys": tuple(body["keys"]), "parts": parts})
