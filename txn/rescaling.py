"""A rescale that was begun: what `epochal rescale` records before Spark changes anything, so that it can be finished.

It is one record, as for a retirement: the next generation, claimed by a command, whose `driver` says what is being
done. So it is create-if-absent and fences a driver that nobody has seen. Until the epoch that Spark takes for it is
done, no driver is let in. The epoch itself is in the journal like any other, given to no sink: its PREPARED says how
many partitions there were and are, so there is no gap. Pure, but for the one record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from epochal.txn.claims import new_start_id
from epochal.txn.command_starts import claim_for_command
from epochal.txn.driver_facts import DriverFacts, Rescaling
from epochal.txn.errors import Refused
from epochal.txn.journal import Journal
from epochal.txn.records import GenerationStarted
from epochal.txn.view import View


def unfinished(view: View) -> Rescaling | None:
    """The rescale that was begun and is not done; None if there is none."""
    newest = max((n for n, started in view.generations.items() if started.driver.concerns_rescale), default=None)
    found = None if newest is None else view.generations[newest].driver.rescaling
    if found is None or view.done_through >= found.epoch:
        return None
    # Once it is recorded, the state was compared: what is left is what any start does with an epoch.
    return None if any(record.repartitioned for record in view.prepared(found.epoch).values()) else found


def was_begun(view: View) -> bool:
    """Whether a start of this journal was made for a rescale, finished or not."""
    return any(started.driver.concerns_rescale for started in view.generations.values())


def refuse_unfinished(view: View, what: str) -> None:
    """Refuse to go on with a stream of which Spark's state may be half changed."""
    found = unfinished(view)
    if found is not None:
        raise Refused(
            f"{what}: the stream is being rescaled {found.partitions}, since {found.at} by {found.by}, and that is not "
            f"finished. Nothing was written. Run `epochal rescale CHECKPOINT --partitions {found.partitions.after}` "
            f"again, which finishes it; or go back by `epochal restore {found.savepoint} NEW_CHECKPOINT`"
        )


def record_rescaling(
    journal: Journal,
    latest: GenerationStarted,
    rescaling: Rescaling | None,
    command: DriverFacts,
    *,
    start_ids: Callable[[], str] = new_start_id,
) -> GenerationStarted | None:
    """Begin a rescale, or go on with it; without a `rescaling`, withdraw it. Returns the start that was made for it.

    None if another generation has started since `latest`: check everything again. `command` is who runs it.
    """
    facts = replace(command, rescaling=rescaling, rescale_given_up=rescaling is None)
    return claim_for_command(journal, latest, facts, start_ids)
