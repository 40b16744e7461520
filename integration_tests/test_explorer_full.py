"""The full search: three driver starts over two epochs, every interleaving, in every mode.

What is exhaustive and what is bounded is said in ``tests/txn/test_explorer.py``, which searches every mode with two
starts. Here one mode is searched by default, and all of them as part of the long matrix: on one core the first five
take about two minutes together. With compaction, which makes every record that is folded away a step of its own, and
with a fourth process beside three drivers, the search is five to ten times as large.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.txn.explorer import Explorer
from tests.txn.world import Setting


@pytest.mark.matrix
@pytest.mark.parametrize("setting", [Setting(starts=2, epochs=1, sinks=2), Setting(starts=2, epochs=2)], ids=str)
def test_the_reductions_reach_the_same_worlds(setting: Setting) -> None:
    assert Explorer(replace(setting, reduced=False)).run().worlds == Explorer(setting).run().worlds


def explore(setting: Setting) -> int:
    explored = Explorer(setting, print, doubting=True).run()
    print(setting, explored)
    return explored.states


def test_no_order_of_events_breaks_the_promise() -> None:
    assert explore(Setting(starts=3, epochs=2)) > 100_000


@pytest.mark.matrix
@pytest.mark.parametrize(
    "setting",
    [
        Setting(starts=3, epochs=2, eager=True),
        Setting(starts=3, epochs=2, sinks=2),
        Setting(starts=3, epochs=2, begin_first=True),
        Setting(starts=2, epochs=2, compacted=True, cleaners=1, fencing=True),
    ],
    ids=str,
)
def test_no_order_breaks_the_promise_in_other_modes(setting: Setting) -> None:
    assert explore(setting) > 100_000


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("eager", [False, True])
def test_no_order_breaks_the_promise_while_the_journal_is_compacted(eager: bool) -> None:
    assert explore(Setting(starts=3, epochs=2, compacted=True, eager=eager)) > 1_000_000


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fencing", [False, True])
def test_no_order_breaks_the_promise_while_recover_and_gc_run_beside_three_drivers(fencing: bool) -> None:
    assert explore(Setting(starts=3, epochs=1, cleaners=1, fencing=fencing)) > 1_000_000


@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_no_order_of_two_starts_and_four_epochs_breaks_the_promise() -> None:
    assert explore(Setting(starts=2, epochs=4, compacted=True)) > 100_000
