"""A command that stops the driver by claiming the next generation, and leaves what it does in that start's record.

One record, made by create-if-absent: it fences a driver that nobody has seen, and a crash leaves it made or not made.
Targets are not claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from epochal.txn.claims import new_start_id
from epochal.txn.driver_facts import DriverFacts
from epochal.txn.journal import Journal
from epochal.txn.records import GenerationStarted


def claim_for_command(
    journal: Journal, latest: GenerationStarted, command: DriverFacts, start_ids: Callable[[], str] = new_start_id
) -> GenerationStarted | None:
    """The start that a command made after the newest one, and like it in all but who made it.

    None if another generation has started since `latest`: check everything again.
    """
    started = replace(
        latest,
        generation=latest.generation + 1,
        start=start_ids(),
        driver=replace(command, by_command=True, forked_from=latest.driver.ancestors),
        at=journal.now(),
    )
    return started if journal.claim(started) else None
