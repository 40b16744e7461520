"""The steps of the protocol, in the order that each of them needs.

One coordinator is one generation on one lineage. It is synchronous and has no threads, no clock
and no patience: what waits and retries is the `settler`. The numbers in comments are the rules of
``docs/protocol.md``.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Generic, TypeVar

from epochal.txn import failpoints, rolls
from epochal.txn.checkpoint import Checkpoint, sample_of_offsets
from epochal.txn.errors import (
    BadRows,
    CommitFailed,
    EpochalError,
    FencedOut,
    OffsetsChanged,
    Refused,
    Rewound,
    StoreAway,
    TwoJournals,
)
from epochal.txn.guard import Choices, Evidence, judge
from epochal.txn.holding import copied, displaced, new_start, stranger
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, Claim, Handle, Json, Memory, Staged, lineage_of
from epochal.txn.offsets import Match, compare, is_old
from epochal.txn.participant import FollowsWatermark, KeepsState, Participant
from epochal.txn.plan import Decide, Finish, Sweep, held, lowest_open, next_step, sweep
from epochal.txn.reaching import reaching
from epochal.txn.records import NOBODY, GenerationStarted, Prepared, Seal, encode, staged_to_json
from epochal.txn.view import View, described_as_open, fold, handles, target_of

log = logging.getLogger("epochal")

Rows = TypeVar("Rows")
RETAIN = 20
TRIES = 100  # of a start that others outrun
JOURNAL_ADVICE = "Correct checkpointLocation, or EpochWriter's journal=, or let this user read and write there"
TARGET_ADVICE = "Correct the sink's path, or let this user write there"


class Ran(Enum):
    """What became of a batch."""

    STAGED = "staged"
    SKIPPED = "skipped"  # it was written before; the caller must still execute the frame


class Coordinator(Generic[Rows]):
    """Drives the participants of one query through its epochs."""

    def __init__(
        self,
        *,
        journals: Callable[[int], Journal],
        checkpoint: Checkpoint,
        participants: Sequence[Participant[Rows]],
        eager: bool = False,
        choices: Choices | None = None,
        retain: int = RETAIN,
        version: str = "",
        names: Callable[[], str] = new_start,
    ) -> None:
        self._journals = journals
        self._checkpoint = checkpoint
        self._participants: Mapping[str, Participant[Rows]] = {p.name: p for p in participants}
        self._eager = eager
        self._choices = choices or Choices()
        self._retain = retain
        self._version = version
        self._names = names  # of starts
        with reaching("the journal", JOURNAL_ADVICE):
            self._incarnation, self._journal = current_journal(journals)
        self._query = checkpoint.query_id()
        self._memories: Mapping[str, Memory] = {}
        self._adopted: Mapping[str, int] = {}
        self._replaces: Mapping[str, tuple[str, ...]] = {}
        self._started: GenerationStarted | None = None
        self._before: View = fold(())  # what the journal said when it was claimed
        self.generation = 0
        self.epoch = NO_EPOCH

    @property
    def lineage(self) -> str:
        return lineage_of(self._query, self._incarnation)

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def eager(self) -> bool:
        return self._eager

    def begin(self) -> None:
        """Check the lineage, claim a generation and clear what dead generations left."""
        self._check_last()
        for _ in range(TRIES):
            if self._claim() and self._claim_targets():
                break
            # Another driver was faster, or the stream goes on in a new journal: look at everything again.
        else:
            raise FencedOut(f"others have started on the same targets {TRIES} times meanwhile; this driver stops")
        self._journal.sweep()
        built_on = rolls.seal_older(self._journal, self._before, by=self.generation)
        for name in rolls.forgotten(built_on, self._participants):
            log.warning("sink %r has parts open and is not in this writer: publish them by `epochal roll`", name)
        self._warn_of_changes()
        self.clear()
        self._close_earlier_incarnations()
        self._clear_earlier_incarnations()
        log.info("generation started", extra={"lineage": self.lineage, "generation": self.generation})

    def _warn_of_changes(self) -> None:
        """Since the start before: both are allowed, and both leave a target without what comes."""
        latest = self._before.latest
        if latest is None:
            return
        for name in latest.sinks.keys() - self._participants.keys():
            log.warning(
                "sink %r of the start before is not in this writer: it misses what is written from now on", name
            )
        for name, participant in self._participants.items():
            before, now = self._before.target(name, latest.generation), target_of(participant.describe())
            if before not in (None, now):
                log.warning("sink %r writes to %s from now on: what was written stays in %s", name, now, before)

    def run(self, epoch: int, rows: Rows) -> Ran:
        """Stage an epoch and record PREPARED (rule 1). All epochs before it must be settled or held."""
        self.epoch = epoch
        try:
            view = self._journal.read()
            offsets = self._checkpoint.offsets(epoch)
        except OSError as fault:
            raise StoreAway(str(fault)) from fault  # nothing is staged yet: this can be tried again
        self.check_fence(view)
        if offsets is None:
            raise Refused(f"epoch {epoch}: offsets/{epoch} is not in the checkpoint; is another program cleaning it?")
        if view.is_decided(epoch):
            self._check_replay(view, epoch, offsets)
            return Ran.SKIPPED
        if self.generation in view.prepared(epoch):
            # The batch has come twice to one start; staging it again would touch what may win.
            self._release(epoch, offsets)
            return Ran.SKIPPED
        attempt = Attempt(self.lineage, epoch, self.generation, start=view.start_of(self.generation))
        rolls.recall(view, self._participants, epoch)
        self._tell_watermark(epoch)
        rolled = sum(1 for roll in view.rolled() if roll.after == epoch - 1)
        held = {name: view.given(name, self.generation, before=epoch, only_done=True) for name in self._participants}
        staged = self._stage(attempt, held, rows, offsets)
        parts: dict[str, Json] = {name: staged_to_json(part) for name, part in staged.items()}
        record = Prepared(epoch, self.generation, offsets, parts, self._journal.now(), rolled)
        if not self._journal.prepare(record):
            if isinstance(self._journal.attempt(epoch, self.generation), Seal):
                # Else it is a namesake's, of a journal that replaced ours.
                rolls.drop(self._participants, attempt, staged)
            raise self._fenced("its attempt was sealed")
        self._release(epoch, offsets)
        self._remove_superseded(epoch, offsets)
        return Ran.STAGED if staged or not self._participants else Ran.SKIPPED

    def _release(self, epoch: int, offsets: str) -> None:
        """Let Spark write commits/N, if nobody has taken over, in the journal or in a store; decide, if eager."""
        holders: dict[str, Claim | None] = {}
        try:
            for name, participant in self._participants.items():
                holders[name] = participant.holder(self.lineage)
            view = self._journal.read()
        except OSError as fault:
            raise StoreAway(str(fault)) from fault  # what is staged and recorded stays: this can be tried again
        self.check_fence(view)
        for name, holder in holders.items():
            self._check_holder(view, name, holder)
        if not self._eager:
            return
        self._journal.decide(epoch, self.generation, durable=True)
        # Another generation may have been first; Spark may only go on with the offsets that won.
        view = self._journal.read()
        self.check_fence(view)  # before asking: a generation that slept may find the winner folded away
        self._check_replay(view, epoch, offsets)

    def _check_bound(self, journal: Journal, lineage: str, name: str, participant: Participant[Rows]) -> None:
        """Stop if a target is not this journal's any more."""
        holder = participant.holder(lineage)
        if not (self.generation and lineage == self.lineage):
            # What an earlier incarnation has decided is finished, though another stream may have taken its place.
            if (why := copied(holder, journal.read(), lineage, journal.place)) is not None:
                raise _two_journals(name, why)
        # The view that was read last will nearly always do; else a newer start of our own has claimed it since.
        elif holder is None or displaced(holder, journal.view, lineage, journal.place) is not None:
            self._check_holder(journal.read(), name, holder)

    def _check_holder(self, view: View, name: str, holder: Claim | None) -> None:
        if holder is None:
            raise Rewound(
                f"sink {name!r}: its target does not know this stream any more: it was emptied, moved or replaced "
                "while the query ran. Nothing more was written. Put it back and start the query again"
            )
        why = displaced(holder, view, self.lineage, self._journal.place)
        if why is not None:
            raise _two_journals(name, why)

    def _remove_superseded(self, epoch: int, offsets: str) -> None:
        """Remove what older generations have prepared from the same offsets: a loop of crashes must not fill a disk.

        Whoever decides has seen commits/N and reads the journal after that. While there is no commits/N, all who will
        decide find our PREPARED, and choose it or a newer one. (With `eager` an older driver may decide without it.)
        """
        view = self._journal.view
        older = [g for g, r in view.prepared(epoch).items() if g < self.generation and r.offsets == offsets]
        if self._eager or not older or self._checkpoint.committed() >= epoch:
            return
        for generation in sorted(older):
            attempt = Attempt(self.lineage, epoch, generation, start=view.start_of(generation))
            for name, participant in self._participants.items():
                try:
                    remove(participant, attempt, None)
                except OSError as fault:
                    log.warning("staged data left until the epoch is done", extra={"sink": name, "error": repr(fault)})

    def _tell_watermark(self, epoch: int) -> None:
        followers = [p for p in self._participants.values() if isinstance(p, FollowsWatermark)]
        watermark = self._checkpoint.watermark(epoch) if followers else None
        for follower in followers:
            follower.follow(watermark)

    def settle(self) -> None:
        """Bring every decided epoch to done (rules 2 to 4). Raises CommitFailed if a store is away."""
        self._settle(self._journal, self.lineage)

    def _settle(self, journal: Journal, lineage: str) -> None:
        # commits/ first: whatever it shows was PREPARED before, so the journal read after it has the record. And once:
        # what Spark adds meanwhile wakes us again.
        committed = self._checkpoint.committed()
        while True:
            view = journal.read()
            if view.latest is not None and view.latest.closed:
                committed = NO_EPOCH  # of another incarnation, which answers for all that is not decided here
            self._carry_out_rolls(journal, view, lineage)
            step = next_step(view, committed, self._offsets_of_open(view, committed))
            if step is None:
                return
            if isinstance(step, Decide):
                # Rule 3: create-if-absent. Whoever was first, the next read tells.
                journal.decide(step.epoch, step.generation)
            else:
                self._finish(journal, lineage, view, step)

    def is_settled_below(self, epoch: int) -> bool:
        """Whether all earlier epochs were seen done, and no roll is left to be shown. Asks nobody: False if unsure."""
        view = self._journal.view
        return view.done_through >= epoch - 1 and not view.to_carry_out()

    def pending_below(self, epoch: int) -> int:
        """How many earlier epochs are decided and not done."""
        view = self._journal.read()
        return sum(1 for e in held(view, self._checkpoint.committed()) if e < epoch)

    def keeps_open(self) -> bool:
        """Whether a sink keeps something open over epochs: the next is then staged when the last is done."""
        ours = self._started.sinks.values() if self._started is not None else ()
        return self._before.may_roll or any(described_as_open(sink) for sink in ours)

    def due(self) -> float | None:
        """When a sink wants to close something, in seconds of the wall clock."""
        rolls.recall(self._journal.read(), self._participants)
        found = [p.due() for p in self._participants.values() if isinstance(p, KeepsState)]
        return min((at for at in found if at is not None), default=None)

    def roll(self, *, every: bool = False) -> bool:
        """Between two epochs: close what is due, or all that is open. False if there is nothing, or not now.

        A roll changes what the next epoch starts from, so it must not come between an attempt and its end. Our own
        attempts are over; an older generation that had prepared one before we claimed ours is seen here; and whoever
        prepares one later finds itself fenced before Spark can write commits/N.
        """
        view = self._journal.read()
        self.check_fence(view)
        number = view.next_roll(self.generation)
        if number is None:
            raise self._fenced("its rolls were sealed")
        if self._checkpoint.committed() > view.done_through or any(view.prepared(e) for e in view.waiting()):
            return False
        attempt = Attempt(self.lineage, view.done_through, self.generation, number, view.start_of(self.generation))
        try:
            recorded = rolls.close(self._journal, view, self._participants, attempt, every=every)
        except FileExistsError:
            raise self._fenced("its roll was sealed") from None
        view = self._journal.read()
        self._carry_out_rolls(self._journal, view, self.lineage)
        self.check_fence(view)  # one that slept through the purge of its seal has recorded what counts for nothing
        return recorded is not None

    def check_fence(self, view: View) -> None:
        """Stop if a newer generation has started, or the journal was closed (rule 4 of the promise)."""
        if view.generation > self.generation:
            raise self._fenced(f"generation {view.generation} has taken over")
        if view.latest is not None and view.latest.closed:
            raise self._fenced("the stream goes on as a new one")
        if view.latest is None or self._started is None or encode(view.latest) != encode(self._started):
            raise self._fenced("its own start is gone from the journal, which was lost or replaced")

    def clear(self) -> list[Attempt]:
        """At a start: remove what the rules allow of older attempts (rules 5 and 6). Returns what was removed."""
        return clear(
            self._journal,
            self._participants.values(),
            self.lineage,
            newest=self.generation,
            by=self.generation,
            unused=self.generation,
        )

    def check(self) -> None:
        """Refuse what `begin` would refuse, before Spark plans an epoch. Writes nothing, and binds nobody."""
        self._check_last()
        self._incarnation, self._journal = current_journal(self._journals)
        evidence = self._evidence(self._journal.read())
        latest = evidence.after.latest
        if latest is None or not latest.closed:  # else a new journal is being made, which `begin` looks at
            judge(evidence, self._choices)

    def _claim(self) -> bool:
        """Judge what is there and claim the generation after it; False if that has changed meanwhile."""
        self._incarnation, self._journal = current_journal(self._journals)
        before = self._journal.read()
        if self._incarnation > 1 and before.latest is None:
            self._leave(self._incarnation - 1)
        evidence = self._evidence(before)
        latest = evidence.after.latest
        if latest is not None and latest.closed:
            return False
        verdict = judge(evidence, self._choices)
        number = evidence.after.generation + 1
        if verdict.reincarnate:
            self._reincarnate(number, verdict.base)
            return False
        started = self._start(number, verdict.base, verdict.adopted, verdict.missing)
        # The number proves that nobody has started since `after`: the verdict still holds.
        with reaching("the journal", JOURNAL_ADVICE):
            claimed = self._journal.claim(started)
        if not claimed:
            return False
        self._started, self._before = started, evidence.after
        self._adopted, self._replaces = verdict.adopted, verdict.replaces
        self.generation = number
        return True

    def _evidence(self, before: View) -> Evidence:
        """All that a start is judged by."""
        if before.latest is not None and before.latest.query != self._query:
            raise Refused(
                f"{self._journal.path} is the journal of query {before.latest.query}, the checkpoint belongs to "
                f"{self._query}. Nothing was written. Give each checkpoint a journal of its own"
            )
        self._memories = self._remembered()
        _check_targets(self._memories)
        return Evidence(
            lineage=self.lineage,
            before=before,
            closed_at=self._closed_at(),
            memories=self._memories,
            committed=self._checkpoint.committed(),
            after=self._journal.read(),
            eager=self._eager,
            journal=self._journal.place,
            sample=lambda: sample_of_offsets(self._checkpoint),
        )

    def _remembered(self) -> dict[str, Memory]:
        """What each store remembers."""
        memories = {}
        for name, participant in self._participants.items():
            with reaching(f"sink {name!r}: its target", TARGET_ADVICE):
                memories[name] = participant.open(self.lineage)
        return memories

    def _check_last(self) -> None:
        """The last epoch that is done must be the one that this checkpoint has committed under its number."""
        view = self._journal.read()
        epoch = view.done_through
        winner = view.winner(epoch)
        if winner is None or epoch > self._checkpoint.committed():
            return
        now = self._checkpoint.offsets(epoch)
        if now is not None and compare(winner.offsets, now) is Match.DIFFERENT:
            raise OffsetsChanged(
                f"epoch {epoch} was written from other source offsets, or other files, than this checkpoint has "
                "committed: two copies of a checkpoint have used one journal. Nothing was written. Go on with the "
                "checkpoint that wrote it"
            )

    def _claim_targets(self) -> bool:
        """Bind every target to this start; False if one was claimed by another since it was judged."""
        assert self._started is not None  # by `_claim`
        for name, participant in self._participants.items():
            claim = claim_of(self._started, self._journal.place, name, self._replaces.get(name, ()))
            failpoints.hit("before-enrol")
            with reaching(f"sink {name!r}: its target", TARGET_ADVICE):
                claimed = participant.claim(claim, version=self._memories[name].version)
            failpoints.hit("after-enrol")
            if claimed and self._is_outrun(name, participant, claim):
                participant.withdraw(claim)
                return False
            if not claimed:
                self.check_fence(self._journal.read())  # a newer start of ours has the target now
                self._check_own_targets(name, participant)
                return False
        return True

    def _is_outrun(self, name: str, participant: Participant[Rows], claim: Claim) -> bool:
        """Whether a stream whose place was taken has written since it was judged."""
        if not claim.replaces:
            return False
        others = participant.open(self.lineage).others
        return any(others.get(lineage) != self._memories[name].others.get(lineage) for lineage in claim.replaces)

    def _check_own_targets(self, name: str, participant: Participant[Rows]) -> None:
        """A target that this very start has claimed for another sink is the same one, spelled otherwise."""
        holder = participant.holder(self.lineage)
        assert self._started is not None  # by `_claim`
        if holder is not None and (holder.generation, holder.start) == (self.generation, self._started.start):
            raise same_target(holder.sink, name, self._memories[name].target)

    def _start(
        self, number: int, base: int, adopted: Mapping[str, int], missing: Mapping[str, int] | None = None
    ) -> GenerationStarted:
        return GenerationStarted(
            generation=number,
            query=self._query,
            base=base,
            start=self._names(),
            missing=dict(missing or {}),
            incarnation=self._incarnation,
            commit="eager" if self._eager else "checkpoint",
            sinks={name: p.describe() for name, p in self._participants.items()},
            adopted=dict(adopted),
            driver=self._driver(),
            at=self._journal.now(),
        )

    def _driver(self) -> dict[str, Json]:
        return {"host": platform.node(), "pid": os.getpid(), "epochal": self._version}

    def _closed_at(self) -> int | None:
        """The first epoch that the incarnation before this one left open."""
        if self._incarnation == 1:
            return None
        return lowest_open(self._journals(self._incarnation - 1).read())

    def _reincarnate(self, number: int, base: int) -> None:
        """Close this journal, which fences whoever uses it. The next one is another incarnation's.

        What is in doubt stays: its driver may still write commits/N, and the next incarnation
        answers for every epoch from there on, so that this cannot pass unseen.
        """
        foreign = self._is_held_elsewhere(self._journal, self.lineage)
        if not foreign:
            self.settle()
        view = self._journal.read()
        if stays := rolls.forgotten(view, self._participants):
            raise Refused(
                f"sink {stays[0]!r} has parts open, which nobody could publish once this stream goes on as a new one, "
                "because this writer does not have the sink. Nothing was written. Publish them first: `epochal roll "
                "CHECKPOINT`"
            )
        rolls.recall(view, self._participants)  # which refuses parts that are open elsewhere
        if self._journal.claim(replace(self._start(number, base, {}), closed=True)) and not foreign:
            clear(self._journal, self._participants.values(), self.lineage, newest=number, by=number)

    def _is_held_elsewhere(self, journal: Journal, lineage: str) -> bool:
        """Whether another copy of a journal has a target: what it has staged and opened is not ours to touch."""
        holders = [participant.holder(lineage) for participant in self._participants.values()]
        view = journal.read()
        return any(copied(holder, view, lineage, journal.place) is not None for holder in holders)

    def _leave(self, incarnation: int) -> None:
        """Before the next incarnation has its first generation: what the closed one has in doubt stays undecided.

        Otherwise its driver, which may not know yet, would find commits/N of the next one and show the epoch twice.
        What somebody has decided before is finished: the next incarnation begins after it.
        """
        journal = self._journals(incarnation)
        view = journal.read()
        for epoch in view.waiting():
            if epoch not in view.decided:
                journal.decide(epoch, NOBODY, durable=True)
        lineage = lineage_of(self._query, incarnation)
        if not self._is_held_elsewhere(journal, lineage):
            self._settle(journal, lineage)

    def _clear_earlier_incarnations(self) -> None:
        """Remove what earlier incarnations left of epochs that this one has finished."""
        done = self._journal.read().done_through
        for incarnation in range(1, self._incarnation):
            lineage = lineage_of(self._query, incarnation)
            if self._is_held_elsewhere(self._journals(incarnation), lineage):
                continue
            for participant in self._participants.values():
                for attempt in participant.leftovers(lineage):
                    if attempt.epoch <= done:
                        remove(participant, attempt, None)

    def _carry_out_rolls(self, journal: Journal, view: View, lineage: str) -> None:
        """Show what was closed between epochs, before any epoch that came after it."""
        for record in view.to_carry_out():
            if record.after > view.done_through:
                continue  # a power cut has taken DONE of the epoch before it, which comes first
            start = view.start_of(record.generation)
            attempt = Attempt(lineage, record.after, record.generation, record.number, start)
            for sink, handle in handles(record).items():
                after = view.given(sink, record.generation, before=record.after + 1)
                self._commit(journal, sink, replace(attempt, after=after), handle)
            journal.finish_roll(record)

    def _close_earlier_incarnations(self) -> None:
        """Show what earlier incarnations left open. Their journals are closed: nothing of theirs can be decided.

        Each start that tries it takes a generation of its own there, because two may try it at once.
        """
        for incarnation in range(1, self._incarnation):
            journal, lineage = self._journals(incarnation), lineage_of(self._query, incarnation)
            while not self._is_held_elsewhere(journal, lineage):
                view = journal.read()
                self._carry_out_rolls(journal, view, lineage)
                open_here = self._keepers(view)
                if not open_here or view.latest is None:
                    break
                number = view.generation + 1
                sinks = {**view.latest.sinks, **{name: p.describe() for name, p in open_here.items()}}
                started = replace(
                    view.latest,
                    generation=number,
                    start=self._names(),
                    sinks=sinks,
                    driver=self._driver(),
                    at=journal.now(),
                )
                if not journal.claim(started):
                    continue
                view = rolls.seal_older(journal, view, by=number)
                try:
                    attempt = Attempt(lineage, view.done_through, number, 1, started.start)
                    if not rolls.close(journal, view, open_here, attempt, every=True):
                        break
                except FileExistsError:
                    log.debug("another driver closes what incarnation %s left open", incarnation)

    def _keepers(self, view: View) -> dict[str, Participant[Rows]]:
        """The sinks of ours that have something open."""
        return {name: p for name, p in self._participants.items() if isinstance(p, KeepsState) and view.kept(name)}

    def _stage(self, attempt: Attempt, held: Mapping[str, int | None], rows: Rows, offsets: str) -> dict[str, Staged]:
        staged: dict[str, Staged] = {}
        try:
            for name, participant in self._participants.items():
                if self._was_adopted(name, attempt.epoch, offsets):
                    continue
                failpoints.hit("before-stage")
                staged[name] = participant.stage(replace(attempt, after=held[name]), rows, offsets=offsets)
                failpoints.hit("after-stage")
            if len({part.given for part in staged.values()}) > 1:
                counts = ", ".join(f"{name} {part.given}" for name, part in staged.items())
                raise BadRows(
                    f"epoch {attempt.epoch}: the sinks got different numbers of rows ({counts}). The frame gives other "
                    "rows each time it runs (rand(), a changing table): make it deterministic or write it to one sink"
                )
        except BaseException:
            rolls.drop(self._participants, attempt, staged)
            raise
        return staged

    def _finish(self, journal: Journal, lineage: str, view: View, step: Finish) -> None:
        for name, handle in step.handles.items():
            after = view.given(name, step.generation, before=step.epoch)
            start = view.start_of(step.generation)
            attempt = Attempt(lineage, step.epoch, step.generation, start=start, after=after)
            self._commit(journal, name, attempt, handle)
        # Rule 5: only now is it certain that no other attempt can become the epoch.
        for generation, lost in step.losers:
            for name, participant in self._participants.items():
                attempt = Attempt(lineage, step.epoch, generation, start=view.start_of(generation))
                self._abort(participant, attempt, lost.get(name))
        journal.finish(step.epoch, step.generation)
        if self._retain:
            journal.compact(view, retain=self._retain)

    def _commit(self, journal: Journal, name: str, attempt: Attempt, handle: Handle) -> None:
        participant = self._participants.get(name)
        if participant is None:
            raise Refused(
                f"epoch {attempt.epoch} is decided and waits for sink {name!r}, which this writer does not have. "
                "Add it again, or finish the epoch with `epochal recover CHECKPOINT`"
            )
        failpoints.hit("before-commit")
        try:
            self._check_bound(journal, attempt.lineage, name, participant)
            outcome = participant.commit(attempt, handle)
        except EpochalError:
            raise
        except Exception as fault:
            raise CommitFailed(name, attempt.epoch, fault) from fault
        failpoints.hit("after-commit")
        log.info("epoch committed", extra={"epoch": attempt.epoch, "sink": name, "outcome": outcome.value})

    def _abort(self, participant: Participant[Rows], attempt: Attempt, handle: Handle | None) -> None:
        try:
            remove(participant, attempt, handle)
        except EpochalError:
            raise
        except Exception as fault:
            raise CommitFailed(participant.name, attempt.epoch, fault) from fault

    def _offsets_of_open(self, view: View, committed: int) -> str | None:
        epoch = lowest_open(view)
        wanted = epoch <= committed and epoch not in view.decided
        return self._checkpoint.offsets(epoch) if wanted else None

    def _was_adopted(self, name: str, epoch: int, offsets: str) -> bool:
        """Whether the sink holds this epoch from before the checkpoint was rewound."""
        if epoch > self._adopted.get(name, NO_EPOCH):
            return False
        recorded = self._memories[name].recent.get(epoch)
        match = compare(recorded, offsets) if recorded is not None else Match.UNPROVEN
        if match is not Match.SAME:
            told = (
                "with other source offsets, or from other files, than it comes back with; writing it would double some "
                "rows and skipping it would lose some"
                if match is Match.DIFFERENT
                else "and nothing proves that it comes back with the same rows; skipping it might lose some"
            )
            raise OffsetsChanged(
                f"sink {name!r} holds epoch {epoch} {told}. Nothing was written. "
                + ("Restore" if self._memories[name].exclusive else "Start with new= instead of adopt=, or restore")
                + " the checkpoint that wrote it"
            )
        return True

    def _check_replay(self, view: View, epoch: int, offsets: str) -> None:
        winner = view.winner(epoch)
        match = compare(winner.offsets, offsets) if winner is not None else Match.UNPROVEN
        if winner is not None and match is Match.UNPROVEN and is_old(winner.offsets):
            log.warning("epoch skipped, an older epochal wrote it and did not record which files it read: %s", epoch)
            return
        if match is not Match.SAME:
            told = {
                Match.DIFFERENT: "with other source offsets or from other files",
                Match.UNPROVEN: "long ago" if winner is None else "and nothing proves that it comes back the same",
            }[match]
            raise OffsetsChanged(
                f"epoch {epoch} was written before, {told}; the checkpoint was changed by hand or restored from a "
                "copy. Nothing was written. Put back the checkpoint that belongs to the journal, or use a new "
                "checkpoint and choose what the sinks should do"
            )

    def _fenced(self, why: str) -> FencedOut:
        return FencedOut(
            f"epoch {self.epoch}: generation {self.generation} was superseded: {why}; another driver runs this query, "
            "so this one stops"
        )


def _two_journals(sink: str, why: str) -> TwoJournals:
    return TwoJournals(f"sink {sink!r}: {why}. Only one of them may write, so this one stops")


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


def current_journal(journals: Callable[[int], Journal]) -> tuple[int, Journal]:
    """The incarnation that is not closed, and its journal."""
    incarnation = 1
    while True:
        journal = journals(incarnation)
        latest = journal.read().latest
        if latest is None or not latest.closed:
            return incarnation, journal
        incarnation += 1


def remove(participant: Participant[Rows], attempt: Attempt, handle: Handle | None) -> None:
    """Abort one attempt in one sink."""
    failpoints.hit("before-abort")
    participant.abort(attempt, handle)
    failpoints.hit("after-abort")


def clear(
    journal: Journal,
    participants: Iterable[Participant[Rows]],
    lineage: str,
    *,
    newest: int,
    by: int,
    unused: int = 0,
) -> list[Attempt]:
    """Remove the staged data that the rules allow; seal before delete.

    `unused` is a generation that has staged nothing yet: what bears its number, without the name of a start, was
    staged by an older version whose journal was lost.
    """
    removed = []
    for participant in participants:
        holder = participant.holder(lineage)
        if (why := stranger(holder, journal.read(), lineage, journal.place)) is not None:
            log.warning("staged data left alone, sink %r is not this journal's: %s", participant.name, why)
            continue
        for attempt in participant.leftovers(lineage):
            if attempt.generation == unused and not attempt.start:
                remove(participant, attempt, None)
                removed.append(attempt)
                continue
            verdict = sweep(journal.read(), attempt, newest=newest)
            if verdict is Sweep.SEAL_THEN_REMOVE:
                if attempt.roll:
                    journal.seal_rolls(attempt.generation, by=by)
                else:
                    journal.seal(attempt.epoch, attempt.generation, by=by)
                # Whoever was first has the name: look again instead of trusting the answer.
                verdict = sweep(journal.read(), attempt, newest=newest)
            if verdict is Sweep.REMOVE:
                remove(participant, attempt, None)
                removed.append(attempt)
    return removed
