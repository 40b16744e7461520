"""The life of one attempt at an epoch, as a table.

Everything that decides what may follow what lives here. No I/O and no clock, so that any crash
can be replayed from the journal alone::

                 ┌─> SEALED ────────────┐
    STAGING ─────┤                      ├─> ABORTED
                 └─> PREPARED ─┬─> LOST ┘
                               └─> DECIDED ─> DONE
"""

from __future__ import annotations

from enum import Enum

from epochal.txn.errors import JournalCorrupt


class State(Enum):
    """The state of one attempt."""

    STAGING = "staging"  # no record yet: may still be written by a live driver
    SEALED = "sealed"  # a newer generation closed it before it was prepared
    PREPARED = "prepared"  # durable and invisible; in doubt until Spark's commits/N
    DECIDED = "decided"  # it won: only forward from here
    LOST = "lost"  # another generation won
    DONE = "done"  # visible in every sink
    ABORTED = "aborted"  # nothing of it is left


NEXT: dict[State, frozenset[State]] = {
    State.STAGING: frozenset({State.PREPARED, State.SEALED}),
    State.SEALED: frozenset({State.ABORTED}),
    State.PREPARED: frozenset({State.DECIDED, State.LOST}),
    State.DECIDED: frozenset({State.DONE}),
    State.LOST: frozenset({State.ABORTED}),
    State.DONE: frozenset(),
    State.ABORTED: frozenset(),
}


def advance(old: State, new: State, *, what: str) -> State:
    """The new state, if the table allows the step."""
    if new not in NEXT[old]:
        raise JournalCorrupt(
            f"{what}: {new.value} cannot follow {old.value}; the journal was changed by hand or by "
            "another program. Restore it from a copy"
        )
    return new
