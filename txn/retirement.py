"""A stream that is over here: retired by a person, with the reason, so that monitors leave it alone; or moved elsewhere
by `epochal restore`.

Retiring is one record: the next generation, claimed by a command as `recovery.fence` does, whose `driver` says who
retired the stream, when and why. So it is create-if-absent, it fences a driver that nobody has seen, and a crash leaves
it made or not made. Undoing it is the next such record without that. Targets are not claimed: no driver is to be
stopped there, and their stores may be gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from epochal.txn.claims import new_start_id
from epochal.txn.command_starts import claim_for_command
from epochal.txn.driver_facts import DriverFacts, Retirement
from epochal.txn.errors import Refused
from epochal.txn.journal import Journal
from epochal.txn.records import GenerationStarted

FOLDER = "epochal"  # of a journal that is in its checkpoint
LONGEST = 1000  # characters of a reason


def retirement_of(latest: GenerationStarted | None) -> Retirement | None:
    """The retirement that the newest generation records; None if the stream is not retired."""
    return latest.driver.retired if latest is not None else None


def undo_command(journal: str) -> str:
    """The command that takes a retirement back, by the journal in which it is recorded.

    >>> undo_command("/data/orders/epochal~2")
    'epochal retire /data/orders --undo'
    >>> undo_command("hdfs://nn/journals/orders")
    'epochal retire CHECKPOINT --journal hdfs://nn/journals/orders --undo'
    """
    folder, _, name = journal.rstrip("/").rpartition("/")
    first = name.partition("~")[0]
    where = [folder] if first == FOLDER and folder else ["CHECKPOINT", "--journal", f"{folder}/{first}"]
    return shlex.join(["epochal", "retire", *where, "--undo"])


def refuse_retired(latest: GenerationStarted | None, what: str, journal: Journal) -> None:
    """Refuse to go on with a stream that is retired."""
    found, undo = retirement_of(latest), undo_command(journal.place)
    if found is not None and found.moved_to:
        raise Refused(
            f"{what}: the stream has moved to the journal {found.moved_to} ({found.at} by {found.by}). Nothing was "
            f"written. Start the query on the checkpoint there. If it never came to be there, `{undo}` gives this one "
            "back"
        )
    if found is not None:
        raise Refused(
            f"{what}: the stream was retired {found}. Nothing was written. To go on with it, run `{undo}` first"
        )


def record_retirement(
    journal: Journal,
    latest: GenerationStarted,
    retirement: Retirement | None,
    command: DriverFacts,
    *,
    start_ids: Callable[[], str] = new_start_id,
) -> int | None:
    """Retire the stream, or without a `retirement` undo that. Returns the generation that was claimed for it.

    None if another generation has started since `latest`: check everything again. `command` is who runs it.
    """
    started = claim_for_command(journal, latest, replace(command, retired=retirement), start_ids)
    return started.generation if started is not None else None
