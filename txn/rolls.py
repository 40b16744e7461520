"""Rolls: open parts that are closed between two epochs, because they are due or a user asked for it.

A roll is recorded under its generation's next number, create-if-absent. A newer generation creates that number as a
seal before it stages anything, so that a stalled driver cannot close parts that the newer one builds on. Once recorded,
any process may carry a roll out, any number of times (`settlement`).
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
from epochal.txn.reporting import SILENT, Reporter
from epochal.txn.view import View

log = logging.getLogger("epochal")


def seal_older(journal: Journal, view: View, *, by: int) -> View:
    """Seal the rolls of all generations before `by`, which builds on what is open. Returns the view after that.

    In a stream that rolls, every generation is sealed, whatever its own sinks are: `epochal roll` closes what other
    generations have opened.
    """
    if not view.may_roll:
        return view
    for number in sorted(view.generations):
        if number < by:
            journal.seal_rolls(number, by=by)
    return journal.read()


def due(view: View, participants: Iterable[Participant[Any]]) -> float | None:
    """When the next part of any sink is due to be closed, in seconds of the wall clock; None for never."""
    times = (p.rolls.due(view.sink_state(p.name)) for p in participants if p.rolls is not None)
    return min((at for at in times if at is not None), default=None)


def check_states(view: View, participants: Iterable[Participant[Any]]) -> None:
    """Raise Refused if a sink cannot close what is open in it, for example because it is in another target."""
    for participant in participants:
        if participant.rolls is not None and (state := view.open_state(participant.name)):
            participant.rolls.check_state(state)


def without_owner(view: View, participants: Mapping[str, Participant[Any]]) -> list[str]:
    """The sinks with open rows that a writer does not have, or has without the ability to close them."""
    lacking = (name for name in view.open_states() if name not in participants or participants[name].rolls is None)
    return [name for name in lacking if view.has_opened(name)]


def close(
    journal: Journal,
    view: View,
    participants: Mapping[str, Participant[Any]],
    attempt: Attempt,
    *,
    every: bool,
    reporter: Reporter = SILENT,
) -> Roll | None:
    """Stage and record one roll of what `view` has open; None if there is nothing to close.

    Raises FileExistsError if it was sealed.
    """
    staged: dict[str, Staged] = {}
    for name, participant in participants.items():
        state = view.open_state(name)
        if participant.rolls is None or not state:
            continue
        try:
            participant.abort(attempt, None)  # an earlier try under this number may have left something
            part = participant.rolls.roll(RollRequest(attempt=attempt, state=state, every=every))
        except BaseException as fault:
            drop(participants, attempt, staged, reporter)
            if isinstance(fault, EpochalError) or not isinstance(fault, Exception):
                raise
            raise CommitFailed(name, attempt.epoch, fault, "roll") from fault
        if part is not None:
            staged[name] = part
    if not staged:
        return None
    earlier = view.rolls_after(attempt.epoch)
    record = Roll(
        attempt.generation, attempt.roll, attempt.generation, attempt.epoch, staged, journal.now(), rolls=earlier
    )
    if not journal.roll(record):
        recorded = journal.read().rolls.get(attempt.generation, {}).get(attempt.roll)
        if recorded == record:
            return record  # the file system created it, lost its own answer and tried again
        if recorded is None or recorded.is_seal:  # else another driver with our number, in a journal that replaced ours
            drop(participants, attempt, staged, reporter)
        raise FileExistsError(record.name)
    return record


def drop(
    participants: Mapping[str, Participant[Any]],
    attempt: Attempt,
    staged: Mapping[str, Staged],
    reporter: Reporter = SILENT,
) -> None:
    """Remove an attempt of this driver that has no record and can no longer get one."""
    for name, participant in participants.items():
        try:
            part = staged.get(name)
            participant.abort(attempt, part.handle if part else None)
            if part is not None:
                reporter.aborted(attempt, name)
        except Exception as fault:  # noqa: BLE001  # the first error matters; the next start sweeps this
            log.warning("staged data was left for the next start", extra={"sink": name, "error": repr(fault)})
