"""The columns of a target's files: what each stream has written there, and whether a new start fits.

They are kept in the target's register, with the claim of the start that brought them: the journal of another stream,
or one that was lost, cannot tell. A record is added when a start brings other columns, not at each start. It is
compared and written in one step: the register's next version is created only if nobody else has claimed the target
since. So of two starts with columns that do not fit the second is refused, also before either has written.

Columns count if there are rows in them, or if there may be:

* a driver of another stream has started with them, and no later start or command has fenced it;
* another stream has staged them for an epoch that is in doubt: whoever decides it may still choose that attempt;
* this stream has staged them for an epoch that is decided.

What this stream has staged for an epoch in doubt does not count. A start stages that epoch anew, and one of the
attempts wins. If the older one does, its columns count from then on: `TargetColumns.check_own` looks, before the next
epoch is staged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from epochal.txn.model import NO_EPOCH, Attempt, Claim, Json, lineage_tag

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

    def changes_since(self, before: FileColumns, *, capitals_count: bool = False) -> list[str]:
        """What keeps readers from reading both; empty if they can. Two formats are never read together."""
        if self.format != before.format:
            return []
        folders = {*before.folders, *self.folders}
        found = differences(self.format, before.columns, self.columns, folders=folders, capitals_count=capitals_count)
        if self.buckets != before.buckets:
            was, is_now = (", ".join(one) or "none" for one in (before.buckets, self.buckets))
            found.append(f"bucket_by: {is_now}, was {was}")
        return found


@dataclass(frozen=True, slots=True)
class Brought:
    """Columns, and the starts that brought them: what they wrote after the epoch `after` has these columns."""

    lineage: str
    after: int
    what: FileColumns
    allowed: bool = False  # the user has accepted that they do not fit those before them
    generation: int = 0  # the first that started with them; 0: an older version has not recorded it
    start: str = ""  # the random id of the last one

    def to_json(self) -> dict[str, Json]:
        return {
            "lineage": self.lineage,
            "after": self.after,
            "format": self.what.format,
            "columns": [list(one) for one in self.what.columns],
            "buckets": list(self.what.buckets),
            "folders": list(self.what.folders),
            "allowed": self.allowed,
            "generation": self.generation,
            "start": self.start,
        }

    @staticmethod
    def from_json(value: Any) -> Brought:
        what = FileColumns(
            str(value["format"]),
            tuple((str(name), kind) for name, kind in value["columns"]),
            tuple(map(str, value["buckets"])),
            tuple(map(str, value["folders"])),
        )
        return Brought(
            str(value["lineage"]),
            int(value["after"]),
            what,
            bool(value["allowed"]),
            int(value.get("generation", 0)),
            str(value.get("start", "")),
        )


@dataclass(frozen=True)
class ColumnHistory:
    """What was brought to one target, by one version of its register, oldest first."""

    files: Files
    layout: Layout
    register: Lineages
    brought: Sequence[Brought] = ()
    capitals_count: bool = False  # whether `a` and `A` are two columns
    _used: dict[tuple[str, int, int], bool] = field(default_factory=dict)  # a cache

    @staticmethod
    def of(files: Files, layout: Layout, register: Lineages, *, capitals_count: bool = False) -> ColumnHistory:
        found: Any = register.notes.get(KEY, ())
        try:
            brought = [Brought.from_json(one) for one in found]
        except (KeyError, TypeError, ValueError):
            raise JournalCorrupt(f"{layout.lineages}: its columns cannot be read; restore it from a copy") from None
        return ColumnHistory(files, layout, register, brought, capitals_count)

    def faults(self, now: FileColumns, holds: Callable[[Brought], str | None] | None = None) -> list[str]:
        """What a start with these columns would break, all in one text; empty if it breaks nothing.

        `holds` says for what reason the columns of a record count, and None if they do not. By default those count of
        which there are rows.
        """
        found: dict[str, str] = {}
        for one in self._live():
            changes = now.changes_since(one.what, capitals_count=self.capitals_count)
            why = (holds or self.why_written)(one) if changes else None
            for change in changes if why is not None else ():
                found.setdefault(change, f"of stream {lineage_tag(one.lineage)}, {why}")
        if not found:
            return []
        lines = "".join(f"\n  {change} ({why})" for change, why in found.items())
        fault = (
            f"its columns do not fit the {now.format} files in {self.layout.target}: Spark's readers of both would "
            f"fail, or get nulls or other types.{lines}\nCast or rename the columns, give the sink another path, or "
            "accept it: changed_columns='allow'"
        )
        return [fault]

    def faults_of_claim(self, claim: Claim, now: FileColumns) -> list[str]:
        """The same for a start that claims the target: columns count too of which there may be rows."""
        return self.faults(now, lambda one: self.why_written(one) or self._why_awaited(one, claim))

    def faults_of_attempt(self, attempt: Attempt, now: FileColumns) -> list[str]:
        """The same for an epoch that is about to be staged: an older attempt of the one before may have won."""

        def why(one: Brought) -> str | None:
            if one.lineage != attempt.lineage:
                return None
            return self.why_written(one) or self._why_decided(one, attempt.epoch - 1)

        return self.faults(now, why)

    def with_start(self, claim: Claim, now: FileColumns) -> list[Brought]:
        """What was brought after a claim of a start with these columns, which the user has accepted if need be."""
        # What an earlier start of this stream brought and never wrote can no longer be written.
        kept = [
            one
            for one in self.brought
            if one.lineage != claim.lineage or one.what == now or self._is_used(one) or self._staged(one)
        ]
        history = replace(self, brought=kept)
        accepted = bool(history.faults_of_claim(claim, now))
        newest = next((one for one in reversed(kept) if one.lineage == claim.lineage), None)
        if not accepted and newest is not None and newest.what == now and newest in history._live():
            # A journal that was lost begins again with generation 1.
            again = replace(newest, start=claim.start, generation=min(newest.generation, claim.generation))
            return [again if one is newest else one for one in kept]
        last = max(manifest.epochs(self.files, self.layout, claim.lineage), default=NO_EPOCH)
        return [*kept, Brought(claim.lineage, last, now, accepted, claim.generation, claim.start)]

    def why_written(self, one: Brought) -> str | None:
        """That there are rows in these columns."""
        return f"from epoch {one.after + 1} on" if self._is_used(one) else None

    def _why_awaited(self, one: Brought, claim: Claim) -> str | None:
        """Why there may be rows in these columns soon, although there are none yet."""
        if one.lineage == claim.lineage:
            return self._why_decided(one, claim.decided)
        if one.lineage in claim.replaces or self.register.adopted_by(one.lineage) is not None:
            return None  # it can write no more
        if staged := self._staged(one):
            return (
                f"staged for epoch {staged[-1].epoch}, which is in doubt: start that stream again, which decides it, "
                "or run `epochal resolve --abort` with its checkpoint"
            )
        holder = self.register.claims.get(one.lineage)
        is_earlier = one.lineage.partition("~")[0] == claim.lineage.partition("~")[0]  # this query, before `new`
        if one.allowed or not one.start or holder is None or holder.start != one.start or is_earlier:
            return None  # what was accepted binds others with its first row
        return (
            f"which has started with them, as {holder}, and has written none yet: if it has ended, start it again with "
            "other columns, or run `epochal gc --fence` with its checkpoint"
        )

    def _why_decided(self, one: Brought, decided: int) -> str | None:
        """That this stream has staged these columns for an epoch that is decided, and not published it yet."""
        epochs = [attempt.epoch for attempt in self._staged(one) if attempt.epoch <= decided]
        if not epochs:
            return None
        return f"staged for epoch {epochs[-1]}, which is decided: `epochal recover` with its checkpoint publishes it"

    def _live(self) -> Sequence[Brought]:
        """Without those before a change that the user has accepted."""
        accepted = [number for number, one in enumerate(self.brought) if one.allowed and self._is_used(one)]
        return self.brought[accepted[-1] :] if accepted else self.brought

    def _is_used(self, one: Brought) -> bool:
        """Whether there are rows in these columns, published or open."""
        key = one.lineage, one.after, one.generation
        if key not in self._used:
            self._used[key] = self._search(one)
        return self._used[key]

    def _search(self, one: Brought) -> bool:
        count = 0
        for entry in manifest.entries_after(self.files, self.layout, one.lineage, one.after):
            if self._is_later(one, entry.epoch, entry.generation):
                break
            if entry.generation >= one.generation:
                count += 1
                if entry.rows or entry.files or count > MANY:
                    return True
        opened = [int(name[:12]) for name in self.files.names(self.layout.open(one.lineage)) if name[:12].isdecimal()]
        # The manifest lists an epoch whose rows are open. If it does not, this is the careful answer.
        return any(
            epoch > one.after and not manifest.holds(self.files, self.layout, one.lineage, epoch) for epoch in opened
        )

    def _staged(self, one: Brought) -> list[Attempt]:
        """The attempts with these columns that may still be published, in order. A roll has older rows."""
        names = sorted(self.files.names(self.layout.staged(one.lineage)))
        found = [a for name in names if (a := Attempt.from_key(one.lineage, name)) is not None]
        return [
            attempt
            for attempt in found
            if attempt.epoch > one.after
            and not attempt.roll
            and not manifest.holds(self.files, self.layout, one.lineage, attempt.epoch)  # else it has lost
            and attempt.generation >= one.generation
            and not self._is_later(one, attempt.epoch, attempt.generation)
        ]

    def _is_later(self, one: Brought, epoch: int, generation: int) -> bool:
        """Whether what a generation wrote of an epoch has the columns of a later record of the same stream."""
        later = [other for other in self.brought[self.brought.index(one) + 1 :] if other.lineage == one.lineage]
        return any(one.generation < other.generation <= generation and other.after < epoch for other in later)


@dataclass(frozen=True)
class TargetColumns:
    """A start that is about to write frames of one schema to a target."""

    options: FileOptions
    files: Files
    layout: Layout
    schema: StructType
    capitals_count: bool = False  # as the session says

    def faults(self, register: Register) -> list[str]:
        """What the start would break; empty if the user accepts it.

        Only columns with rows count here: which stream this is, and so what is its own, is known when it claims.
        """
        if self.options.changed_columns == "allow":
            return []
        with refuse_unreachable(f"sink {self.options.name!r}: its target", TARGET_ADVICE):
            return self._history(register.read()).faults(self._now)

    def noted(self, claim: Claim, register: Lineages) -> Mapping[str, Json]:
        """What the register holds after the claim of this start."""
        history = self._history(register)
        if self.options.changed_columns == "refuse":
            self._refuse(history.faults_of_claim(claim, self._now))
        return {**register.notes, KEY: [one.to_json() for one in history.with_start(claim, self._now)]}

    def check_own(self, attempt: Attempt, register: Register) -> None:
        """Refuse to stage an epoch if an older attempt of the one before has won, and had other columns."""
        if self.options.changed_columns == "refuse":
            self._refuse(self._history(register.read()).faults_of_attempt(attempt, self._now))

    def _refuse(self, found: Sequence[str]) -> None:
        if found:
            raise BadRows(f"sink {self.options.name!r}: {found[0]}. Nothing was written")

    @property
    def _now(self) -> FileColumns:
        return FileColumns.of(self.options, self.schema)

    def _history(self, register: Lineages) -> ColumnHistory:
        return ColumnHistory.of(self.files, self.layout, register, capitals_count=self.capitals_count)
