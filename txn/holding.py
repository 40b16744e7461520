"""Whose a target is: the journal's own, or another's that was copied from it. Pure: no I/O, no clock.

Each start claims its targets under a random name that its journal records (`Claim`). A copy of a checkpoint knows the
claims that were made before it was copied, and no later one; and it lies elsewhere.
"""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

from epochal.txn.errors import Rewound, TwoJournals
from epochal.txn.model import Claim, lineage_tag
from epochal.txn.view import View


def new_start() -> str:
    """A name for one start that no other has."""
    return uuid.uuid4().hex[:16]


def stranger(holder: Claim | None, view: View, lineage: str, journal: str) -> str | None:
    """Why a target's holder is not of this journal; None if it is, or if nobody has claimed the target."""
    if holder is None:
        return None
    if holder.lineage != lineage:
        return f"stream {lineage_tag(holder.lineage)} has taken this stream's place, by {holder}"
    if not same_place(holder.journal, journal):
        return f"it was last claimed by {holder}, and this journal is in {journal}"
    known = view.generations.get(holder.generation)
    if known is None and holder.generation > view.generation:
        return f"it was last claimed by {holder}, and this journal knows only generations up to {view.generation}"
    if known is not None and known.start != holder.start:
        return f"it was last claimed by {holder}, and this journal has another start of that number"
    return None  # ours, or so old that its record is folded away


def displaced(holder: Claim, view: View, lineage: str, journal: str) -> str | None:
    """The same for a driver that runs: it has claimed the target itself, so an older claim cannot be its journal's."""
    why = stranger(holder, view, lineage, journal)
    if why is None and holder.generation not in view.generations:
        return f"it was last claimed by {holder}, and this journal has no record of that start"
    return why


def copied(holder: Claim | None, view: View, lineage: str, journal: str) -> str | None:
    """The same, for a stream whose place may have been taken by another one: only its own copies are strangers."""
    return None if holder is None or holder.lineage != lineage else stranger(holder, view, lineage, journal)


def check_holder(sink: str, holder: Claim | None, view: View, lineage: str, journal: str) -> None:
    """Stop a driver that runs if a target is not its journal's any more."""
    if holder is None:
        raise Rewound(
            f"sink {sink!r}: its target does not know this stream any more: it was emptied, moved or replaced "
            "while the query ran. Nothing more was written. Put it back and start the query again"
        )
    if (why := displaced(holder, view, lineage, journal)) is not None:
        raise two_journals(sink, why)


def two_journals(sink: str, why: str) -> TwoJournals:
    """The end of a driver whose target another journal has."""
    return TwoJournals(f"sink {sink!r}: {why}. Only one of them may write, so this one stops")


def same_place(one: str, other: str) -> bool:
    """Whether two journals lie in the same place; of HDFS a NameNode may have several names.

    >>> same_place("hdfs://a:9000/c/epochal", "hdfs:///c/epochal"), same_place("/c/epochal", "/d/epochal")
    (True, False)
    """
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.path.rstrip("/")) == (second.scheme, second.path.rstrip("/"))
