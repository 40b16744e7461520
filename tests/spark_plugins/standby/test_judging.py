"""When a standby takes over: by what it has seen, and by its own clock alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epochal.spark_plugins.standby.judging import (
    JVM_END,
    STARTING,
    Heard,
    Held,
    Judgement,
    Rules,
    Turn,
    WhenEnded,
    judge,
    with_lease,
)
from epochal.spark_plugins.standby.sight import Leader, Sight

RULES = Rules(lease=10.0)
RUNS = Sight(leader=Leader.RUNS, generation=3, start="third", sign=17, is_begun=True)


def story(*looks: tuple[float, Sight], rules: Rules = RULES) -> list[tuple[Turn, str]]:
    """What is decided at each of several looks."""
    heard = Heard()
    decided: list[tuple[Turn, str]] = []
    for now, sight in looks:
        heard, judgement = judge(rules, heard, sight, now)
        decided.append((judgement.turn, judgement.why))
    return decided


def watched(*signs: int | None, every: float = 1.0) -> list[tuple[float, Sight]]:
    return [(number * every, replace(RUNS, sign=sign)) for number, sign in enumerate(signs)]


def test_a_driver_that_writes_its_live_file_is_left_alone_for_ever() -> None:
    decided = story(*watched(*(number // 5 for number in range(1000))))

    assert {turn for turn, _ in decided} == {Turn.WAIT}


def test_one_that_writes_nothing_for_the_lease_hangs() -> None:
    decided = story(*watched(1, 2, *([2] * 12)))

    assert decided[:11] == [(Turn.WAIT, "")] * 11
    assert decided[11] == (Turn.TAKE_OVER, "silent")  # ten seconds after the file of the second look


def test_a_look_that_missed_the_file_is_no_sign_and_no_silence() -> None:
    decided = story(*watched(1, None, 2, None, None, 3, *([None] * 9), 4, *([4] * 9)))

    assert {turn for turn, _ in decided} == {Turn.WAIT}


def test_a_driver_that_has_just_claimed_may_take_longer_to_its_first_file() -> None:
    decided = story(*watched(*([None] * 32)))

    assert [turn for turn, _ in decided].index(Turn.TAKE_OVER) == STARTING


def test_a_new_start_begins_a_new_lease() -> None:
    looks = [*watched(*([7] * 9)), (9.0, replace(RUNS, generation=4, start="fourth", sign=1))]
    looks += [(at, replace(RUNS, generation=4, start="fourth", sign=1)) for at in (14.0, 18.0)]

    assert {turn for turn, _ in story(*looks)} == {Turn.WAIT}


@pytest.mark.parametrize("pause", [5.1, 11.0, 1e6])
def test_time_in_which_the_standby_did_not_look_does_not_count(pause: float) -> None:
    """A suspended machine: both wake up, and the standby is faster than the driver's next heartbeat."""
    decided = story((0.0, RUNS), (1.0, RUNS), (1.0 + pause, RUNS), (2.0 + pause, RUNS), (5.9 + pause, RUNS))

    assert {turn for turn, _ in decided} == {Turn.WAIT}


def test_after_such_a_pause_silence_is_measured_anew() -> None:
    looks = [(0.0, RUNS), *((100.0 + number, RUNS) for number in range(12))]
    decided = story(*looks)

    assert decided[10] == (Turn.WAIT, "")
    assert decided[11] == (Turn.TAKE_OVER, "silent")


def test_a_driver_whose_process_is_gone_is_replaced_at_the_first_look() -> None:
    assert story((0.0, replace(RUNS, leader=Leader.GONE))) == [(Turn.TAKE_OVER, "gone")]


def test_its_jvm_may_take_a_moment_to_end_but_not_longer() -> None:
    gone = replace(RUNS, leader=Leader.GONE, jvm_lives=True)
    decided = story((0.0, RUNS), (1.0, gone), (1.5, gone), (1.0 + JVM_END, gone))
    ended = story((0.0, RUNS), (1.0, gone), (1.2, replace(gone, jvm_lives=False)))

    assert [turn for turn, _ in decided] == [Turn.WAIT, Turn.WAIT, Turn.WAIT, Turn.TAKE_OVER]
    assert ended[-1] == (Turn.TAKE_OVER, "gone")


@pytest.mark.parametrize("leader", [Leader.ENDED, Leader.FENCED, Leader.REFUSED])
@pytest.mark.parametrize("when_ended", ["wait", "leave", "take-over"])
def test_what_was_ended_on_purpose_is_gone_on_with_only_if_asked(leader: Leader, when_ended: WhenEnded) -> None:
    ((turn, why),) = story((0.0, replace(RUNS, leader=leader)), rules=Rules(when_ended=when_ended))

    expected = {"wait": Turn.WAIT, "leave": Turn.LEAVE, "take-over": Turn.TAKE_OVER}[when_ended]
    if leader is Leader.REFUSED and when_ended == "take-over":
        expected = Turn.WAIT  # this driver would be refused too
    assert (turn, why) == (expected, leader.value)


@pytest.mark.parametrize("when_ended", ["wait", "leave", "take-over"])
def test_a_stream_that_was_retired_is_left(when_ended: WhenEnded) -> None:
    retired = (0.0, replace(RUNS, leader=Leader.RETIRED))

    assert story(retired, rules=Rules(when_ended=when_ended)) == [(Turn.LEAVE, "retired")]


def test_a_query_that_failed_is_started_again() -> None:
    assert story((0.0, replace(RUNS, leader=Leader.FAILED))) == [(Turn.TAKE_OVER, "failed")]


def test_a_stream_that_nobody_has_run_is_started_at_once_unless_another_is_about_to() -> None:
    new, begun = Sight(leader=Leader.NOBODY), Sight(leader=Leader.NOBODY, is_begun=True)

    assert story((0.0, new)) == [(Turn.TAKE_OVER, "new")]
    decided = story(*((float(second), begun) for second in range(12)))
    assert [turn for turn, _ in decided].index(Turn.TAKE_OVER) == RULES.lease


TAKES = Judgement(Turn.TAKE_OVER, "gone", RUNS)
WAITS = Judgement(Turn.WAIT, "", RUNS)


@pytest.mark.parametrize(
    ("judgement", "held", "last", "expected"),
    [
        (TAKES, Held.THEIRS, "third", Turn.WAIT),  # whoever has the lease goes on first
        (TAKES, Held.FREE, "third", Turn.TAKE_OVER),
        (TAKES, Held.OURS, "", Turn.TAKE_OVER),
        (WAITS, Held.FREE, "third", Turn.TAKE_OVER),  # it has lost the lease that it had
        (WAITS, Held.FREE, "second", Turn.WAIT),  # the newest driver never had it: its live file tells
        (WAITS, Held.FREE, "", Turn.WAIT),
        (WAITS, Held.THEIRS, "third", Turn.WAIT),
        (replace(WAITS, sight=replace(RUNS, leader=Leader.ENDED)), Held.FREE, "third", Turn.WAIT),
        (replace(WAITS, turn=Turn.LEAVE), Held.FREE, "third", Turn.LEAVE),
    ],
)
def test_a_lease_outside_of_the_checkpoint(judgement: Judgement, held: Held, last: str, expected: Turn) -> None:
    assert with_lease(judgement, held, last).turn is expected
