"""What a table's log says of one lineage, and what of it is still as it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal.sinks.delta.stage import digesting
from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.delta.table.log import RESTORE, LogEntry

if TYPE_CHECKING:
    pass


@dataclass
class History:
    """What the log says of one lineage."""

    lineage: str
    entries: Sequence[LogEntry]
    state: TableState

    def __post_init__(self) -> None:
        self.all_epochs: dict[int, list[LogEntry]] = {}
        for entry in self.entries:
            if self.lineage in entry.transactions:
                self.all_epochs.setdefault(entry.transactions[self.lineage], []).append(entry)
        self.epochs = {epoch: entries[0] for epoch, entries in self.all_epochs.items()}
        self.owner = {name: epoch for epoch, entry in self.epochs.items() for name in entry.added}
        self.schemas = [(entry.version, entry.schema) for entry in self.entries if entry.schema is not None]

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def is_whole(self) -> bool:
        """Whether the log goes back to the table's beginning."""
        return bool(self.entries) and self.entries[0].version == 0

    def taken_out(self) -> dict[int, LogEntry]:
        """The epochs that are in the log and not in the table, each with the RESTORE that took it out.

        Delta keeps its transaction ids, so that nothing else tells. A RESTORE by time does not say to which version;
        what it did is seen by the rows.
        """
        at: dict[int, frozenset[int]] = {}  # version -> the epochs in the table then
        gone: dict[int, LogEntry] = {}
        now: frozenset[int] = frozenset()
        epochs = {entry.version: epoch for epoch, entry in self.epochs.items()}
        for entry in self.entries:
            if entry.version in epochs:
                now |= {epochs[entry.version]}
            elif entry.operation == RESTORE and entry.restored in at:
                before = at[entry.restored]
                gone |= dict.fromkeys(now - before, entry)
                now = before
            at[entry.version] = now
        return {epoch: entry for epoch, entry in gone.items() if epoch not in now}

    def seen_from(self, last: int) -> int:
        """The first epoch that would be in this log."""
        return 0 if self.is_whole else min(self.epochs, default=last + 1)

    @property
    def is_alone(self) -> bool:
        """Whether all rows are this lineage's, as it gave them."""
        ours = {entry.version for entry in self.epochs.values()}
        others = any(entry.changes and (entry.version not in ours or entry.removed) for entry in self.entries)
        return self.is_whole and not others and all(digesting.is_kept(s, self.state.schema) for _, s in self.schemas)

    @property
    def foreign_appends(self) -> list[LogEntry]:
        """What others have added since the first epoch, apart from streams of epochal's."""
        first = min((entry.version for entry in self.epochs.values()), default=self.version)
        ours = {entry.version for entries in self.all_epochs.values() for entry in entries}
        return [
            entry
            for entry in self.entries
            if entry.version > first and entry.version not in ours and entry.epoch is None
            if entry.changes and entry.added and not entry.removed
        ]

    def schema_at(self, version: int) -> Mapping[str, Any]:
        known = [schema for at, schema in self.schemas if at <= version]
        return known[-1] if known and version < self.version else self.state.schema

    def kept_until(self, epoch: int) -> int:
        """The last version that has the epoch's files as they were, under columns that give the same digest."""
        entry = self.epochs[epoch]
        before = self.schema_at(entry.version)
        for later in self.entries:
            if later.version <= entry.version:
                continue
            changed = later.schema is not None and not digesting.is_kept(before, later.schema)
            if changed or later.removed & entry.added:
                return later.version - 1
        return self.version
