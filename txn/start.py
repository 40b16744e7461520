"""A start: check what is there, claim a generation in the journal, then claim each target in its store.

Nothing is staged before all three have succeeded. A start that is refused changes nothing for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from epochal.txn import failpoints
from epochal.txn.access import TARGET_ADVICE, refuse_unreachable
from epochal.txn.checkpoint import Checkpoint, sample_of_offsets
from epochal.txn.choices import Choices
from epochal.txn.claims import new_start_id
from epochal.txn.errors import EpochalError, FencedOut, OffsetsChanged, Refused, all_in_one
from epochal.txn.guard import Observed, StartPlan, check_reincarnation, check_start
from epochal.txn.incarnations import Incarnations
from epochal.txn.journal import Journal
from epochal.txn.liveness import process_of
from epochal.txn.model import NO_EPOCH, Claim, Json, Memory, lineage_of
from epochal.txn.offsets import Match, compare
from epochal.txn.participant import Participant, description_of
from epochal.txn.process import this_process
from epochal.txn.records import GenerationStarted, encode
from epochal.txn.retirement import refuse_retired
from epochal.txn.view import View

Rows = TypeVar("Rows")

TRIES = 100  # of a start that other starts overtake
JOURNAL_ADVICE = "Correct checkpointLocation, or EpochWriter's journal=, or let this user read and write there"


@dataclass(frozen=True)
class Generation:
    """A start that has claimed its number and its targets."""

    journal: Journal
    incarnation: int
    record: GenerationStarted
    before: View  # the journal as it was when the generation was claimed
    memories: Mapping[str, Memory]
    adopted: Mapping[str, int]

    @property
    def number(self) -> int:
        return self.record.generation

    @property
    def lineage(self) -> str:
        return lineage_of(self.record.query, self.record.incarnation)

    def why_superseded(self, view: View) -> str | None:
        """Why this generation must stop; None while it is the newest of its journal."""
        if view.generation > self.number:
            by_command = view.latest is not None and view.latest.driver.get("fence")
            return (
                f"a command (`epochal roll`, `gc --fence` or `retire`) has claimed generation {view.generation}"
                if by_command
                else f"generation {view.generation} has taken over. It is {driver_of(view.latest)}"
            )
        if view.latest is not None and view.latest.closed:
            return "the stream goes on as a new one"
        if view.latest is None or encode(view.latest) != encode(self.record):
            return "its own start is gone from the journal, which was lost or replaced"
        return None


@dataclass(frozen=True)
class Start(Generic[Rows]):
    """One start of a query, until it has claimed its generation."""

    checkpoint: Checkpoint
    participants: Mapping[str, Participant[Rows]]
    incarnations: Incarnations[Rows]
    query: str
    eager: bool
    choices: Choices
    version: str
    start_ids: Callable[[], str] = new_start_id

    def check(self) -> None:
        """Refuse what `claim` would refuse, before Spark plans an epoch. Writes nothing and claims nothing."""
        incarnation, journal = self.incarnations.current()
        self._check_last(journal)
        observed = self._observe(incarnation, journal, journal.read())
        latest = observed.after.latest
        if latest is None or not latest.closed:  # else the stream goes on in a new journal, which `claim` checks
            self._plan(incarnation, observed)

    def claim(self) -> Generation:
        """The generation of this start, with its targets; refused if rows could be lost or doubled."""
        self._check_last(self.incarnations.current()[1])
        for _ in range(TRIES):
            generation = self._claim()
            if generation is not None:
                return generation
            # Another driver was faster, or the stream goes on in a new journal: check everything again.
        raise FencedOut(f"other drivers started on the same targets {TRIES} times meanwhile; this driver stops")

    def _claim(self) -> Generation | None:
        """Check what is there and claim the next generation; None if something has changed meanwhile."""
        incarnation, journal = self.incarnations.current()
        before = journal.read()
        if incarnation > 1 and before.latest is None:
            self.incarnations.leave_undecided(incarnation - 1)
        observed = self._observe(incarnation, journal, before)
        latest = observed.after.latest
        if latest is not None and latest.closed:
            return None
        plan = self._plan(incarnation, observed)
        record = self.record(incarnation, observed.after, plan, at=journal.now())
        if plan.reincarnate:
            self.incarnations.close(incarnation, journal, record)
            return None
        # If the number is still free, no other driver has started since `after`: the plan is still valid.
        with refuse_unreachable("the journal", JOURNAL_ADVICE):
            claimed = journal.claim(record)
        if not claimed:
            return None
        generation = Generation(journal, incarnation, record, observed.after, observed.memories, plan.adopted)
        return generation if self._claim_targets(generation, plan) else None

    def _plan(self, incarnation: int, observed: Observed) -> StartPlan:
        plan = check_start(observed, self.choices)
        if plan.reincarnate:
            lineage = lineage_of(self.query, incarnation + 1)
            check_reincarnation(lineage, self._memories(lineage), self.choices)
        return plan

    def record(self, incarnation: int, view: View, plan: StartPlan, *, at: str) -> GenerationStarted:
        """This start as the next generation of a journal."""
        return GenerationStarted(
            generation=view.generation + 1,
            query=self.query,
            base=plan.base,
            start=self.start_ids(),
            missing=dict(plan.missing),
            incarnation=incarnation,
            commit="eager" if self.eager else "checkpoint",
            sinks={name: description_of(p) for name, p in self.participants.items()},
            adopted=dict(plan.adopted),
            driver=driver(self.version),
            at=at,
        )

    def _observe(self, incarnation: int, journal: Journal, before: View) -> Observed:
        """Read everything that the guard checks, in the order that it needs."""
        if before.latest is not None and before.latest.query != self.query:
            raise Refused(
                f"{journal.path} is the journal of query {before.latest.query}, the checkpoint belongs to "
                f"{self.query}. Nothing was written. Give each checkpoint a journal of its own"
            )
        refuse_retired(before.latest, "this query cannot start")
        lineage = lineage_of(self.query, incarnation)
        memories = self._memories(lineage)
        _check_targets(memories)
        return Observed(
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

    def _memories(self, lineage: str) -> dict[str, Memory]:
        """What each store has recorded."""
        memories, refused = {}, []
        for name, participant in self.participants.items():
            try:
                with refuse_unreachable(f"sink {name!r}: its target", TARGET_ADVICE):
                    memories[name] = participant.open(lineage)
            except EpochalError as fault:
                refused.append(fault)
        if refused:
            raise all_in_one(refused)
        return memories

    def _check_last(self, journal: Journal) -> None:
        """Refuse if the last done epoch was written from other offsets than this checkpoint has for it."""
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
        """Claim every target for this start; False if another start has claimed one since it was checked."""
        for name, participant in self.participants.items():
            claim = claim_of(generation.record, generation.journal.place, name, plan.replaces.get(name, ()))
            failpoints.hit("before-enrol")
            with refuse_unreachable(f"sink {name!r}: its target", TARGET_ADVICE):
                claimed = participant.claim(claim, version=generation.memories[name].version)
            failpoints.hit("after-enrol")
            if claimed and _is_outrun(participant, claim, generation.memories[name]):
                participant.withdraw(claim)
                return False
            if not claimed:
                if (why := generation.why_superseded(generation.journal.read())) is not None:
                    raise superseded(generation.number, why)  # a newer start of this stream has claimed the target
                _check_own_targets(generation, name, participant)
                return False
        return True


def superseded(generation: int, why: str, epoch: int = -1) -> FencedOut:
    """The error of a driver whose generation is no longer the newest."""
    at = f"epoch {epoch}: " if epoch > NO_EPOCH else ""
    return FencedOut(
        f"{at}generation {generation} was superseded: {why}. This driver stops; start the query again if no other "
        "runs it"
    )


def driver_of(started: GenerationStarted | None) -> str:
    """The driver of a generation for people: its pid, its host, and since when."""
    if started is None:
        return "unknown"
    since = f", started {started.at}" if started.at else ""
    return f"{process_of(started.driver).name}{since}"


def driver(version: str) -> dict[str, Json]:
    """Which process this driver is, for display."""
    me = this_process()
    facts: dict[str, Json] = {"host": me.host, "pid": me.pid, "epochal": version}
    further: dict[str, Json] = {"started": me.started, "ticks": me.ticks, "machine": me.machine}
    return facts | {name: value for name, value in further.items() if value is not None}


def claim_of(started: GenerationStarted, journal: str, sink: str, replaces: Sequence[str] = ()) -> Claim:
    """The claim of a start on one of its targets."""
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
    """Whether a stream that the claim replaces has written since it was checked."""
    if not claim.replaces:
        return False
    others = participant.open(claim.lineage).others
    return any(others.get(lineage) != memory.others.get(lineage) for lineage in claim.replaces)


def _check_own_targets(generation: Generation, name: str, participant: Participant[Rows]) -> None:
    """Refuse a target that this start has claimed for another sink: the same target under another name."""
    holder = participant.holder(generation.lineage)
    if holder is not None and (holder.generation, holder.start) == (generation.number, generation.record.start):
        raise same_target(holder.sink, name, generation.memories[name].target)


def _check_targets(memories: Mapping[str, Memory]) -> None:
    """Refuse two sinks with the same target: they would stage into the same folder and count each other's epochs."""
    owners: dict[str, str] = {}
    for name, memory in memories.items():
        other = owners.setdefault(memory.identity or memory.target, name)
        if other != name:
            raise same_target(other, name, memory.target)


def same_target(one: str, other: str, target: str) -> Refused:
    """The error of a writer with two sinks in one target."""
    return Refused(
        f"sinks {one!r} and {other!r} both write to {target}. Nothing was written. Give each sink a target of its own"
    )
