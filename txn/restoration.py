"""What `epochal restore` records in the start that it makes: which epochs the sinks hold beyond the savepoint.

The stream replays them; each is skipped if it reads what it read then (`batches`). A checkpoint that is behind its
journal is refused otherwise, with a choice; here the user has chosen. Of a fork it records which stream it was made of:
on that stream's targets it would write the same epochs again. Pure: no I/O, no clock.
"""

from __future__ import annotations

from epochal.txn.records import GenerationStarted
from epochal.txn.view import View


def was_restored(view: View, committed: int, done: int) -> bool:
    """Whether the checkpoint is behind the journal because it was restored so, and not further behind than that."""
    restorations = (started.driver.restored for started in view.generations.values())
    return any(r is not None and r.epoch <= committed and done <= r.through for r in restorations)


def forked_from(view: View) -> set[str]:
    """The lineages that a stream was forked from, directly or by way of other forks."""
    return {lineage for started in view.generations.values() for lineage in started.driver.ancestors}


def origin_text(latest: GenerationStarted) -> str:
    """Which savepoint the newest start has made the stream of, for people; empty if none."""
    if (restored := latest.driver.restored) is not None:
        return f"restored from savepoint {restored.savepoint} of epoch {restored.epoch}"
    if (rescaled := latest.driver.rescaling) is not None:
        return f"rescaled {rescaled.partitions} in epoch {rescaled.epoch}"
    if (fork := latest.driver.forked) is not None:
        return f"forked from savepoint {fork.savepoint} of epoch {fork.epoch}"
    return ""
