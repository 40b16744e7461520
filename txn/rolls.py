"""Rolls: what is closed between two epochs, because its time has come or somebody wants to see it.

A roll is recorded under its generation's next number, create-if-absent. A newer generation takes that number as a seal
before it stages anything, so that a driver that slept can close nothing that others have built on. Once recorded, a
roll is carried out by whoever sees it, as often as they like (`settlement`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from epochal.txn.errors import CommitFailed, EpochalError
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, RollRequest, Staged
from epochal.txn.participant import Participant
from epochal.txn.records import Roll
from epochal.txn.view import View

log = logging.getLogger("epochal")


def seal_older(journal: Journal, view: View, *, by: int) -> View:
    """No generation of `view` may close anything from now on: `by` builds on what is open. Returns what that is.

    Of a stream that rolls every generation is sealed, whatever its own sinks are: `epochal roll` closes what others
    have opened.
    """
    if not view.may_roll:
        return view
    for number in sorted(view.generations):
        if number < by:
            journal.seal_rolls(number, by=by)
    return journal.read()


def due(view: View, participants: Iterable[Participant[Any]]) -> float | None:
    """When a sink wants to close something, in seconds of the wall clock; None for never."""
    times = (p.rolls.due(view.sink_state(p.name)) for p in participants if p.rolls is not None)
    return min((at for at in times if at is not None), default=None)


def check_states(view: View, participants: Iterable[Participant[Any]]) -> None:
    """Raise Refused if a sink could not close what is open in it, such as in another target."""
    for participant in participants:
        if participant.rolls is not None and (state := view.sink_state(participant.name)):
            participant.rolls.check_state(state)


def without_owner(view: View, participants: Mapping[str, Participant[Any]]) -> list[str]:
    """The sinks that have something open and that a writer does not have, or not as one that can close it."""
    return [name for name in view.sink_states() if name not in participants or participants[name].rolls is None]


def close(
    journal: Journal, view: View, participants: Mapping[str, Participant[Any]], attempt: Attempt, *, every: bool
) -> Roll | None:
    """Stage and record one roll of what `view` has open; None if there is nothing to close.

    Raises FileExistsError if it was sealed.
    """
    staged: dict[str, Staged] = {}
    for name, participant in participants.items():
        state = view.sink_state(name)
        if participant.rolls is None or not state:
            continue
        try:
            participant.abort(attempt, None)  # what an earlier try under this number could not remove
            part = participant.rolls.roll(RollRequest(attempt=attempt, state=state, every=every))
        except BaseException as fault:
            drop(participants, attempt, staged)
            if isinstance(fault, EpochalError) or not isinstance(fault, Exception):
                raise
            raise CommitFailed(name, attempt.epoch, fault) from fault
        if part is not None:
            staged[name] = part
    if not staged:
        return None
    record = Roll(attempt.generation, attempt.roll, attempt.generation, attempt.epoch, staged, journal.now())
    if not journal.roll(record):
        recorded = journal.read().rolls.get(attempt.generation, {}).get(attempt.roll)
        if recorded == record:
            return record  # a file system that lost its own answer has tried twice
        if recorded is None or recorded.is_seal:  # else it is a namesake's, of a journal that replaced ours
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
