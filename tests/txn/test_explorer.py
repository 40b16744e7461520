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

from epochal.txn import plan, rolls, settlement, view
from epochal.txn.batches import Batches
from epochal.txn.coordinator import Coordinator
from epochal.txn.model import Attempt
from epochal.txn.plan import Decide, Finish, Removal, choose_winner, lowest_not_done, next_step, removal_of
from epochal.txn.records import Decided, Prepared, encode
from epochal.txn.settlement import Settlement
from epochal.txn.state.folding import Folding
from epochal.txn.view import View, handles
from tests.txn import drivers
from tests.txn.explorer import Explorer, Found
from tests.txn.fronts import view_of
from tests.txn.world import Setting, World, faults, unfinished

ONE_EPOCH = Setting(starts=2, epochs=1)
ROLLED_BY_THE_FIRST = Setting(starts=2, epochs=2, rolling=True, rolls=frozenset({1}))
ROLLED_AND_COMPACTED = replace(ROLLED_BY_THE_FIRST, compacted=True)
# The driver and `epochal recover` fold at once, and what is open is in segments alone.
FOLDED_BY_TWO = Setting(starts=1, epochs=3, rolling=True, compacted=True, cleaners=1, most=3)
ROLLED_BY_HAND = Setting(starts=1, epochs=2, rolling=True, rolls=frozenset({1}), cleaners=1, roller=True)


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
        Setting(starts=2, epochs=1, sinks=2, claims=True),
        Setting(starts=2, epochs=2, compacted=True),
        Setting(starts=2, epochs=1, cleaners=1),
        Setting(starts=2, epochs=1, cleaners=1, fencing=True),
        ROLLED_BY_THE_FIRST,
        Setting(starts=2, epochs=2, rolling=True, rolls=frozenset({2})),
        Setting(starts=2, epochs=2, rolling=True, rolls=frozenset({1, 2}), eager=True),
        ROLLED_AND_COMPACTED,
        FOLDED_BY_TWO,
        ROLLED_BY_HAND,
    ],
    ids=str,
)
def test_no_order_of_events_loses_doubles_or_shows_early(setting: Setting) -> None:
    # Of rolling, one is enough: doubting takes the longer the more a driver remembers.
    doubting = setting == ROLLED_BY_HAND or (setting.starts == 2 and not setting.rolling)
    explored = Explorer(setting, doubting=doubting).run()
    print(setting, explored)

    assert explored.states > 1000


@pytest.mark.parametrize(
    "setting",
    [ONE_EPOCH, Setting(starts=2, epochs=1, eager=True), Setting(starts=1, epochs=2, cleaners=1, rolling=True)],
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
    def no_seal(seen: View, attempt: Attempt, *, newest: int) -> Removal:
        verdict = removal_of(seen, attempt, newest=newest)
        return Removal.REMOVE if verdict is Removal.SEAL_THEN_REMOVE else verdict

    monkeypatch.setattr(settlement, "removal_of", no_seal)

    # Two starts do not show it: the first driver looks at the fence once more after PREPARED.
    assert found_in(Setting(starts=3, epochs=1)).fault == "loss: epoch 0 is decided, and what its winner staged is gone"


def test_what_breaks_the_promise_after_another_process_has_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(seen: View, attempt: Attempt, *, newest: int) -> Removal:
        return removal_of(seen, attempt, newest=newest + 1) if seen.prepared(attempt.epoch) else Removal.REMOVE

    monkeypatch.setattr(settlement, "removal_of", impatient)

    found = found_in(Setting(starts=1, epochs=1, cleaners=1))

    assert found.fault == "loss: epoch 0 is decided, and what its winner staged is gone"


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
        epoch = lowest_not_done(seen)
        if epoch > committed:
            return None
        winner = choose_winner(seen, epoch, offsets)
        if epoch not in seen.decided:
            return Decide(epoch, winner)  # written, for the guard's sake, but not obeyed
        prepared = seen.prepared(epoch)
        losers = tuple((g, handles(record)) for g, record in prepared.items() if g != winner)
        return Finish(epoch, winner, handles(prepared[winner]), losers)

    def keep_until_done(seen: View, attempt: Attempt, *, newest: int) -> Removal:
        undone = attempt.generation in seen.prepared(attempt.epoch) and not seen.is_over(attempt.epoch)
        return Removal.KEEP if undone else removal_of(seen, attempt, newest=newest)

    monkeypatch.setattr(settlement, "next_step", own_choice)
    monkeypatch.setattr(settlement, "removal_of", keep_until_done)
    monkeypatch.setattr(view, "_check", lambda *_: None)  # DONE may name another than DECIDED

    fault = found_in(ONE_EPOCH).fault
    assert fault == "double: epoch 0 is visible from generations [1, 2]"


def test_deciding_without_waiting_for_the_checkpoint_shows_an_epoch_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_waiting(seen: View, committed: int, offsets: str | None) -> Decide | Finish | None:
        prepared = [epoch for epoch in seen.attempts if seen.prepared(epoch)]
        return next_step(seen, max([committed, *prepared]), offsets)

    monkeypatch.setattr(settlement, "next_step", no_waiting)

    assert found_in(ONE_EPOCH).fault == "early view: epoch 0 is visible before commits/0"


def test_never_removing_anything_leaves_staged_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sweep(seen: View, attempt: Attempt, *, newest: int) -> Removal:
        return Removal.KEEP

    monkeypatch.setattr(settlement, "removal_of", no_sweep)

    found = found_in(ONE_EPOCH)

    assert found.fault == "staged data left: [(0, 1, 1)]"
    assert "all drivers die; Z starts and runs alone" in found.trace


def test_without_the_seal_of_rolls_a_part_is_shown_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolls, "seal_older", lambda journal, seen, *, by: seen)

    assert found_in(ROLLED_BY_THE_FIRST).fault == "double: the rows of epoch 0 are in 2 parts"


def test_a_roll_between_an_attempt_and_its_end_shows_a_part_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(self: Coordinator[None], *, every: bool) -> bool:
        seen = self._journal.read()
        self.check_fence(seen)
        attempt = Attempt(self.lineage, seen.done_through, self.generation, seen.next_roll(self.generation) or 0)
        recorded = rolls.close(self._journal, seen, self._participants, attempt, every=every)
        self._settlement.carry_out_rolls(self._journal, self._journal.read(), self.lineage)
        return recorded is not None

    monkeypatch.setattr(Coordinator, "roll", impatient)
    monkeypatch.setattr(View, "is_overtaken", lambda *_: False)  # which makes an error of it
    setting = replace(ROLLED_BY_THE_FIRST, rolls=frozenset({2}))

    assert found_in(setting).fault == "double: the rows of epoch 0 are in 2 parts"


def test_folding_a_roll_away_before_it_is_carried_out_leaves_staged_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settlement, "carry_out_rolls", lambda *_: None)

    fault = found_in(ROLLED_AND_COMPACTED).fault

    assert fault.startswith("staged data left")


def test_removing_a_roll_that_is_recorded_loses_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_removal_of_roll", lambda seen, attempt, *, newest: Removal.REMOVE)

    assert "DataLost" in found_in(ROLLED_BY_THE_FIRST).fault


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


ROLLING = Setting(starts=2, epochs=2, rolling=True)
OPENED, CLOSED = ((0, 1, 0), ()), ((1, 1, 0), (0, 1))


@pytest.mark.parametrize(
    ("world", "fault"),
    [
        (World(commits=1, shown=frozenset({OPENED, CLOSED})), "early view: epoch 1 is visible before commits/1"),
        (
            World(commits=2, shown=frozenset({OPENED, CLOSED, ((0, 2, 1), (0,))})),
            "double: the rows of epoch 0 are in 2 parts",
        ),
        (World(commits=1), "loss: epoch 0 is committed and its rows are nowhere"),
    ],
)
def test_a_broken_promise_is_seen_in_open_parts(world: World, fault: str) -> None:
    assert faults(world, ROLLING) == [fault]


def test_an_end_with_something_open_or_staged_is_seen() -> None:
    whole = World(commits=2, shown=frozenset({OPENED, CLOSED}))

    assert unfinished(whole, ROLLING) == []
    assert unfinished(whole._replace(lying_open=frozenset({1})), ROLLING) == ["left open: [1]"]
    assert unfinished(whole._replace(gathered=frozenset({CLOSED})), ROLLING) == [
        "staged data left: [((1, 1, 0), (0, 1))]"
    ]
    assert unfinished(whole._replace(shown=frozenset({OPENED})), ROLLING) == [
        "not every epoch is visible once: [((0, 1, 0), ())]"
    ]


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


def test_removing_what_is_superseded_without_a_look_at_commits_loses_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: Batches[None], epoch: int, offsets: str) -> None:
        for generation in self.generation.journal.view.prepared(epoch):
            if generation < self.generation.number:
                for participant in self.participants.values():
                    participant.abort(Attempt(self.generation.lineage, epoch, generation), None)

    monkeypatch.setattr(Batches, "_remove_superseded", blind)

    assert found_in(ONE_EPOCH).fault == "loss: epoch 0 is decided, and what its winner staged is gone"


def test_folding_records_away_without_their_changes_of_state_leaves_rows_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folding, "_store", lambda self, seen, through: 0)

    assert found_in(FOLDED_BY_TWO).fault.startswith("left open")
