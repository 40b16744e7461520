"""One batch: every participant stages the epoch, then the journal records PREPARED (rule 1 of ``docs/protocol.md``).

Nothing is visible yet. Spark writes commits/N when the batch has returned; `settlement` does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar

from epochal.txn import failpoints, rolls
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.claims import check_holder
from epochal.txn.errors import BadRows, FencedOut, OffsetsChanged, Refused, StoreAway
from epochal.txn.model import NO_EPOCH, Attempt, Batch, Claim, Staged
from epochal.txn.offsets import Match, compare, is_old
from epochal.txn.participant import Participant
from epochal.txn.records import Prepared, Seal
from epochal.txn.reporting import SILENT, Reporter
from epochal.txn.settlement import remove
from epochal.txn.start import STOPS, Generation, superseded
from epochal.txn.view import View

log = logging.getLogger("epochal")

Rows = TypeVar("Rows")


class BatchOutcome(Enum):
    """What became of a batch."""

    STAGED = "staged"
    SKIPPED = "skipped"  # the epoch was written before; the caller must still execute the frame


@dataclass(frozen=True)
class Batches(Generic[Rows]):
    """The batches of one generation."""

    generation: Generation
    checkpoint: Checkpoint
    participants: Mapping[str, Participant[Rows]]
    eager: bool
    scratch: str
    check_fence: Callable[[View, int], None]
    recorded: set[int]  # the epoch for which this driver has tried to record PREPARED last
    reporter: Reporter = SILENT

    def __repr__(self) -> str:
        return f"batches of generation {self.generation.number}"

    def run(self, epoch: int, rows: Rows) -> BatchOutcome:
        """Stage an epoch and record PREPARED. All epochs before it must be done, or decided and pending."""
        journal, number = self.generation.journal, self.generation.number
        try:
            view = journal.read()
            offsets = self.checkpoint.offsets(epoch)
        except OSError as fault:
            raise StoreAway(str(fault)) from fault  # nothing is staged yet, so it can be retried
        self.check_fence(view, epoch)
        if offsets is None:
            raise Refused(f"epoch {epoch}: offsets/{epoch} is not in the checkpoint; is another program cleaning it?")
        if view.is_decided(epoch):
            _check_replay(view, epoch, offsets)
            self.reporter.skipped(self.generation.lineage, epoch, number)
            return BatchOutcome.SKIPPED
        if number in view.prepared(epoch):
            if not self._is_own(epoch):
                # A driver of a journal that was lost has the same number, and recorded it here.
                raise self._fenced(epoch, f"another driver with the same number has recorded the epoch. {STOPS}")
            # Spark has called this start twice with the epoch; staging it again would change what may win.
            self._release(epoch, offsets)
            return BatchOutcome.SKIPPED
        start = view.start_of(number)
        attempt = Attempt(self.generation.lineage, epoch, number, start=start, scratch=self.scratch)
        rolled = view.rolls_after(epoch - 1)
        self.reporter.begun(attempt)
        staged = self._stage(attempt, self._batches(view, attempt, rows, offsets))
        sources = self.checkpoint.sources(epoch)
        record = Prepared(epoch, number, offsets, staged, journal.now(), rolled, sources)
        self.recorded.clear()
        self.recorded.add(epoch)  # before: its answer may be lost, and the batch comes again then
        if not journal.prepare(record):
            if isinstance(journal.attempt(epoch, number), Seal):
                # Without a seal, the record is of another driver with our number, in a journal that replaced ours.
                rolls.drop(self.participants, attempt, staged, self.reporter)
            raise self._fenced(epoch, self._why_sealed())
        self._release(epoch, offsets)
        self._remove_superseded(epoch, offsets)
        if staged or not self.participants:
            return BatchOutcome.STAGED
        self.reporter.skipped(self.generation.lineage, epoch, number)
        return BatchOutcome.SKIPPED

    def _batches(self, view: View, attempt: Attempt, rows: Rows, offsets: str) -> dict[str, Batch[Rows]]:
        """The batch of each participant; without those whose store already holds the epoch."""
        watermark = self.checkpoint.watermark(attempt.epoch)
        prepared = [record for _, record in sorted(view.prepared(attempt.epoch).items())]
        batches = {}
        for name in self.participants:
            if self._was_adopted(name, attempt.epoch, offsets):
                continue
            after = view.previous_epoch(name, attempt.generation, before=attempt.epoch, only_done=True)
            batches[name] = Batch(
                attempt=replace(attempt, after=after),
                rows=rows,
                offsets=offsets,
                state=view.sink_state(name),
                earlier=tuple(record.sinks[name].handle for record in prepared if name in record.sinks),
                watermark=watermark,
            )
        return batches

    def _stage(self, attempt: Attempt, batches: Mapping[str, Batch[Rows]]) -> dict[str, Staged]:
        staged: dict[str, Staged] = {}
        try:
            for name, batch in batches.items():
                failpoints.hit("before-stage")
                self.reporter.step_begins()
                staged[name] = self._staged_by(name, batch)
                failpoints.hit("after-stage")
                self.reporter.staged(attempt, name, staged[name])
            if len({part.rows_seen for part in staged.values()}) > 1:
                counts = ", ".join(f"{name} {part.rows_seen}" for name, part in staged.items())
                raise BadRows(
                    f"epoch {attempt.epoch}: the sinks got different numbers of rows ({counts}). The frame "
                    "returns other rows each time it runs (rand(), a changing table): make it deterministic, or write "
                    "it to one sink"
                )
        except BaseException:
            rolls.drop(self.participants, attempt, staged, self.reporter)
            raise
        return staged

    def _staged_by(self, name: str, batch: Batch[Rows]) -> Staged:
        try:
            return self.participants[name].stage(batch)
        except StoreAway as away:
            away.sink = name
            raise

    def _release(self, epoch: int, offsets: str) -> None:
        """Check that no other driver has taken over, in the journal or in a store, before Spark writes commits/N.

        If eager, also decide the epoch.
        """
        journal = self.generation.journal
        holders: dict[str, Claim | None] = {}
        try:
            for name, participant in self.participants.items():
                holders[name] = participant.holder(self.generation.lineage)
            view = journal.read()
        except OSError as fault:
            away = StoreAway(str(fault))
            away.sink = next((name for name in self.participants if name not in holders), "")
            raise away from fault  # staged data and PREPARED remain, so it can be retried
        self.check_fence(view, epoch)
        for name, holder in holders.items():
            check_holder(name, holder, view, self.generation.lineage, journal.place)
        self.reporter.prepared(self.generation.lineage, epoch, self.generation.number, view)
        if not self.eager:
            return
        journal.decide(epoch, self.generation.number, durable=True)
        # Another generation may have decided first; Spark may only continue with the offsets that won.
        view = journal.read()
        self.check_fence(view, epoch)  # first: for a stalled generation the winner may be folded away
        _check_replay(view, epoch, offsets)
        self.reporter.decided(self.generation.lineage, epoch, view.decided.get(epoch, self.generation.number), None)

    def _remove_superseded(self, epoch: int, offsets: str) -> None:
        """Remove what older generations have prepared from the same offsets: a loop of crashes must not fill the disk.

        A process that decides has seen commits/N and reads the journal after that. As long as there is no commits/N,
        all of them will see our PREPARED, and choose it or a newer one. (With `eager` an older driver may not.)
        """
        view, number = self.generation.journal.view, self.generation.number
        older = [g for g, r in view.prepared(epoch).items() if g < number and r.offsets == offsets]
        if self.eager or not older or self.checkpoint.committed() >= epoch:
            return
        for generation in sorted(older):
            start = view.start_of(generation)
            attempt = Attempt(self.generation.lineage, epoch, generation, start=start, scratch=self.scratch)
            for name, participant in self.participants.items():
                try:
                    remove(participant, attempt, None)
                    self.reporter.aborted(attempt, name)
                except OSError as fault:
                    log.warning("staged data kept until the epoch is done", extra={"sink": name, "error": repr(fault)})

    def _was_adopted(self, name: str, epoch: int, offsets: str) -> bool:
        """Whether the sink already holds this epoch, written before the checkpoint was rewound."""
        if epoch > self.generation.adopted.get(name, NO_EPOCH):
            return False
        memory = self.generation.memories[name]
        recorded = memory.recent.get(epoch)
        match = compare(recorded, offsets) if recorded is not None else Match.UNPROVEN
        if match is not Match.SAME:
            fault = (
                "from other source offsets, or from other files, than it is replayed from; writing it would double "
                "some rows and skipping it would lose some"
                if match is Match.DIFFERENT
                else "and nothing proves that it is replayed with the same rows; skipping it might lose some"
            )
            raise OffsetsChanged(
                f"sink {name!r} holds epoch {epoch} {fault}. Nothing was written. "
                + ("Restore" if memory.exclusive else "Start with new= instead of adopt=, or restore")
                + " the checkpoint that wrote it"
            )
        return True

    def _is_own(self, epoch: int) -> bool:
        """Whether a PREPARED under this generation's number is this driver's."""
        return epoch in self.recorded

    def _why_sealed(self) -> str:
        """With the driver that has taken over, if the journal can be read."""
        try:
            newer = self.generation.why_superseded(self.generation.journal.read())
        except OSError:
            newer = None
        return f"its attempt was sealed. {STOPS if newer is None else newer[:1].upper() + newer[1:]}"

    def _fenced(self, epoch: int, why: str) -> FencedOut:
        return superseded(self.generation.number, why, epoch)


def _check_replay(view: View, epoch: int, offsets: str) -> None:
    winner = view.winner(epoch)
    match = compare(winner.offsets, offsets) if winner is not None else Match.UNPROVEN
    if winner is not None and match is Match.UNPROVEN and is_old(winner.offsets):
        log.warning(
            "epoch %s was skipped: an older epochal wrote it and did not record which files it read",
            epoch,
            extra={"epoch": epoch},
        )
        return
    if match is not Match.SAME:
        how = {
            Match.DIFFERENT: "from other source offsets or other files",
            Match.UNPROVEN: "long ago"
            if winner is None
            else "and nothing proves that it is replayed with the same rows",
        }[match]
        raise OffsetsChanged(
            f"epoch {epoch} was written before, {how}; the checkpoint was changed by hand or restored from a "
            "copy. Nothing was written. Put back the checkpoint that belongs to the journal, or use a new "
            "checkpoint and choose what the sinks should do"
        )
