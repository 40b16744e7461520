"""A share of a processor holds for all that folding does, by a model of a stream: simulated time, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from epochal.txn.state.budget import Budget
from epochal.txn.state.gauge import Gauge
from epochal.txn.state.policy import (
    AN_EPOCH,
    EPOCHS,
    MOST_EPOCHS,
    MOST_SEGMENTS,
    Policy,
    affordable_merge,
    fold_work,
    may_fold,
)
from epochal.txn.state.segments import SegmentRef

FOLD = 8e-6  # seconds of a processor for a change, more than a driver guesses
MERGE = 4e-6  # and for an entry that is merged, less than it guesses
FOLDED = 2 * EPOCHS  # done epochs of which the older half is folded
SHARES = 0.02, 0.1


class Model:
    """A driver that folds by its policy: what that costs, and what a recovery would read."""

    def __init__(self, share: float, *, live: int) -> None:
        self.share, self.policy = share, Policy(cpu=share)
        self.now = self.cpu = 0.0
        self.budget = Budget(lambda: share, clock=lambda: self.now, thread_time=lambda: self.cpu)
        self.gauge = Gauge(lambda: self.now)
        self.live = live
        self.segments = [self._segment(live, clean=True)]
        self.records: list[int] = []  # changes of the epochs that are not folded
        self.folds = self.most_waiting = self.most_segments = 0
        self.excess: list[float] = []  # seconds of a processor beyond the share, after each epoch

    def run(self, loads: Sequence[int], *, seconds: float = 1.0) -> None:
        """Epochs with so many changes each, of keys that are spread over the state."""
        for changes in loads:
            self.now += seconds
            self.records.append(changes)
            self.gauge.changed(changes)
            self._fold()
            self.excess.append(self.cpu - self.share * self.now)
            self.most_waiting = max(self.most_waiting, len(self.records) - EPOCHS)
            self.most_segments = max(self.most_segments, len(self.segments))

    @property
    def entries(self) -> int:
        return sum(ref.entries for ref in self.segments)

    def _fold(self) -> None:
        if len(self.records) < FOLDED:
            return
        waiting = self.records[:-EPOCHS]
        work = fold_work(epochs=len(waiting), changes=sum(waiting))
        if not may_fold(len(waiting), work, self.gauge.measured, self.budget.affords):
            return
        self.folds += 1
        self.gauge.note_changes()
        with self.budget.spending():
            self.cpu += work * FOLD
            self.gauge.measured = self.gauge.measured.with_rate("folded", FOLD)
            self.records = self.records[-EPOCHS:]
            self.segments.append(self._segment(min(sum(waiting), self.live), clean=False))
            self.budget.charge()
            self._merge()

    def _merge(self) -> None:
        measured = self.gauge.measured
        count = affordable_merge(self.segments, self.policy.tuned(measured), measured, self.budget.affords)
        rest, chosen = self.segments[: len(self.segments) - count], self.segments[len(self.segments) - count :]
        if chosen:
            entries = sum(ref.entries for ref in chosen)
            self.cpu += entries * MERGE
            self.gauge.measured = measured.with_rate("merged", MERGE)
            self.segments = [*rest, self._segment(min(entries, self.live), clean=not rest)]

    @staticmethod
    def _segment(entries: int, *, clean: bool) -> SegmentRef:
        return SegmentRef("", "", 0, entries, 0, 0, clean)


def affordable(share: float) -> int:
    """Changes of an epoch of a second for whose folding half of the share is enough."""
    return int(share / 2 / FOLD) - fold_work(epochs=1, changes=0)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("live", [1_000, 100_000])
def test_folding_takes_its_share_at_most_at_any_time_from_the_start_on(share: float, live: int) -> None:
    model = Model(share, live=live)
    heavy = affordable(share)
    a_fold = 2 * FOLDED * (heavy + AN_EPOCH) * FOLD  # the first one costs more than was guessed
    model.run([heavy] * 2000)

    assert max(model.excess) <= a_fold
    assert model.cpu <= share * model.now
    assert model.cpu >= share * model.now * 0.45  # what is paid for is used
    assert model.most_waiting < MOST_EPOCHS


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("first", ["low", "high"])
def test_folding_takes_its_share_at_most_though_the_load_rises_and_falls_tenfold(share: float, first: str) -> None:
    model = Model(share, live=50_000)
    high = affordable(share) * 3 // 2  # of the share, folding takes 3/4 while the load is high
    waves = [[high // 10] * 300, [high] * 300]
    for wave in (waves if first == "low" else waves[::-1]) * 8:
        model.run(wave)

    assert max(model.excess) <= 2 * FOLDED * (high + AN_EPOCH) * FOLD
    assert model.cpu <= share * model.now
    assert model.entries <= 12 * model.live


@pytest.mark.parametrize("share", SHARES)
def test_a_burst_beyond_the_share_waits_in_records_until_it_is_paid_for(share: float) -> None:
    model = Model(share, live=50_000)
    burst = 6 * affordable(share)  # three times the share, for its folding alone
    for _ in range(8):
        model.run([burst] * 100)
        model.run([burst // 10] * 500)

    assert max(model.excess) <= FOLDED * (burst + AN_EPOCH) * FOLD
    assert model.cpu <= share * model.now
    assert model.most_waiting < MOST_EPOCHS


def test_what_a_share_does_not_pay_for_is_held_off_by_limits_alone() -> None:
    model = Model(0.02, live=20_000)
    model.run([20 * affordable(0.02)] * 3000)

    assert model.most_waiting <= MOST_EPOCHS
    assert model.most_segments <= MOST_SEGMENTS + 1
    assert model.entries <= 12 * model.live
    assert model.folds <= 3000 / MOST_EPOCHS + 1  # as rarely as it may


def test_tiny_segments_do_not_pile_up_while_no_merge_can_be_paid_for() -> None:
    model = Model(1e-5, live=10_000_000)
    model.run([100] * 40_000)

    assert model.most_segments <= MOST_SEGMENTS + 1


def test_what_was_spent_in_a_quiet_time_is_paid_back_before_more_is_spent() -> None:
    now, cpu = [0.0], [0.0]
    budget = Budget(lambda: 0.02, clock=lambda: now[0], thread_time=lambda: cpu[0])
    with budget.spending():
        cpu[0] += 1.0
    now[0] = 50.0

    assert not budget.affords(0.01)
    now[0] = 51.0
    assert budget.affords(0.01)
    assert Budget(lambda: None, clock=lambda: 0.0).affords(1e9)


@pytest.mark.parametrize(("spent", "is_overspent"), [(1.0, False), (2.0, False), (2.3, True)])
def test_more_than_its_share_was_taken_if_a_minute_does_not_make_it_good(spent: float, is_overspent: bool) -> None:
    now, cpu = [0.0], [0.0]
    budget = Budget(lambda: 0.02, clock=lambda: now[0], thread_time=lambda: cpu[0])
    now[0] = 50.0
    with budget.spending():
        cpu[0] += spent

    assert budget.is_overspent == is_overspent
