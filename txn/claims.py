"""Which journal a target belongs to: this one, or a copy of it. Pure: no I/O, no clock.

Each start claims its targets under a random id that its journal records (`Claim`). A copy of a checkpoint has a record
of the claims made before it was copied, but of no later one; and it is in another place.
"""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

from epochal.txn.errors import Rewound, TwoJournals
from epochal.txn.model import Claim, lineage_tag
from epochal.txn.object_paths import is_object_store, one_spelling
from epochal.txn.view import View


def new_start_id() -> str:
    """A random id for one start."""
    return uuid.uuid4().hex[:16]


def why_not_ours(holder: Claim | None, view: View, lineage: str, journal: str) -> str | None:
    """Why a target's newest claim is not by this journal; None if it is, or if there is no claim."""
    if holder is None:
        return None
    if holder.lineage != lineage:
        return f"stream {lineage_tag(holder.lineage)} has taken this stream's place, by {holder}"
    if not same_place(holder.journal, journal):
        return f"it was last claimed by {holder}, and this journal is in {journal}"
    recorded = view.generations.get(holder.generation)
    if recorded is None and holder.generation > view.generation:
        return f"it was last claimed by {holder}, and this journal knows only generations up to {view.generation}"
    if recorded is not None and recorded.start != holder.start:
        return f"it was last claimed by {holder}, and this journal has another start of that number"
    return None  # by this journal, or so old that its record is folded away


def why_claim_lost(holder: Claim, view: View, lineage: str, journal: str) -> str | None:
    """Why a running driver has lost its target; None if it has not.

    It has claimed the target itself, so a claim whose record is folded away cannot be by its journal.
    """
    why = why_not_ours(holder, view, lineage, journal)
    if why is None and holder.generation not in view.generations:
        return f"it was last claimed by {holder}, and this journal has no record of that start"
    return why


def why_held_by_copy(holder: Claim | None, view: View, lineage: str, journal: str) -> str | None:
    """Why a target belongs to a copy of this journal; None if it does not. Another stream is not a copy."""
    return None if holder is None or holder.lineage != lineage else why_not_ours(holder, view, lineage, journal)


def check_holder(sink: str, holder: Claim | None, view: View, lineage: str, journal: str) -> None:
    """Stop a running driver if a target no longer belongs to its journal."""
    if holder is None:
        raise Rewound(
            f"sink {sink!r}: its target has no record of this stream any more: it was emptied, moved or replaced "
            "while the query ran. Nothing more was written. Restore it and start the query again"
        )
    if (why := why_claim_lost(holder, view, lineage, journal)) is not None:
        raise two_journals(sink, why)


def two_journals(sink: str, why: str) -> TwoJournals:
    """The error of a driver whose target belongs to another journal."""
    return TwoJournals(f"sink {sink!r}: {why}. Only one of them may write, so this one stops")


def same_place(one: str, other: str) -> bool:
    """Whether two journals are in the same place. The host is ignored: a NameNode of HDFS may have several names.

    A bucket is not: two buckets are two places.

    >>> same_place("hdfs://a:9000/c/epochal", "hdfs:///c/epochal"), same_place("/c/epochal", "/d/epochal")
    (True, False)
    >>> same_place("s3a://a/c", "s3://a/c/"), same_place("s3://a/c", "s3://b/c")
    (True, False)
    """
    if is_object_store(one) or is_object_store(other):
        return one_spelling(one) == one_spelling(other)
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.path.rstrip("/")) == (second.scheme, second.path.rstrip("/"))
