"""One batch: every participant stages the epoch, then the journal records PREPARED (rule 1 of ``docs/protocol.md``).

Nothing of it can be seen yet. Spark writes commits/N once the batch has returned; `settlement` does the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from epochal.txn import failpoints, rolls
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.errors import BadRows, FencedOut, OffsetsChanged, Refused, StoreAway
from epochal.txn.holding import check_holder
from epochal.txn.model import NO_EPOCH, Attempt, Batch, Claim, Staged
from epochal.txn.offsets import Match, compare, is_old
from epochal.txn.participant import Participant
from epochal.txn.records import Prepared, Seal
from epochal.txn.settlement import remove
from epochal.txn.start import Generation, superseded
from epochal.txn.view import View

log = logging.getLogger("epochal")

Rows = TypeVar("Rows")


class BatchOutcome(Enum):
    """What became of a batch."""

    STAGED = "staged"
    SKIPPED = "skipped"  # it was written before; the caller must still execute the frame


@dataclass(frozen=True)
class Batches(Generic[Rows]):
    """The batches of one generation."""

    generation: Generation
    checkpoint: Checkpoint
    participants: Mapping[str, Participant[Rows]]
    eager: bool
    scratch: str
    check_fence: Callable[[View, int], None]

    def __repr__(self) -> str:
        return f"batches of generation {self.generation.number}"

    def run(self, epoch: int, rows: Rows) -> BatchOutcome:
        """Stage an epoch and record PREPARED. All epochs before it must be settled or held."""
        journal, number = self.generation.journal, self.generation.number
        try:
            view = journal.read()
            offsets = self.checkpoint.offsets(epoch)
        except OSError as fault:
            raise StoreAway(str(fault)) from fault  # nothing is staged yet: this can be tried again
        self.check_fence(view, epoch)
        if offsets is None:
            raise Refused(f"epoch {epoch}: offsets/{epoch} is not in the checkpoint; is another program cleaning it?")
        if view.is_decided(epoch):
            _check_replay(view, epoch, offsets)
            return BatchOutcome.SKIPPED
        if number in view.prepared(epoch):
            # The batch has come twice to one start; staging it again would touch what may win.
            self._release(epoch, offsets)
            return BatchOutcome.SKIPPED
        start = view.start_of(number)
        attempt = Attempt(self.generation.lineage, epoch, number, start=start, scratch=self.scratch)
        rolled = sum(1 for roll in view.rolled() if roll.after == epoch - 1)
        staged = self._stage(attempt, self._batches(view, attempt, rows, offsets))
        record = Prepared(epoch, number, offsets, staged, journal.now(), rolled)
        if not journal.prepare(record):
            if isinstance(journal.attempt(epoch, number), Seal):
                # Else it is a namesake's, of a journal that replaced ours.
                rolls.drop(self.participants, attempt, staged)
            raise self._fenced(epoch, "its attempt was sealed")
        self._release(epoch, offsets)
        self._remove_superseded(epoch, offsets)
        return BatchOutcome.STAGED if staged or not self.participants else BatchOutcome.SKIPPED

    def _batches(self, view: View, attempt: Attempt, rows: Rows, offsets: str) -> dict[str, Batch[Rows]]:
        """What each participant is given; those that hold the epoch already are left out."""
        watermark = self.checkpoint.watermark(attempt.epoch)
        prepared = [record for _, record in sorted(view.prepared(attempt.epoch).items())]
        batches = {}
        for name in self.participants:
            if self._was_adopted(name, attempt.epoch, offsets):
                continue
            after = view.given(name, attempt.generation, before=attempt.epoch, only_done=True)
            batches[name] = Batch(
                attempt=Attempt(
                    attempt.lineage,
                    attempt.epoch,
                    attempt.generation,
                    start=attempt.start,
                    after=after,
                    scratch=self.scratch,
                ),
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
                staged[name] = self.participants[name].stage(batch)
                failpoints.hit("after-stage")
            if len({part.given for part in staged.values()}) > 1:
                counts = ", ".join(f"{name} {part.given}" for name, part in staged.items())
                raise BadRows(
                    f"epoch {attempt.epoch}: the sinks got different numbers of rows ({counts}). The frame gives other "
                    "rows each time it runs (rand(), a changing table): make it deterministic or write it to one sink"
                )
        except BaseException:
            rolls.drop(self.participants, attempt, staged)
            raise
        return staged

    def _release(self, epoch: int, offsets: str) -> None:
        """Let Spark write commits/N, if nobody has taken over, in the journal or in a store; decide, if eager."""
        journal = self.generation.journal
        holders: dict[str, Claim | None] = {}
        try:
            for name, participant in self.participants.items():
                holders[name] = participant.holder(self.generation.lineage)
            view = journal.read()
        except OSError as fault:
            raise StoreAway(str(fault)) from fault  # what is staged and recorded stays: this can be tried again
        self.check_fence(view, epoch)
        for name, holder in holders.items():
            check_holder(name, holder, view, self.generation.lineage, journal.place)
        if not self.eager:
            return
        journal.decide(epoch, self.generation.number, durable=True)
        # Another generation may have been first; Spark may only go on with the offsets that won.
        view = journal.read()
        self.check_fence(view, epoch)  # before asking: a generation that slept may find the winner folded away
        _check_replay(view, epoch, offsets)

    def _remove_superseded(self, epoch: int, offsets: str) -> None:
        """Remove what older generations have prepared from the same offsets: a loop of crashes must not fill a disk.

        Whoever decides has seen commits/N and reads the journal after that. While there is no commits/N, all who will
        decide find our PREPARED, and choose it or a newer one. (With `eager` an older driver may decide without it.)
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
                except OSError as fault:
                    log.warning("staged data left until the epoch is done", extra={"sink": name, "error": repr(fault)})

    def _was_adopted(self, name: str, epoch: int, offsets: str) -> bool:
        """Whether the sink holds this epoch from before the checkpoint was rewound."""
        if epoch > self.generation.adopted.get(name, NO_EPOCH):
            return False
        memory = self.generation.memories[name]
        recorded = memory.recent.get(epoch)
        match = compare(recorded, offsets) if recorded is not None else Match.UNPROVEN
        if match is not Match.SAME:
            fault = (
                "with other source offsets, or from other files, than it comes back with; writing it would double some "
                "rows and skipping it would lose some"
                if match is Match.DIFFERENT
                else "and nothing proves that it comes back with the same rows; skipping it might lose some"
            )
            raise OffsetsChanged(
                f"sink {name!r} holds epoch {epoch} {fault}. Nothing was written. "
                + ("Restore" if memory.exclusive else "Start with new= instead of adopt=, or restore")
                + " the checkpoint that wrote it"
            )
        return True

    def _fenced(self, epoch: int, why: str) -> FencedOut:
        return superseded(self.generation.number, why, epoch)


def _check_replay(view: View, epoch: int, offsets: str) -> None:
    winner = view.winner(epoch)
    match = compare(winner.offsets, offsets) if winner is not None else Match.UNPROVEN
    if winner is not None and match is Match.UNPROVEN and is_old(winner.offsets):
        log.warning("epoch skipped, an older epochal wrote it and did not record which files it read: %s", epoch)
        return
    if match is not Match.SAME:
        how = {
            Match.DIFFERENT: "with other source offsets or from other files",
            Match.UNPROVEN: "long ago" if winner is None else "and nothing proves that it comes back the same",
        }[match]
        raise OffsetsChanged(
            f"epoch {epoch} was written before, {how}; the checkpoint was changed by hand or restored from a "
            "copy. Nothing was written. Put back the checkpoint that belongs to the journal, or use a new "
            "checkpoint and choose what the sinks should do"
        )
