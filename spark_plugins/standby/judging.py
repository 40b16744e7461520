"""Whether a standby goes on waiting, takes over or leaves. Pure: no I/O, and the clock is an argument.

A driver hangs if its live file does not change for as long as the lease. That is measured by the standby's own
monotonic clock, and never by the times in the file, so the clocks of two machines need not agree. Time in which the
standby itself did not look does not count: a machine that was suspended wakes up with all of its processes, and each
would find the others silent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

from epochal.spark_plugins.standby.sight import Leader, Sight
from epochal.txn.events import StandbySight

WhenEnded: TypeAlias = Literal["wait", "leave", "take-over"]

STARTING = 30.0  # seconds that a driver may take from its claim to its first live file
JVM_END = 3.0  # seconds that a JVM may take to end after its Python process
GAPS = 2  # a look that comes later than lease / GAPS after the one before does not count the time between


class Turn(Enum):
    """What a standby does next."""

    WAIT = "wait"
    TAKE_OVER = "take over"
    LEAVE = "leave"


class Held(Enum):
    """Who has a lease that is kept outside of the checkpoint."""

    FREE = "free"
    OURS = "ours"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The options of a standby that matter here."""

    lease: float = 10.0
    when_ended: WhenEnded = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a standby remembers from one look to the next. Times are of its own clock."""

    start: str = ""  # the driver that it watches, by the id of its start
    sign: int | None = None  # the last live file that was seen
    since: float = 0.0  # when something changed last
    gone: float | None = None  # since when the driver is known to be gone
    looked: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whose turn it is, and why."""

    turn: Turn
    why: StandbySight
    sight: Sight


WAITING: dict[Leader, StandbySight] = {
    Leader.ENDED: "ended",
    Leader.FENCED: "fenced",
    Leader.REFUSED: "refused",
}


def judge(rules: Rules, heard: Heard, sight: Sight, now: float) -> tuple[Heard, Judgement]:
    """What to do after a look. `now` is when the look began."""
    heard = _heard(rules, heard, sight, now)
    match sight.leader:
        case Leader.RETIRED:
            return heard, Judgement(Turn.LEAVE, "retired", sight)
        case Leader.ENDED | Leader.FENCED | Leader.REFUSED as leader:
            turn = Turn.LEAVE if rules.when_ended == "leave" else Turn.WAIT
            if rules.when_ended == "take-over" and leader is not Leader.REFUSED:
                turn = Turn.TAKE_OVER
            return heard, Judgement(turn, WAITING[leader], sight)
        case Leader.FAILED:
            return heard, Judgement(Turn.TAKE_OVER, "failed", sight)
        case Leader.GONE:
            ends = sight.jvm_lives and heard.gone is not None and now - heard.gone < JVM_END
            return heard, Judgement(Turn.WAIT if ends else Turn.TAKE_OVER, "gone", sight)
        case Leader.NOBODY if not sight.is_begun:
            return heard, Judgement(Turn.TAKE_OVER, "new", sight)
        case Leader.NOBODY:  # a driver has started the query, and claims its generation next
            why: StandbySight = "new"
        case _:
            why = "silent"
    patience = rules.lease if heard.sign is not None or sight.leader is Leader.NOBODY else max(rules.lease, STARTING)
    is_over = now - heard.since >= patience
    return heard, Judgement(Turn.TAKE_OVER if is_over else Turn.WAIT, why if is_over else "", sight)


def with_lease(judgement: Judgement, held: Held, last: str) -> Judgement:
    """The judgement where a lease is kept outside of the checkpoint. `last` is the start that had the lease last.

    Nobody takes over while another has the lease. If the lease has become free, and the newest driver was the one that
    had it, that driver has lost it and stops: there is no need to wait until it is silent.
    """
    if judgement.turn is Turn.LEAVE:
        return judgement
    if held is Held.THEIRS:
        return replace(judgement, turn=Turn.WAIT)
    if judgement.turn is Turn.WAIT and judgement.sight.leader is Leader.RUNS and judgement.sight.start == last != "":
        return Judgement(Turn.TAKE_OVER, "lease", judgement.sight)
    return judgement


def _heard(rules: Rules, heard: Heard, sight: Sight, now: float) -> Heard:
    is_gone = sight.leader is Leader.GONE
    if heard.looked is None or sight.start != heard.start:
        return Heard(start=sight.start, sign=sight.sign, since=now, gone=now if is_gone else None, looked=now)
    gone = (heard.gone if heard.gone is not None else now) if is_gone else None
    before = heard.looked
    heard = replace(heard, gone=gone)
    if sight.sign is not None and sight.sign != heard.sign:
        return replace(heard, sign=sight.sign, since=now, looked=now)
    if now - before > rules.lease / GAPS:
        return replace(heard, since=now, looked=now)  # we were suspended, or could not look
    return replace(heard, looked=now)
