"""Rows that are settled and that nobody can read yet, because they wait in open parts: the sum of `OpenRows`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from epochal.txn.model import Json, OpenRows


@dataclass(frozen=True, slots=True)
class Unpublished:
    """What waits in all open parts of a stream.

    >>> print(Unpublished(parts=1, rows=500, bytes=9_000, sinks=("files",)))
    500 rows wait in 1 open part of 'files'
    >>> print(Unpublished(parts=3, rows=None, bytes=9_000, sinks=("files", "raw")))
    rows wait in 3 open parts of 'files', 'raw'
    """

    parts: int
    rows: int | None  # None if those of a part were not counted
    bytes: int
    sinks: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[tuple[str, OpenRows]]) -> Self | None:
        """The sum of the open parts of some sinks; None if nothing is open."""
        if not parts:
            return None
        counts = [part.rows for _, part in parts]
        known = [count for count in counts if count is not None]
        return cls(
            parts=len(parts),
            rows=sum(known) if len(known) == len(counts) else None,
            bytes=sum(part.bytes for _, part in parts),
            sinks=tuple(dict.fromkeys(sink for sink, _ in parts)),
        )

    def __str__(self) -> str:
        verb = "waits" if self.rows == 1 else "wait"
        rows = "rows" if self.rows is None else f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        parts = f"{self.parts:,} open {'part' if self.parts == 1 else 'parts'}"
        return f"{rows} {verb} in {parts} of {', '.join(map(repr, self.sinks))}"

    def to_json(self) -> dict[str, Json]:
        """As in `epochal status --json`."""
        return {"parts": self.parts, "rows": self.rows, "bytes": self.bytes, "sinks": list(self.sinks)}
