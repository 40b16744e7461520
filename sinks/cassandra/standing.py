"""Who writes to a table, as its ledger says at one moment, and what follows from it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from epochal.sinks.storage.register import Lineages
from epochal.txn.landing import Shown
from epochal.txn.model import NO_EPOCH, Attempt, Memory


def maker_of(attempt: Attempt) -> str:
    """Which attempt an epoch is; empty where its start is not known."""
    return f"{attempt.generation}.{attempt.start}" if attempt.start else ""


@dataclass(frozen=True, slots=True)
class Standing:
    """One lineage in a table."""

    lineage: str
    replaces: tuple[str, ...] = ()  # the lineages whose place it took
    epoch: int = NO_EPOCH
    stamp: int = 0  # the latest timestamp that it has taken for an epoch, in or not
    recent: Mapping[int, str] = field(default_factory=dict)
    makers: Mapping[int, str] = field(default_factory=dict)  # which attempts the recent epochs are

    def shown(self, epoch: int) -> Shown:
        """Which attempt an epoch in the table is."""
        generation, _, start = self.makers.get(epoch, "").partition(".")
        return Shown(int(generation) if generation else None, start, self.recent.get(epoch))


@dataclass(frozen=True, slots=True)
class Register:
    """Everybody who writes to a table."""

    standings: Mapping[str, Standing] = field(default_factory=dict)
    owner: str | None = None  # the lineage whose totals the table has, if it has any
    now: int = 0  # the server's clock, in microseconds; 0 where there is nobody
    claims: Lineages = field(default_factory=Lineages)

    def chain(self, lineage: str) -> list[str]:
        """The lineage, those whose place it took, and so on."""
        found = [lineage]
        for each in found:
            own = self.standings.get(each)
            found += [other for other in (own.replaces if own else ()) if other not in found]
        return found

    def adopted_by(self, lineage: str) -> str | None:
        """Who took a lineage's place."""
        return next((s.lineage for s in self.standings.values() if lineage in s.replaces), None)

    def next_stamp(self, least: int = 0) -> int:
        """A timestamp above every one that anybody has taken here, in touch with the server's clock, and even.

        Deletes carry it, and everything else one more.

        >>> Register({"a": Standing("a", stamp=40)}, now=30).next_stamp()
        42
        """
        taken = max((s.stamp for s in self.standings.values()), default=0)
        return max(self.now, max(taken, least) + 3) // 2 * 2

    def memory(self, lineage: str, target: str, *, adds: bool, identity: str = "") -> Memory:
        """As the guard reads it, for a sink that `adds` to totals or does not."""
        own = self.standings.get(lineage)
        enrolled = own is not None and (not adds or self.owner == lineage)
        # Whose place was taken can write no more: only the one who took it has to be asked about.
        takers = [s for s in self.standings.values() if not (enrolled and s is own)]
        taken = {other for s in takers for other in s.replaces}
        others = {s.lineage: s.epoch for s in self.standings.values() if s.lineage not in {lineage, *taken}}
        foreign = self.owner is not None and self.owner not in self.chain(lineage)
        if foreign and self.owner is not None and self.owner not in taken:
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
            exclusive=adds or foreign,
        )
