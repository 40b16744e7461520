"""The columns of a target's files: what each stream has written there, and whether a new start fits.

They are kept in the target's register, with the claim of the start that brought them: the journal of another stream,
or one that was lost, cannot tell. A record is added when a start brings other columns, not at each start. One of a
start that wrote nothing binds nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epochal.sinks.files import manifest
from epochal.sinks.files.formats.evolution import bare, differences
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies.buckets import folder_of
from epochal.sinks.storage.register import Lineages, Register
from epochal.txn.access import TARGET_ADVICE, refuse_unreachable
from epochal.txn.errors import BadRows, JournalCorrupt
from epochal.txn.files import Files
from epochal.txn.model import NO_EPOCH, Claim, Json, lineage_tag

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KEY = "columns"  # in the notes of a register
MANY = 100  # entries without rows that are searched for one with rows


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What one start writes."""

    format: str
    columns: tuple[tuple[str, Any], ...]
    buckets: tuple[str, ...] = ()  # the names of folders
    folders: tuple[str, ...] = ()  # columns that are only in the names of folders

    @staticmethod
    def of(options: FileOptions, schema: StructType) -> FileColumns:
        fields = json.loads(schema.json())["fields"]
        return FileColumns(
            options.format,
            tuple((one["name"], bare(one["type"])) for one in fields),
            tuple(folder_of(bucket) for bucket in options.buckets),
            tuple(options.folder_columns),
        )

    def changes_since(self, before: FileColumns) -> list[str]:
        """What keeps readers from reading both; empty if they can. Two formats are never read together."""
        if self.format != before.format:
            return []
        found = differences(self.format, before.columns, self.columns, folders={*before.folders, *self.folders})
        if self.buckets != before.buckets:
            was, is_now = (", ".join(one) or "none" for one in (before.buckets, self.buckets))
            found.append(f"bucket_by: {is_now}, was {was}")
        return found


@dataclass(frozen=True, slots=True)
class Brought:
    """Columns, and the stream that brought them: its epochs after `after` may have them."""

    lineage: str
    after: int
    what: FileColumns
    allowed: bool = False  # the user has accepted that they do not fit those before them

    def to_json(self) -> dict[str, Json]:
        return {
            "lineage": self.lineage,
            "after": self.after,
            "format": self.what.format,
            "columns": [list(one) for one in self.what.columns],
            "buckets": list(self.what.buckets),
            "folders": list(self.what.folders),
            "allowed": self.allowed,
        }

    @staticmethod
    def from_json(value: Any) -> Brought:
        what = FileColumns(
            str(value["format"]),
            tuple((str(name), kind) for name, kind in value["columns"]),
            tuple(map(str, value["buckets"])),
            tuple(map(str, value["folders"])),
        )
        return Brought(str(value["lineage"]), int(value["after"]), what, bool(value["allowed"]))


@dataclass(frozen=True)
class ColumnHistory:
    """What was brought to one target, by one version of its register, oldest first."""

    files: Files
    layout: Layout
    brought: Sequence[Brought] = ()
    _used: dict[tuple[str, int], bool] = field(default_factory=dict)  # a cache

    @staticmethod
    def of(files: Files, layout: Layout, register: Lineages) -> ColumnHistory:
        found: Any = register.notes.get(KEY, ())
        try:
            return ColumnHistory(files, layout, [Brought.from_json(one) for one in found])
        except (KeyError, TypeError, ValueError):
            raise JournalCorrupt(f"{layout.lineages}: its columns cannot be read; restore it from a copy") from None

    def faults(self, now: FileColumns) -> list[str]:
        """What a start with these columns would break, all in one text; empty if it breaks nothing."""
        found: dict[str, Brought] = {}
        for one in self._live():
            changes = now.changes_since(one.what)
            for change in changes if changes and self._is_used(one) else ():
                found.setdefault(change, one)
        if not found:
            return []
        lines = "".join(f"\n  {change} ({_where(one)})" for change, one in found.items())
        fault = (
            f"its columns do not fit the {now.format} files in {self.layout.target}: Spark's readers of both would "
            f"fail, or get nulls or other types.{lines}\nCast or rename the columns, give the sink another path, or "
            "accept it: changed_columns='allow'"
        )
        return [fault]

    def with_start(self, claim: Claim, now: FileColumns) -> list[Brought]:
        """What was brought after a claim of a start with these columns, which the user has accepted if need be."""
        # What an earlier start of this stream brought and never wrote can no longer be written.
        kept = [one for one in self.brought if one.lineage != claim.lineage or one.what == now or self._is_used(one)]
        history = ColumnHistory(self.files, self.layout, kept, self._used)
        accepted = bool(history.faults(now))
        if not accepted and any(one.lineage == claim.lineage and one.what == now for one in history._live()):
            return kept
        last = max(manifest.epochs(self.files, self.layout, claim.lineage), default=NO_EPOCH)
        return [*kept, Brought(claim.lineage, last, now, accepted)]

    def _live(self) -> Sequence[Brought]:
        """Without those before a change that the user has accepted."""
        accepted = [number for number, one in enumerate(self.brought) if one.allowed and self._is_used(one)]
        return self.brought[accepted[-1] :] if accepted else self.brought

    def _is_used(self, one: Brought) -> bool:
        """Whether there may be rows in these columns: published, open, or staged and perhaps decided."""
        key = one.lineage, one.after
        if key not in self._used:
            self._used[key] = self._search(*key)
        return self._used[key]

    def _search(self, lineage: str, after: int) -> bool:
        if any(self.files.names(folder) for folder in (self.layout.staged(lineage), self.layout.open(lineage))):
            return True
        later = manifest.entries_after(self.files, self.layout, lineage, after)
        return any(entry.rows or entry.files or number >= MANY for number, entry in enumerate(later))


@dataclass(frozen=True)
class TargetColumns:
    """A start that is about to write frames of one schema to a target."""

    options: FileOptions
    files: Files
    layout: Layout
    schema: StructType

    def faults(self, register: Register) -> list[str]:
        """What the start would break; empty if the user accepts it."""
        if self.options.changed_columns == "allow":
            return []
        with refuse_unreachable(f"sink {self.options.name!r}: its target", TARGET_ADVICE):
            return self._history(register.read()).faults(self._now)

    def noted(self, claim: Claim, register: Lineages) -> Mapping[str, Json]:
        """What the register holds after the claim of this start."""
        history = self._history(register)
        if self.options.changed_columns == "refuse" and (found := history.faults(self._now)):
            # Another stream has written to the target since the frame was checked.
            raise BadRows(f"sink {self.options.name!r}: {found[0]}. Nothing was written")
        return {**register.notes, KEY: [one.to_json() for one in history.with_start(claim, self._now)]}

    @property
    def _now(self) -> FileColumns:
        return FileColumns.of(self.options, self.schema)

    def _history(self, register: Lineages) -> ColumnHistory:
        return ColumnHistory.of(self.files, self.layout, register)


def _where(one: Brought) -> str:
    return f"of stream {lineage_tag(one.lineage)}, from epoch {one.after + 1} on"
