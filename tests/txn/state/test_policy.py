"""Knobs from objectives: what holds a recovery time with the least work, and what fits a share of a processor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.state.gauge import Gauge
from epochal.txn.state.policy import (
    EPOCHS,
    LEAST_EPOCHS,
    MARGIN,
    RATIOS,
    RECORDS_PART,
    Extent,
    Knobs,
    Measured,
    Policy,
)
from tests.txn.memory import MemoryFiles
from tests.txn.state.scribe import Scribe, fold

rates = st.floats(1e3, 1e7)


def worst(knobs: Knobs, measured: Measured) -> float:
    """The longest recovery under these knobs: just before a merge, and just before records are folded."""
    entries = measured.live / (1 - knobs.dirty_ratio)
    return entries / measured.restored + 2 * knobs.epochs * measured.record / measured.decoded


@given(st.floats(0.05, 10), rates, rates, st.integers(0, 5_000_000), st.floats(0, 1e6))
def test_the_longest_recovery_is_within_the_objective_wherever_that_is_possible(
    seconds: float, restored: float, decoded: float, live: int, record: float
) -> None:
    measured = Measured(restored=restored, decoded=decoded, live=live, record=record)
    knobs = Policy(recovery=seconds).tuned(measured)
    least = worst(Knobs(dirty_ratio=RATIOS[0], epochs=LEAST_EPOCHS), measured)

    assert worst(knobs, measured) <= seconds or worst(knobs, measured) == pytest.approx(least) or least > 0.4 * seconds
    assert RATIOS[0] <= knobs.dirty_ratio <= RATIOS[1]
    assert LEAST_EPOCHS <= knobs.epochs <= EPOCHS


def test_more_live_entries_leave_less_room_for_dirty_ones() -> None:
    ratios = [Policy(recovery=1.0).tuned(Measured(live=live)).dirty_ratio for live in (0, 100_000, 300_000, 10**7)]

    assert ratios == sorted(ratios, reverse=True)
    assert (ratios[0], ratios[-1]) == (RATIOS[1], RATIOS[0])


def test_large_records_are_folded_sooner() -> None:
    small, large = (Policy(recovery=0.5).tuned(Measured(record=size)).epochs for size in (1e3, 1e6))

    assert (small, large) == (EPOCHS, LEAST_EPOCHS)


def test_a_share_of_the_processor_buys_the_smallest_ratio_that_it_pays_for() -> None:
    measured = Measured(changed=1000, merged=10e-6, folded=0.0)  # each change costs 10 us / ratio

    assert Policy(cpu=0.02).tuned(measured).dirty_ratio == pytest.approx(0.5)
    assert Policy(cpu=0.10).tuned(measured).dirty_ratio == pytest.approx(0.1)
    assert Policy(cpu=0.001).tuned(measured).dirty_ratio == RATIOS[1]


def test_what_folding_takes_of_a_share_is_not_there_for_merges() -> None:
    measured = Measured(changed=1000, merged=10e-6, folded=5e-6)

    assert Policy(cpu=0.025).tuned(measured).dirty_ratio == pytest.approx(0.5)
    assert Policy(cpu=0.005).tuned(measured).dirty_ratio == RATIOS[1]


def test_fixed_knobs_stay_as_they_are() -> None:
    knobs = Knobs(dirty_ratio=0.66, segment_age=1.0, retention=0.1)

    assert Policy(knobs=knobs).tuned(Measured(live=10**9, changed=1e9)) == knobs


def test_replay_is_what_is_read_beyond_the_live_entries() -> None:
    extent = Extent(live=100, entries=150, bytes=1, segments=2, epochs=7, changes=30, record_bytes=10**6)

    assert extent.replay == 80
    assert extent.predicted(Measured(restored=1000, decoded=1e7)) == pytest.approx(0.25)


def test_what_is_measured_replaces_the_guess_at_once_and_is_smoothed_later() -> None:
    now = [0.0]
    gauge = Gauge(lambda: now[0])
    with gauge.restoring(10_000):
        now[0] = 0.01
    first = gauge.measured.restored
    with gauge.restoring(10_000):
        now[0] = 0.03
    gauge.changed(500)
    now[0] = 1.0
    gauge.sized(live=70, record=123.0)
    gauge.note_changes()

    assert first == pytest.approx(1e6)
    assert gauge.measured.restored == pytest.approx(850_000)
    assert (gauge.measured.live, gauge.measured.record) == (70, 123.0)
    assert gauge.measured.changed == pytest.approx(500)


@pytest.mark.parametrize("jump", [100, 200])
def test_a_load_that_jumps_is_folded_before_its_records_take_the_time_of_the_objective(
    jump: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gauge, "decoded", lambda *_: None)  # a guess, which does not depend on this machine
    policy = Policy(recovery=0.5)
    stream = Writing(policy, MemoryFiles())
    for _ in range(3 * EPOCHS):
        stream.run(changes=50)
    unfolded = []
    for _ in range(2 * EPOCHS - 1):
        stream.run(changes=50 * jump)
        unfolded.append(stream.journal.extent().record_bytes)

    a_record = unfolded[1] - unfolded[0]
    held = 0.5 * MARGIN * RECORDS_PART * Measured().decoded
    assert max(unfolded) <= max(held, 2 * LEAST_EPOCHS * a_record) + 2 * a_record


class Writing:
    """A journal that is folded whenever its policy says so."""

    def __init__(self, policy: Policy, files: MemoryFiles) -> None:
        self.journal = Journal(files, "journal", policy=policy, clock=lambda: 0.0)
        self.journal.claim(GenerationStarted(1, "query", base=0))
        self._epoch = 0

    def run(self, *, changes: int) -> None:
        changed: dict[str, Json] = {f"key {number}": self._epoch for number in range(changes)}
        staged = {"sink": Staged(Handle(1, {}), 1, changes=changed)}
        self.journal.prepare(Prepared(self._epoch, 1, "offsets", staged))
        self.journal.decide(self._epoch, 1)
        self.journal.finish(self._epoch, 1)
        self.journal.compact(self.journal.read(), retain=EPOCHS, slack=EPOCHS)
        self.journal.read()
        self._epoch += 1


def test_the_time_of_a_recovery_is_that_of_all_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    epochs: list[dict[str, dict[str, Json]]] = [{"left": {f"key {number}": number}} for number in range(9)]
    scribe.run(*epochs)
    never = scribe.journal()
    never.read()
    fold(files, scribe.journal().read(), retain=4)
    seconds = [0.0]
    read = files.read

    def slow(path: str) -> bytes:
        seconds[0] += 1.0
        return read(path)

    monkeypatch.setattr(files, "read", slow)
    monkeypatch.setattr("epochal.txn.journal.time.monotonic", lambda: seconds[0])
    journal = scribe.journal()
    journal.read()

    assert never.recovery is None  # there were no segments
    assert journal.recovery == seconds[0] == len(files.names("journal"))
