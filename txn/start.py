"""A start: check what is there, claim a generation in the journal, then claim each target in its store.

Nothing is staged before all three have succeeded. A start that is refused changes nothing for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from epochal.txn import failpoints
from epochal.txn.access import TARGET_ADVICE, refuse_unreachable
from epochal.txn.checkpoint import Checkpoint, sample_of_offsets
from epochal.txn.choices import Choices
from epochal.txn.claims import new_start_id
from epochal.txn.driver_facts import this_driver
from epochal.txn.errors import EpochalError, FencedOut, OffsetsChanged, Overtaken, Refused, all_in_one
from epochal.txn.guard import Observed, StartPlan, check_reincarnation, check_start
from epochal.txn.incarnations import Incarnations
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Claim, Memory, lineage_of
from epochal.txn.offsets import Match, compare
from epochal.txn.participant import Participant, description_of
from epochal.txn.records import GenerationStarted, encode
from epochal.txn.rescaling import refuse_unfinished
from epochal.txn.restoration import forked_from
from epochal.txn.retirement import refuse_retired, retirement_of
from epochal.txn.view import View

Rows = TypeVar("Rows")

TRIES = 100  # of a start that other starts overtake
STOPS = "This driver stops; start the query again if no other runs it"
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
        """Why this generation must stop, and what to do then; None while it is the newest of its journal."""
        if view.generation > self.number:
            by_command = view.latest is not None and view.latest.driver.by_command
            retired = retirement_of(view.latest)
            if retired is not None:
                return retired.why_fenced
            why = (
                "a command (`epochal roll`, `gc --fence`, `retire --undo`, `restore` or `rescale`) has claimed "
                f"generation {view.generation}"
                if by_command
                else f"generation {view.generation} has taken over. It is {driver_of(view.latest)}"
            )
            return f"{why}. {STOPS}"
        if view.latest is not None and view.latest.closed:
            return f"the stream goes on as a new one. {STOPS}"
        if view.latest is None or encode(view.latest) != encode(self.record):
            return f"its own start is gone from the journal, which was lost or replaced. {STOPS}"
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

    def claim(self, rows: Rows | None = None, *, instead_of: str | None = None) -> Generation:
        """The generation of this start, with its targets; refused if rows could be lost or doubled.

        `rows` is a frame with the columns that it will write, for the participants that record them.
        `instead_of` is the id of the start that this one replaces, or empty if there is to be none: Overtaken if the
        newest start is another one.
        """
        self._check_last(self.incarnations.current()[1])
        for _ in range(TRIES):
            generation = self._claim(rows, instead_of)
            if generation is not None:
                return generation
            # Another driver was faster, or the stream goes on in a new journal: check everything again.
        raise FencedOut(f"other drivers started on the same targets {TRIES} times meanwhile; this driver stops")

    def _claim(self, rows: Rows | None, instead_of: str | None) -> Generation | None:
        """Check what is there and claim the next generation; None if something has changed meanwhile."""
        incarnation, journal = self.incarnations.current()
        before = journal.read()
        if incarnation > 1 and before.latest is None:
            self.incarnations.leave_undecided(incarnation - 1)
        observed = self._observe(incarnation, journal, before)
        latest = observed.after.latest
        if latest is not None and latest.closed:
            return None
        if instead_of is not None and latest is not None and latest.start != instead_of:
            raise Overtaken(f"generation {latest.generation} has started meanwhile. It is {driver_of(latest)}")
        plan = self._plan(incarnation, observed)
        record = self.record(incarnation, observed.after, plan, rows, at=journal.now())
        if plan.reincarnate:
            self.incarnations.close(incarnation, journal, record)
            return None
        # If the number is still free, no other driver has started since `after`: the plan is still valid.
        with refuse_unreachable("the journal", JOURNAL_ADVICE):
            claimed = journal.claim(record)
        if not claimed:
            return None
        generation = Generation(journal, incarnation, record, observed.after, observed.memories, plan.adopted)
        decided = max([observed.committed, *observed.after.decided])
        return generation if self._claim_targets(generation, plan, decided, rows) else None

    def _plan(self, incarnation: int, observed: Observed) -> StartPlan:
        plan = check_start(observed, self.choices)
        if plan.reincarnate:
            lineage = lineage_of(self.query, incarnation + 1)
            check_reincarnation(observed, lineage, self._memories(lineage), self.choices)
        return plan

    def record(
        self, incarnation: int, view: View, plan: StartPlan, rows: Rows | None = None, *, at: str
    ) -> GenerationStarted:
        """This start as the next generation of a journal."""
        return GenerationStarted(
            generation=view.generation + 1,
            query=self.query,
            base=plan.base,
            start=self.start_ids(),
            missing=dict(plan.missing),
            incarnation=incarnation,
            commit="eager" if self.eager else "checkpoint",
            sinks={name: description_of(p, rows) for name, p in self.participants.items()},
            adopted=dict(plan.adopted),
            driver=replace(
                this_driver(self.version),
                forked_from=tuple(sorted(self.incarnations.ancestors(incarnation) | forked_from(view))),
            ),
            at=at,
        )

    def _observe(self, incarnation: int, journal: Journal, before: View) -> Observed:
        """Read everything that the guard checks, in the order that it needs."""
        if before.latest is not None and before.latest.query != self.query:
            raise Refused(
                f"{journal.path} is the journal of query {before.latest.query}, the checkpoint belongs to "
                f"{self.query}. Nothing was written. Give each checkpoint a journal of its own"
            )
        refuse_retired(before.latest, "this query cannot start", journal)
        refuse_unfinished(before, "this query cannot start")
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
            ancestors=self.incarnations.ancestors(incarnation),
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

    def _claim_targets(self, generation: Generation, plan: StartPlan, decided: int, rows: Rows | None) -> bool:
        """Claim every target for this start; False if another start has claimed one since it was checked."""
        for name, participant in self.participants.items():
            replaces = plan.replaces.get(name, ())
            claim = claim_of(generation.record, generation.journal.place, name, replaces, decided=decided)
            failpoints.hit("before-enrol")
            with refuse_unreachable(f"sink {name!r}: its target", TARGET_ADVICE):
                claimed = participant.claim(claim, version=generation.memories[name].version, rows=rows)
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
    """The error of a driver whose generation is no longer the newest. `why` says what to do, too."""
    at = f"epoch {epoch}: " if epoch > NO_EPOCH else ""
    return FencedOut(f"{at}generation {generation} was superseded: {why}")


def driver_of(started: GenerationStarted | None) -> str:
    """The driver of a generation for people: its pid, its host, and since when."""
    if started is None:
        return "unknown"
    since = f", started {started.at}" if started.at else ""
    return f"{started.driver.process.name}{since}"


def claim_of(
    started: GenerationStarted, journal: str, sink: str, replaces: Sequence[str] = (), *, decided: int = NO_EPOCH
) -> Claim:
    """The claim of a start on one of its targets."""
    return Claim(
        lineage=lineage_of(started.query, started.incarnation),
        generation=started.generation,
        start=started.start,
        journal=journal,
        sink=sink,
        replaces=tuple(replaces),
        driver=started.driver.to_json(),
        decided=decided,
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
