"""The full search: three driver starts over two epochs, every interleaving, in every mode.

What is exhaustive and what is bounded is said in ``tests/txn/test_explorer.py``, which searches every mode with two
starts. Here one mode is searched by default, and all of them as part of the long matrix: on one core the first five
take about two minutes together. With compaction, which makes every record that is folded away a step of its own, and
with a fourth process beside three drivers, the search is five to ten times as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from epochal.txn.state.merging import merged_blocks
from epochal.txn.state.store import number_of_segment
from tests.txn.explorer import Explorer
from tests.txn.world import Setting, World


@pytest.mark.matrix
@pytest.mark.parametrize("setting", [Setting(starts=2, epochs=1, sinks=2), Setting(starts=2, epochs=2)], ids=str)
def test_the_reductions_reach_the_same_worlds(setting: Setting) -> None:
    assert Explorer(replace(setting, reduced=False)).run().worlds == Explorer(setting).run().worlds


def explore(setting: Setting, *, doubting: bool = True) -> int:
    explored = Explorer(setting, print, doubting=doubting).run()
    print(setting, explored)
    return explored.states


# Doubting takes more than twice as long and searches the same states: it sees that no driver forgets what counts, which
# `tests/txn/test_explorer.py` sees with two starts, in every mode without rolls.
@pytest.mark.parametrize("doubting", [False, pytest.param(True, marks=pytest.mark.matrix)], ids=["", "doubting"])
def test_no_order_of_events_breaks_the_promise(doubting: bool) -> None:
    assert explore(Setting(starts=3, epochs=2), doubting=doubting) > 100_000


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


def has_open_rows_in_segments_alone(world: World) -> bool:
    """Whether a part is open whose epoch has no record any more."""
    names = [name for name, _ in world.journal]
    recorded = {int(name[1:13]) for name in names if name.startswith("e")}
    return any(number_of_segment(name) is not None for name in names) and bool(world.lying_open - recorded)


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("epochs", [2, 3])
def test_no_order_of_two_drivers_that_fold_what_is_open_breaks_the_promise(
    monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    merged: list[int] = []

    def merging(segments: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        merged.append(len(segments))
        return merged_blocks(segments, *args, **kwargs)

    monkeypatch.setattr("epochal.txn.state.folding.merged_blocks", merging)
    setting = Setting(starts=2, epochs=epochs, rolling=True, compacted=True, most=3)
    explored = Explorer(setting, print).run()
    print(setting, explored)

    assert explored.states > 1000
    assert any(map(has_open_rows_in_segments_alone, explored.worlds))
    assert merged or epochs == 2  # before the third epoch there is one segment
