"""Does a store hold exactly the rows that were staged? The two sides of an audit, and its result. Pure.

*expected*: the rows that the journal recorded when epochs were staged, for each epoch whose record is there and in
total for those folded away. *report*: what a sink reads in its store. `audit_comparison` compares the two:

============  =========================================================================================
verdict       when
============  =========================================================================================
EXACT         every row is accounted for, epoch by epoch or in total
DIFFERS       something contradicts: too many, too few or other rows, an epoch twice, a file unlisted
NOT_PROVABLE  nothing contradicts, but something could not be read or compared; each reason is given
============  =========================================================================================

Row counts are always compared, digests if both sides have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from epochal.txn.model import NO_EPOCH, Json
from epochal.txn.row_digests import RowDigest, total
from epochal.txn.view import View

ROWS_NOT_READ = "rows were not read"  # what a participant reports as unproven if `Scope.fast` is set, and nothing else


class AuditVerdict(Enum):
    """The result of an audit, in a word."""

    EXACT = "exact"
    CONSISTENT = "consistent"  # every record and file is as it should be; rows were not read, as asked
    DIFFERS = "differs"
    NOT_PROVABLE = "not provable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The rows that were staged for a sink in one target, as far as the journal goes back."""

    since: int  # the first epoch that was counted
    epochs: Mapping[int, RowDigest]  # whose records are in the journal
    folded: RowDigest = field(default_factory=RowDigest)
    folded_epochs: int = 0
    folded_through: int = NO_EPOCH
    through: int = NO_EPOCH  # the last epoch that is done
    adopted: int = NO_EPOCH  # up to here epochs were adopted: the store had them already
    uncertain: bool = False  # some folded epochs may have gone to another target

    @property
    def total(self) -> RowDigest:
        return self.folded + total(self.epochs.values())

    @property
    def count(self) -> int:
        return self.folded_epochs + len(self.epochs)

    @property
    def last(self) -> int:
        """The last epoch that was staged for it."""
        return max(self.epochs, default=self.folded_through if self.folded_epochs else NO_EPOCH)


def expected_rows(view: View, sink: str, target: str, *, alone: bool) -> Expected:
    """What the journal recorded for a sink in one target; `alone` if the sink never had another."""
    folded = view.totals(through=view.floor)
    spans = [span for span in folded.sinks.get(sink, ()) if span.target == target or (alone and not span.target)]
    unknown = [span for span in folded.sinks.get(sink, ()) if not span.target and not alone]
    epochs: dict[int, RowDigest] = {}
    for epoch in sorted(view.done):
        winner = view.winner(epoch) if epoch > view.floor else None
        staged = winner.sinks.get(sink) if winner is not None else None
        where = view.target(sink, view.decided[epoch]) if staged is not None else None
        if staged is not None and (where == target or (alone and not where)):
            epochs[epoch] = RowDigest(staged.rows, staged.digest)
    return Expected(
        since=folded.since,
        epochs=epochs,
        folded=total(span.row_digest for span in spans),
        folded_epochs=sum(span.epochs for span in spans),
        folded_through=view.floor,
        through=view.done_through,
        adopted=view.latest.adopted.get(sink, NO_EPOCH) if view.latest is not None else NO_EPOCH,
        uncertain=bool(unknown),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a sink is to audit."""

    lineage: str
    expected: Expected
    state: Mapping[str, Json] = field(default_factory=dict)  # the sink's state in the journal
    fast: bool = False  # without reading rows
    progress: Callable[[str], None] = lambda _: None  # called with a text for display


@dataclass(frozen=True, slots=True)
class Difference:
    """A contradiction between journal and store, and where."""

    what: str
    epoch: int | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a sink has read in its store.

    `epochs_present` are the epochs that the store has recorded, without a gap from `complete_from` on; None if it keeps
    no such record. `recorded` is the store's own record of the rows of each epoch. `epochs` are the rows that are there
    now, for each epoch that can be distinguished, and `total` all of them. If each epoch replaces those before it,
    `only_from` is the first whose rows should be there.
    """

    epochs_present: frozenset[int] | None = None
    complete_from: int = 0
    recorded: Mapping[int, RowDigest] = field(default_factory=dict)
    epochs: Mapping[int, RowDigest] = field(default_factory=dict)
    total: RowDigest | None = None
    only_from: int | None = None
    differences: tuple[Difference, ...] = ()
    unproven: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()  # rows that it cannot assign; a reason for doubt only if the total differs
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result for one sink."""

    verdict: AuditVerdict
    epochs: int
    expected: RowDigest
    found: RowDigest | None
    digests: str  # which digests were compared, and whether they are equal
    differences: tuple[Difference, ...] = ()
    unproven: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
