"""A start: what is there is checked, a generation is claimed in the journal, and each target in its store.

Nothing is staged before all three have succeeded. A start that is refused binds nobody.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from epochal.txn import failpoints
from epochal.txn.checkpoint import Checkpoint, sample_of_offsets
from epochal.txn.errors import FencedOut, OffsetsChanged, Refused
from epochal.txn.guard import Choices, Evidence, StartPlan, check_start
from epochal.txn.holding import new_start
from epochal.txn.incarnations import Incarnations
from epochal.txn.journal import Journal
from epochal.txn.model import Claim, Json, Memory, lineage_of
from epochal.txn.offsets import Match, compare
from epochal.txn.participant import Participant, description_of
from epochal.txn.reaching import reaching
from epochal.txn.records import GenerationStarted, encode
from epochal.txn.view import View

Rows = TypeVar("Rows")

TRIES = 100  # of a start that others outrun
JOURNAL_ADVICE = "Correct checkpointLocation, or EpochWriter's journal=, or let this user read and write there"
TARGET_ADVICE = "Correct the sink's path, or let this user write there"


@dataclass(frozen=True)
class Generation:
    """A start that has claimed its number and its targets."""

    journal: Journal
    incarnation: int
    record: GenerationStarted
    before: View  # what the journal said when it was claimed
    memories: Mapping[str, Memory]
    adopted: Mapping[str, int]

    @property
    def number(self) -> int:
        return self.record.generation

    @property
    def lineage(self) -> str:
        return lineage_of(self.record.query, self.record.incarnation)

    def fault(self, view: View) -> str | None:
        """Why this generation must stop; None while it is the newest of its journal."""
        if view.generation > self.number:
            return f"generation {view.generation} has taken over"
        if view.latest is not None and view.latest.closed:
            return "the stream goes on as a new one"
        if view.latest is None or encode(view.latest) != encode(self.record):
            return "its own start is gone from the journal, which was lost or replaced"
        return None


@dataclass(frozen=True)
class Start(Generic[Rows]):
    """One start of a query, until it has its generation."""

    checkpoint: Checkpoint
    participants: Mapping[str, Participant[Rows]]
    incarnations: Incarnations[Rows]
    query: str
    eager: bool
    choices: Choices
    version: str
    names: Callable[[], str] = new_start

    def check(self) -> None:
        """Refuse what `claim` would refuse, before Spark plans an epoch. Writes nothing, and binds nobody."""
        incarnation, journal = self.incarnations.current()
        self._check_last(journal)
        evidence = self._evidence(incarnation, journal, journal.read())
        latest = evidence.after.latest
        if latest is None or not latest.closed:  # else a new journal is being made, which `claim` looks at
            check_start(evidence, self.choices)

    def claim(self) -> Generation:
        """The generation of this start, with its targets; refused if rows could be lost or doubled."""
        self._check_last(self.incarnations.current()[1])
        for _ in range(TRIES):
            generation = self._claim()
            if generation is not None:
                return generation
            # Another driver was faster, or the stream goes on in a new journal: look at everything again.
        raise FencedOut(f"others have started on the same targets {TRIES} times meanwhile; this driver stops")

    def _claim(self) -> Generation | None:
        """Check what is there and claim the generation after it; None if that has changed meanwhile."""
        incarnation, journal = self.incarnations.current()
        before = journal.read()
        if incarnation > 1 and before.latest is None:
            self.incarnations.leave(incarnation - 1)
        evidence = self._evidence(incarnation, journal, before)
        latest = evidence.after.latest
        if latest is not None and latest.closed:
            return None
        plan = check_start(evidence, self.choices)
        record = self.record(incarnation, evidence.after, plan, at=journal.now())
        if plan.reincarnate:
            self.incarnations.close(incarnation, journal, record)
            return None
        # The number proves that nobody has started since `after`: the plan still holds.
        with reaching("the journal", JOURNAL_ADVICE):
            claimed = journal.claim(record)
        if not claimed:
            return None
        generation = Generation(journal, incarnation, record, evidence.after, evidence.memories, plan.adopted)
        return generation if self._claim_targets(generation, plan) else None

    def record(self, incarnation: int, view: View, plan: StartPlan, *, at: str) -> GenerationStarted:
        """This start as the next generation of a journal."""
        return GenerationStarted(
            generation=view.generation + 1,
            query=self.query,
            base=plan.base,
            start=self.names(),
            missing=dict(plan.missing),
            incarnation=incarnation,
            commit="eager" if self.eager else "checkpoint",
            sinks={name: description_of(p) for name, p in self.participants.items()},
            adopted=dict(plan.adopted),
            driver=driver(self.version),
            at=at,
        )

    def _evidence(self, incarnation: int, journal: Journal, before: View) -> Evidence:
        """All that a start is checked by."""
        if before.latest is not None and before.latest.query != self.query:
            raise Refused(
                f"{journal.path} is the journal of query {before.latest.query}, the checkpoint belongs to "
                f"{self.query}. Nothing was written. Give each checkpoint a journal of its own"
            )
        lineage = lineage_of(self.query, incarnation)
        memories = self._remembered(lineage)
        _check_targets(memories)
        return Evidence(
            lineage=lineage,
            before=before,
            closed_at=self.incarnations.closed_at(incarnation),
            memories=memories,
            committed=self.checkpoint.committed(),
            after=journal.read(),
            eager=self.eager,
            journal=journal.place,
            sample=lambda: sample_of_offsets(self.checkpoint),
        )

    def _remembered(self, lineage: str) -> dict[str, Memory]:
        """What each store remembers."""
        memories = {}
        for name, participant in self.participants.items():
            with reaching(f"sink {name!r}: its target", TARGET_ADVICE):
                memories[name] = participant.open(lineage)
        return memories

    def _check_last(self, journal: Journal) -> None:
        """The last epoch that is done must be the one that this checkpoint has committed under its number."""
        view = journal.read()
        epoch = view.done_through
        winner = view.winner(epoch)
        if winner is None or epoch > self.checkpoint.committed():
            return
        now = self.checkpoint.offsets(epoch)
        if now is not None and compare(winner.offsets, now) is Match.DIFFERENT:
            raise OffsetsChanged(
                f"epoch {epoch} was written from other source offsets, or other files, than this checkpoint has "
                "committed: two copies of a checkpoint have used one journal. Nothing was written. Go on with the "
                "checkpoint that wrote it"
            )

    def _claim_targets(self, generation: Generation, plan: StartPlan) -> bool:
        """Bind every target to this start; False if one was claimed by another since it was checked."""
        for name, participant in self.participants.items():
            claim = claim_of(generation.record, generation.journal.place, name, plan.replaces.get(name, ()))
            failpoints.hit("before-enrol")
            with reaching(f"sink {name!r}: its target", TARGET_ADVICE):
                claimed = participant.claim(claim, version=generation.memories[name].version)
            failpoints.hit("after-enrol")
            if claimed and _is_outrun(participant, claim, generation.memories[name]):
                participant.withdraw(claim)
                return False
            if not claimed:
                if (why := generation.fault(generation.journal.read())) is not None:
                    raise superseded(generation.number, why)  # a newer start of ours has the target now
                _check_own_targets(generation, name, participant)
                return False
        return True


def superseded(generation: int, why: str, epoch: int = -1) -> FencedOut:
    """The end of a driver that another one has overtaken."""
    return FencedOut(
        f"epoch {epoch}: generation {generation} was superseded: {why}; another driver runs this query, so this one "
        "stops"
    )


def driver(version: str) -> dict[str, Json]:
    """Who has started, for people."""
    return {"host": platform.node(), "pid": os.getpid(), "epochal": version}


def claim_of(started: GenerationStarted, journal: str, sink: str, replaces: Sequence[str] = ()) -> Claim:
    """How a start claims one of its targets."""
    return Claim(
        lineage=lineage_of(started.query, started.incarnation),
        generation=started.generation,
        start=started.start,
        journal=journal,
        sink=sink,
        replaces=tuple(replaces),
        driver=started.driver,
    )


def _is_outrun(participant: Participant[Rows], claim: Claim, memory: Memory) -> bool:
    """Whether a stream whose place was taken has written since it was checked."""
    if not claim.replaces:
        return False
    others = participant.open(claim.lineage).others
    return any(others.get(lineage) != memory.others.get(lineage) for lineage in claim.replaces)


def _check_own_targets(generation: Generation, name: str, participant: Participant[Rows]) -> None:
    """A target that this very start has claimed for another sink is the same one under another name."""
    holder = participant.holder(generation.lineage)
    if holder is not None and (holder.generation, holder.start) == (generation.number, generation.record.start):
        raise same_target(holder.sink, name, generation.memories[name].target)


def _check_targets(memories: Mapping[str, Memory]) -> None:
    """Two sinks in one place would stage into the same folder and count each other's epochs."""
    owners: dict[str, str] = {}
    for name, memory in memories.items():
        other = owners.setdefault(memory.identity or memory.target, name)
        if other != name:
            raise same_target(other, name, memory.target)


def same_target(one: str, other: str, target: str) -> Refused:
    """Two sinks of one writer that would write over each other."""
    return Refused(
        f"sinks {one!r} and {other!r} both write to {target}. Nothing was written. Give each sink a target of its own"
    )
