"""Which rows of a stream wait in open parts when its query has ended. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from epochal.spark_plugins.coordinators import open_journal
from epochal.txn.incarnations import current_journal
from epochal.txn.participant import Participant
from epochal.txn.rolls import without_owner
from epochal.txn.unpublished import Unpublished


@dataclass(frozen=True, slots=True)
class StillOpen:
    """What waits, and the command that publishes it.

    >>> rows = Unpublished(parts=1, rows=500, bytes=9_000, sinks=("files",))
    >>> print(StillOpen(rows, "epochal roll c"))  # doctest: +ELLIPSIS
    500 rows wait in 1 open part of 'files' and cannot be read yet. The next run ...; `epochal roll c` does it now
    """

    rows: Unpublished | None
    roll: str
    former: tuple[str, ...] = ()  # sinks that the writer no longer has, with parts that only a command publishes

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.former))
        are = "is" if len(self.former) == 1 else "are"
        found = [] if self.rows is None else [f"{self.rows} and cannot be read yet"]
        if names:
            more = "more rows wait" if found else "rows wait"
            found.append(f"{more} in open parts of {names} and cannot be read yet")
        later = ["The next run publishes each part at a limit of its sink"] if self.rows is not None else []
        if names:
            later.append(f"{'no' if later else 'No'} run publishes those of {names}, which {are} not in this writer")
        return f"{'; '.join(found)}. {'; '.join(later)}; `{self.roll}` does it now"


def still_open(checkpoint: str, journal: str | None, sinks: Iterable[Participant[Any]]) -> StillOpen | None:
    """What the sinks hold open by the journal of a checkpoint; None if every committed row can be read."""
    view = current_journal(lambda incarnation: open_journal(checkpoint, journal, incarnation))[1].read()
    participants = {sink.name: sink for sink in sinks}
    parts = [
        (name, part)
        for name, sink in participants.items()
        if sink.rolls is not None
        for part in sink.rolls.open_rows(view.sink_state(name))
    ]
    found, former = Unpublished.of(parts), tuple(without_owner(view, participants))
    if found is None and not former:
        return None
    elsewhere = [] if journal is None else ["--journal", journal]
    return StillOpen(found, shlex.join(["epochal", "roll", checkpoint, *elsewhere]), former)
