"""What a person may decide about an epoch by hand: nothing that Spark or the rules would decide otherwise. Pure.

Spark's commits/N decides an epoch, and a person cannot replace it: if an epoch without commits/N were shown, Spark
would replay it; if one with commits/N were removed, Spark would never give its rows again. So `commit` is allowed where
the rules would commit anyway, `abort` where the attempt can never become the epoch. Everything else is refused, with
the reason and what to do instead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from epochal.txn.errors import Refused
from epochal.txn.liveness import DriverStatus, Liveness
from epochal.txn.offsets import Match, compare
from epochal.txn.view import View


class Resolution(Enum):
    """What is to be done."""

    NOTHING = "nothing"  # it is done already
    SETTLE = "settle"  # the epoch is decided: finish it
    DECIDE = "decide"  # commit="eager": its own driver would have decided it
    REMOVE = "remove"  # only attempts of superseded generations are staged
    FENCE_THEN_REMOVE = "fence, then remove"  # the dead driver of the newest generation was staging it


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionFacts:
    """What is known about an epoch."""

    view: View
    epoch: int
    committed: int  # the highest number in Spark's commits/
    planned: int  # the highest number in Spark's offsets/
    driver: DriverStatus
    offsets: str | None = None  # the digest of offsets/N as it is now
    staged_by: Collection[int] = ()  # the generations of which a sink has staged data of the epoch


def check_commit(facts: ResolutionFacts) -> Resolution:
    """How to commit an epoch by hand, or Refused."""
    view, epoch = facts.view, facts.epoch
    _check_known(facts)
    if epoch <= view.done_through:
        return Resolution.NOTHING
    if epoch <= facts.committed or epoch in view.decided:
        return Resolution.SETTLE
    prepared = view.prepared(epoch)
    if not prepared:
        raise Refused(
            f"epoch {epoch} cannot be committed: no driver has staged all of it. Nothing was changed. Start the query: "
            "Spark replays the epoch"
        )
    if view.latest is None or view.latest.commit != "eager":
        raise Refused(
            f"epoch {epoch} cannot be committed by hand: Spark has not written commits/{epoch}, and only that file "
            "decides. If its rows were shown now, the next start of the query would replay the epoch and write them "
            "again. Nothing was changed. Start the query: it replays the epoch and commits it"
        )
    own = prepared.get(view.generation)
    if own is None:
        raise Refused(
            f"epoch {epoch} cannot be committed by hand: it was staged by generation {max(prepared)}, and generation "
            f"{view.generation} has taken over and stages it again. Nothing was changed. Start the query"
        )
    if facts.offsets is None or compare(own.offsets, facts.offsets) is not Match.SAME:
        raise Refused(
            f"epoch {epoch} cannot be committed by hand: nothing proves that Spark would replay it with the rows that "
            "are staged. Nothing was changed. Start the query: it stages the epoch again"
        )
    return Resolution.DECIDE


def check_abort(facts: ResolutionFacts) -> Resolution:
    """How to abort an epoch by hand, or Refused."""
    view, epoch = facts.view, facts.epoch
    _check_known(facts)
    if epoch <= max(view.done_through, facts.committed):
        raise Refused(
            f"epoch {epoch} cannot be aborted: Spark has checkpointed it and never gives its rows again, so they would "
            "be lost. Nothing was changed. " + _instead(facts)
        )
    if epoch in view.decided:
        raise Refused(
            f"epoch {epoch} cannot be aborted: it is decided, and sinks may show it already. Nothing was changed. "
            + _instead(facts)
        )
    if prepared := view.prepared(epoch):
        raise Refused(
            f"epoch {epoch} cannot be aborted: generation {max(prepared)} has staged all of it. If its driver is only "
            f"stalled, Spark may still write commits/{epoch}, and then these are the only copies of its rows. Nothing "
            "was changed. Start the query: it replays the epoch, and removes what is not needed"
        )
    if not facts.staged_by:
        return Resolution.NOTHING
    if max(facts.staged_by) < view.generation:
        return Resolution.REMOVE
    driver = facts.driver
    if driver.liveness in (Liveness.DEAD, Liveness.ENDED):
        return Resolution.FENCE_THEN_REMOVE
    alive = driver.liveness is Liveness.ALIVE
    raise Refused(
        f"epoch {epoch} cannot be aborted: its driver ({driver.name}) "
        + ("is alive and stages it" if alive else "is not proven to be dead: look on its host")
        + ". Nothing was changed. Stop the driver first; or run `epochal gc CHECKPOINT --fence --yes`, which stops it "
        "at its next step and removes what it has staged"
    )


def _check_known(facts: ResolutionFacts) -> None:
    view, epoch = facts.view, facts.epoch
    if epoch < view.base:
        raise Refused(
            f"epoch {epoch} is older than this journal, which begins with epoch {view.base}. Nothing was changed"
        )
    known = max(view.done_through, facts.committed, facts.planned, *view.attempts, *view.decided)
    if epoch > known:
        last = f"the last one that it has begun is {known}" if known >= view.base else "it has begun none"
        raise Refused(f"there is no epoch {epoch}: {last}. Nothing was changed")


def _instead(facts: ResolutionFacts) -> str:
    if facts.epoch <= facts.view.done_through:
        return "Every sink shows it"
    return "`epochal recover CHECKPOINT` makes it visible"
