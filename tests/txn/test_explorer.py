"""The protocol under every order of events, and proof that the search would see it broken.

Exhaustive: every interleaving of the operations of the given number of driver starts over the given
number of epochs, with one or two sinks, on file systems that keep what `Files` promises; every driver may
stall for any time or die at any operation. Bounded: the number of starts and epochs; stores do not
fail (that is the settler's and the kill matrix's part). The larger settings are searched in
``integration_tests/test_explorer_full.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from epochal.txn import coordinator, view
from epochal.txn.coordinator import Coordinator
from epochal.txn.model import Attempt
from epochal.txn.plan import Decide, Finish, Sweep, choose, lowest_open, next_step, sweep
from epochal.txn.records import Decided, Prepared, encode
from epochal.txn.view import View, handles
from tests.txn import drivers
from tests.txn.explorer import Explorer, Found
from tests.txn.fronts import view_of
from tests.txn.world import Setting, World, faults, unfinished

ONE_EPOCH = Setting(starts=2, epochs=1)


@pytest.fixture(autouse=True)
def fresh_views() -> Iterator[None]:
    yield
    view_of.cache_clear()


def found_in(setting: Setting) -> Found:
    with pytest.raises(Found) as caught:
        Explorer(setting).run()
    print(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "setting",
    [
        Setting(starts=3, epochs=1),
        Setting(starts=2, epochs=2),
        Setting(starts=2, epochs=2, eager=True),
        Setting(starts=2, epochs=2, sinks=2),
        Setting(starts=2, epochs=1, begin_first=True),
        Setting(starts=2, epochs=2, compacted=True),
        Setting(starts=2, epochs=1, cleaners=1),
        Setting(starts=2, epochs=1, cleaners=1, fencing=True),
    ],
    ids=str,
)
def test_no_order_of_events_loses_doubles_or_shows_early(setting: Setting) -> None:
    explored = Explorer(setting, doubting=setting.starts == 2).run()
    print(setting, explored)

    assert explored.states > 1000


@pytest.mark.parametrize(
    "setting",
    [ONE_EPOCH, Setting(starts=2, epochs=1, eager=True)],
    ids=str,
)
def test_the_reductions_reach_the_same_worlds(setting: Setting) -> None:
    reduced = Explorer(setting).run()

    full = Explorer(replace(setting, reduced=False)).run()

    assert full.worlds == reduced.worlds
    assert full.states > 3 * reduced.states


def test_the_doubting_explorer_sees_what_must_not_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(drivers.FORGET, "settle", lambda operation, held, last: ())

    with pytest.raises(AssertionError, match="does not say all"):
        Explorer(Setting(starts=2, epochs=2), doubting=True).run()


def test_without_the_seal_an_epoch_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_seal(seen: View, attempt: Attempt, *, newest: int) -> Sweep:
        verdict = sweep(seen, attempt, newest=newest)
        return Sweep.REMOVE if verdict is Sweep.SEAL_THEN_REMOVE else verdict

    monkeypatch.setattr(coordinator, "sweep", no_seal)

    # Two starts do not show it: the first driver looks at the fence once more after PREPARED.
    assert found_in(Setting(starts=3, epochs=1)).fault == "loss: epoch 0 is decided, and what its winner staged is gone"


def test_removing_a_prepared_attempt_before_the_decision_loses_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(self: Coordinator[None]) -> list[Attempt]:
        committed = self._checkpoint.committed()
        for participant in self._participants.values():
            for attempt in participant.leftovers(self.lineage):
                if attempt.epoch > committed:  # Spark will replay it, so its older attempts are of no use
                    participant.abort(attempt, None)
        return []

    monkeypatch.setattr(Coordinator, "clear", impatient)

    assert found_in(ONE_EPOCH).fault == "loss: epoch 0 is decided, and what its winner staged is gone"


def test_without_decided_an_epoch_is_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_choice(seen: View, committed: int, offsets: str | None) -> Decide | Finish | None:
        epoch = lowest_open(seen)
        if epoch > committed:
            return None
        winner = choose(seen, epoch, offsets)
        if epoch not in seen.decided:
            return Decide(epoch, winner)  # written, for the guard's sake, but not obeyed
        prepared = seen.prepared(epoch)
        losers = tuple((g, handles(record)) for g, record in prepared.items() if g != winner)
        return Finish(epoch, winner, handles(prepared[winner]), losers)

    def keep_until_done(seen: View, attempt: Attempt, *, newest: int) -> Sweep:
        undone = attempt.generation in seen.prepared(attempt.epoch) and not seen.is_over(attempt.epoch)
        return Sweep.KEEP if undone else sweep(seen, attempt, newest=newest)

    monkeypatch.setattr(coordinator, "next_step", own_choice)
    monkeypatch.setattr(coordinator, "sweep", keep_until_done)
    monkeypatch.setattr(view, "_check", lambda *_: None)  # DONE may name another than DECIDED

    assert found_in(ONE_EPOCH).fault == "double: epoch 0 is visible from generations [1, 2]"


def test_deciding_without_waiting_for_the_checkpoint_shows_an_epoch_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_waiting(seen: View, committed: int, offsets: str | None) -> Decide | Finish | None:
        prepared = [epoch for epoch in seen.attempts if seen.prepared(epoch)]
        return next_step(seen, max([committed, *prepared]), offsets)

    monkeypatch.setattr(coordinator, "next_step", no_waiting)

    assert found_in(ONE_EPOCH).fault == "early view: epoch 0 is visible before commits/0"


def test_never_removing_anything_leaves_staged_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sweep(seen: View, attempt: Attempt, *, newest: int) -> Sweep:
        return Sweep.KEEP

    monkeypatch.setattr(coordinator, "sweep", no_sweep)

    found = found_in(ONE_EPOCH)

    assert found.fault == "staged data left: [(0, 1, 1)]"
    assert "all drivers die; Z starts and runs alone" in found.trace


def journal(*records: Prepared | Decided) -> frozenset[tuple[str, bytes]]:
    return frozenset((record.name, encode(record)) for record in records)


WHOLE = frozenset({(0, 1, 1), (0, 1, 2)})
OTHER = frozenset({(0, 2, 1), (0, 2, 2)})
PREPARED = journal(Prepared(0, 1, "", {}), Prepared(0, 2, "", {}))


@pytest.mark.parametrize(
    ("world", "fault"),
    [
        (World(visible=WHOLE), "early view: epoch 0 is visible before commits/0"),
        (World(commits=1, visible=WHOLE | OTHER), "double: epoch 0 is visible from generations [1, 2]"),
        (World(commits=1, visible=frozenset({(0, 1, 2)})), "loss: epoch 0 is visible without a part of its rows"),
        (World(commits=1), "loss: epoch 0 is decided, and what its winner staged is gone"),
        (World(commits=1, staged=WHOLE), "loss: epoch 0 is decided, and what its winner staged is gone"),
        (
            World(commits=1, journal=PREPARED | journal(Decided(0, 1)), staged=OTHER),
            "loss: epoch 0 is decided, and what its winner staged is gone",
        ),
    ],
)
def test_a_broken_promise_is_seen_in_a_world(world: World, fault: str) -> None:
    assert faults(world, ONE_EPOCH)[0] == fault


def test_an_epoch_before_its_predecessor_is_seen_in_a_world() -> None:
    later = frozenset({(1, 1, 1), (1, 1, 2)})
    world = World(commits=2, visible=later, staged=WHOLE, journal=PREPARED)

    assert faults(world, Setting(starts=1, epochs=2)) == ["order: epoch 1 is visible before epoch 0"]


TWO_SINKS = Setting(starts=2, epochs=1, sinks=2)


@pytest.mark.parametrize(
    ("world", "fault"),
    [
        (
            World(commits=1, journal=PREPARED, visible=frozenset({(0, 1, 1), (0, 2, 2)})),
            "double: epoch 0 is visible from generations [1, 2]",
        ),
        (
            World(commits=1, journal=PREPARED, visible=frozenset({(0, 1, 1)})),
            "loss: epoch 0 is decided, and what its winner staged is gone",
        ),
        (
            World(commits=1, journal=PREPARED, staged=frozenset({(0, 1, 1), (0, 2, 2)})),
            "loss: epoch 0 is decided, and what its winner staged is gone",
        ),
    ],
)
def test_sinks_that_do_not_hold_the_same_attempt_are_seen_in_a_world(world: World, fault: str) -> None:
    assert fault in faults(world, TWO_SINKS)


def test_an_epoch_may_be_visible_in_one_sink_and_staged_in_the_other() -> None:
    world = World(commits=1, journal=PREPARED, visible=frozenset({(0, 1, 1)}), staged=frozenset({(0, 1, 2)}))

    assert faults(world, TWO_SINKS) == []


def test_any_prepared_attempt_may_still_win_until_one_is_decided() -> None:
    assert faults(World(commits=1, journal=PREPARED, staged=OTHER), ONE_EPOCH) == []


def test_an_end_with_something_missing_or_left_is_seen() -> None:
    assert unfinished(World(staged=OTHER), ONE_EPOCH) == [
        "staged data left: [(0, 2, 1), (0, 2, 2)]",
        "not every epoch is visible: []",
    ]
    assert unfinished(World(visible=WHOLE), ONE_EPOCH) == []
