"""Which rows of a stream wait in open parts when its query has ended. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from epochal.spark_plugins.coordinators import open_journal
from epochal.txn.incarnations import current_journal
from epochal.txn.participant import Participant
from epochal.txn.unpublished import Unpublished


@dataclass(frozen=True, slots=True)
class StillOpen:
    """What waits, and the command that publishes it.

    >>> rows = Unpublished(parts=1, rows=500, bytes=9_000, sinks=("files",))
    >>> print(StillOpen(rows, "epochal roll c"))  # doctest: +ELLIPSIS
    500 rows wait in 1 open part of 'files' and cannot be read yet. The next run ...; `epochal roll c` does it now
    """

    rows: Unpublished
    roll: str

    def __str__(self) -> str:
        return (
            f"{self.rows} and cannot be read yet. The next run publishes each part at a limit of its sink; "
            f"`{self.roll}` does it now"
        )


def still_open(checkpoint: str, journal: str | None, sinks: Iterable[Participant[Any]]) -> StillOpen | None:
    """What the sinks hold open by the journal of a checkpoint; None if every committed row can be read."""
    view = current_journal(lambda incarnation: open_journal(checkpoint, journal, incarnation))[1].read()
    parts = [
        (sink.name, part)
        for sink in sinks
        if sink.rolls is not None
        for part in sink.rolls.open_rows(view.sink_state(sink.name))
    ]
    found = Unpublished.of(parts)
    elsewhere = [] if journal is None else ["--journal", journal]
    return None if found is None else StillOpen(found, shlex.join(["epochal", "roll", checkpoint, *elsewhere]))
