"""What is closed between two epochs, because its time has come or somebody wants to see it.

A roll is recorded under its generation's next number, create-if-absent. A newer generation takes that number as a seal
before it stages anything, so that a driver that slept can close nothing that others have built on. Once recorded, a
roll is carried out by whoever sees it, as often as they like.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from epochal.txn.errors import CommitFailed, EpochalError
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Json, Staged
from epochal.txn.participant import KeepsState, Participant
from epochal.txn.records import GenerationStarted, Roll, staged_to_json
from epochal.txn.view import View, handles

log = logging.getLogger("epochal")


def keeps_open(description: Json) -> bool:
    """Whether a sink, as a generation's record describes it, may roll."""
    return isinstance(description, dict) and bool(description.get("keeps_open"))


def seal_older(journal: Journal, generations: Mapping[int, GenerationStarted], *, by: int) -> None:
    """No older generation may close anything from now on: `by` builds on what is open."""
    for number, record in generations.items():
        if number < by and any(keeps_open(sink) for sink in record.sinks.values()):
            journal.seal_rolls(number, by=by)


def recall(view: View, participants: Mapping[str, Participant[Any]], epoch: int | None = None) -> None:
    """Tell each sink what it keeps, and what older generations have staged for the epoch."""
    older = [handles(record) for _, record in sorted(view.prepared(epoch).items())] if epoch is not None else []
    for name, participant in participants.items():
        if isinstance(participant, KeepsState):
            participant.recall(view.kept(name), [found[name] for found in older if name in found])


def close(
    journal: Journal, participants: Mapping[str, Participant[Any]], attempt: Attempt, *, every: bool
) -> Roll | None:
    """Stage and record one roll; None if there is nothing to close. Raises FileExistsError if it was sealed."""
    recall(journal.read(), participants)
    staged: dict[str, Staged] = {}
    for name, participant in participants.items():
        if isinstance(participant, KeepsState):
            try:
                part = participant.roll(attempt, every=every)
            except BaseException as fault:
                drop(participants, attempt, staged)
                if isinstance(fault, EpochalError) or not isinstance(fault, Exception):
                    raise
                raise CommitFailed(name, attempt.epoch, fault) from fault
            if part is not None:
                staged[name] = part
    if not staged:
        return None
    parts: dict[str, Json] = {name: staged_to_json(part) for name, part in staged.items()}
    record = Roll(attempt.generation, attempt.roll, attempt.generation, attempt.epoch, parts, journal.now())
    if not journal.roll(record):
        drop(participants, attempt, staged)
        raise FileExistsError(record.name)
    return record


def drop(participants: Mapping[str, Participant[Any]], attempt: Attempt, staged: Mapping[str, Staged]) -> None:
    """Remove an attempt of our own that has no record and cannot get one any more."""
    for name, participant in participants.items():
        try:
            part = staged.get(name)
            participant.abort(attempt, part.handle if part else None)
        except Exception as fault:  # noqa: BLE001  # the first error matters; the next start sweeps this
            log.warning("staged data left for the next start", extra={"sink": name, "error": repr(fault)})
