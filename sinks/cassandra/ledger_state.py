"""What the ledger of a table says at one moment: which streams write to it, and how far each is. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from epochal.sinks.storage.register import Lineages
from epochal.txn.commit_checks import VisibleEpoch
from epochal.txn.model import NO_EPOCH, Attempt, Memory


def maker_of(attempt: Attempt) -> str:
    """The generation and start of an attempt, which identify it; empty if its start is not known."""
    return f"{attempt.generation}.{attempt.start}" if attempt.start else ""


@dataclass(frozen=True, slots=True)
class StreamState:
    """What the ledger records of one stream."""

    lineage: str
    replaces: tuple[str, ...] = ()  # the lineages whose place it took
    epoch: int = NO_EPOCH
    stamp: int = 0  # the latest timestamp that it has taken for an epoch, committed or not
    recent: Mapping[int, str] = field(default_factory=dict)  # epoch -> digest of its offsets
    makers: Mapping[int, str] = field(default_factory=dict)  # epoch -> `maker_of` the attempt that wrote it

    def shown(self, epoch: int) -> VisibleEpoch:
        """Which attempt wrote an epoch that is in the table."""
        generation, _, start = self.makers.get(epoch, "").partition(".")
        return VisibleEpoch(int(generation) if generation else None, start, self.recent.get(epoch))


@dataclass(frozen=True, slots=True)
class LedgerState:
    """All streams that write to a table."""

    streams: Mapping[str, StreamState] = field(default_factory=dict)
    owner: str | None = None  # the lineage that owns the table's totals, if it has any
    now: int = 0  # the server's clock, in microseconds; 0 if no stream is recorded
    claims: Lineages = field(default_factory=Lineages)

    def chain(self, lineage: str) -> list[str]:
        """The lineage, those whose place it took, those whose place they took, and so on."""
        lineages = [lineage]
        for each in lineages:
            own = self.streams.get(each)
            lineages += [other for other in (own.replaces if own else ()) if other not in lineages]
        return lineages

    def adopted_by(self, lineage: str) -> str | None:
        """Who took a lineage's place."""
        return next((s.lineage for s in self.streams.values() if lineage in s.replaces), None)

    def next_stamp(self, least: int = 0) -> int:
        """An even timestamp, later than any that was taken here and not before the server's clock.

        Deletes carry it, all other writes the next one.

        >>> LedgerState({"a": StreamState("a", stamp=40)}, now=30).next_stamp()
        42
        """
        taken = max((s.stamp for s in self.streams.values()), default=0)
        return max(self.now, max(taken, least) + 3) // 2 * 2

    def memory(self, lineage: str, target: str, *, adds: bool, identity: str = "") -> Memory:
        """What the guard needs to know; `adds` says whether the sink adds to totals."""
        own = self.streams.get(lineage)
        enrolled = own is not None and (not adds or self.owner == lineage)
        # A lineage whose place was taken writes no more: only the one that took it counts.
        takers = [s for s in self.streams.values() if not (enrolled and s is own)]
        taken = {other for s in takers for other in s.replaces}
        others = {s.lineage: s.epoch for s in self.streams.values() if s.lineage not in {lineage, *taken}}
        owned_by_other = self.owner is not None and self.owner not in self.chain(lineage)
        if owned_by_other and self.owner is not None and self.owner not in taken:
            others.setdefault(self.owner, NO_EPOCH)
        return Memory(
            target,
            enrolled=enrolled,
            last=own.epoch if own else NO_EPOCH,
            recent=own.recent if own else {},
            others=others,
            adopted_by=self.adopted_by(lineage),
            holder=self.claims.claims.get(lineage),
            version=self.claims.version,
            identity=identity,
            exclusive=adds or owned_by_other,
        )
