"""What stays open over epochs and is closed between them: nothing of it is lost, doubled or forgotten."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import DirectoryParticipant
from epochal.testing.contract import claim_for
from epochal.txn import failpoints, rolls
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import CommitFailed, FencedOut, JournalLost, OffsetsChanged, Refused, Rewound
from epochal.txn.model import Attempt, Batch, Handle, Json, Outcome, RollRequest, Staged
from epochal.txn.records import Roll
from epochal.txn.recovery import Recovery, Sinks, open_rows, roll_all
from epochal.txn.view import KEEP_GENERATIONS
from tests.txn.keeping import Keeping
from tests.txn.memory import MemoryFiles
from tests.txn.stream import QUERY, TAG, Rows, Stream

IDLE = 10.0


@dataclass
class Scene(Stream):
    """A stream whose sink keeps its rows open, and the wall clock of all its drivers."""

    now: float = 1000.0
    events: dict[str, Callable[[], None]] = field(default_factory=dict)  # failpoint -> what happens there, once

    def keeping(self, path: str = "sink", *, name: str = "sink", most: int = 1000) -> Keeping:
        return Keeping(path, name=name, files=self.files, most=most, idle=IDLE, clock=lambda: self.now)

    def die_in_a_roll(self, driver: Coordinator[Rows], point: str) -> None:
        """Close all that is open, and die at a failpoint of it."""
        self.events[point] = die
        with pytest.raises(Stop):
            driver.roll(every=True)

    def sink(self, name: str = "sink") -> Keeping:
        return self.keeping(name, name=name)

    def small(self, *sinks: Keeping) -> Coordinator[Rows]:
        """A start whose journal is folded as often as can be."""
        coordinator = self.coordinator(*sinks, retain=1)
        coordinator.begin()
        return coordinator

    def pass_idle_time(self) -> None:
        self.now += IDLE

    def rows(self) -> list[Json]:
        return sorted(self.sink().rows(), key=lambda row: str(row).zfill(4))

    def hit(self, name: str) -> None:
        self.events.pop(name, lambda: None)()

    def sinks(self) -> Sinks:
        return Sinks(self.journal().read(), self.build)

    def build(self, description: Mapping[str, Json]) -> DirectoryParticipant:
        target, name = str(description["target"]), str(description["name"])
        if description["type"] != "keeping":
            return DirectoryParticipant(target, name=name, files=self.files)
        return self.keeping(target, name=name, most=0)

    def recover(self) -> None:
        """`epochal recover`."""
        self.recovery().settle()

    def recovery(self) -> Recovery:
        checkpoint = SparkCheckpoint(self.files, self.path)
        return Recovery(journals=self.journal, checkpoint=checkpoint, sinks=self.sinks(), on_commit=lambda *_: None)

    def roll_all(self) -> int:
        """`epochal roll`, up to the record."""
        return roll_all(self.journal(), SparkCheckpoint(self.files, self.path), QUERY, self.sinks())

    def names(self) -> list[str]:
        return list(self.files.names(self.journal().path))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    monkeypatch.setattr(failpoints, "hit", scene.hit)
    return scene


class Stop(Exception):
    """A driver dies where a failpoint stands."""


def die() -> None:
    raise Stop


def kept(scene: Scene) -> list[str]:
    return sorted(key for key in scene.journal().read().sink_state("sink") if key != "target")


# What is open, and what a roll shows.


def test_rows_of_an_open_part_are_committed_and_not_shown(scene: Scene) -> None:
    scene.run(scene.start(), 0, 1)

    assert scene.rows() == []
    assert kept(scene) == ["000000000000", "000000000001"]
    assert scene.sink().lying_open() == kept(scene)


def test_a_part_that_is_full_is_shown_with_the_epoch_that_filled_it(scene: Scene) -> None:
    driver = scene.start(scene.keeping(most=2))
    scene.run(driver, 0, 1, 2)

    assert scene.rows() == [0, 1]
    assert kept(scene) == ["000000000002"]


def test_a_later_start_goes_on_with_what_is_open(scene: Scene) -> None:
    scene.run(scene.start(scene.keeping(most=3)), 0, 1)
    scene.run(scene.start(scene.keeping(most=3)), 2)

    assert scene.rows() == [0, 1, 2]
    assert scene.sink().lying_open() == []


def test_an_epoch_that_loses_changes_nothing_of_what_is_open(scene: Scene) -> None:
    first = scene.start()
    scene.plan(0)
    first.run(0, ["lost"])
    second = scene.start()
    scene.run(second, 0)

    second.roll(every=True)

    assert scene.rows() == [0]


def test_what_is_idle_is_closed_when_its_time_has_come_and_not_before(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    early = driver.roll()
    due = driver.due()
    scene.pass_idle_time()

    assert not early
    assert due == scene.now
    assert driver.roll()
    assert scene.rows() == [0]
    assert driver.due() is None


def test_nothing_that_is_open_is_nothing_to_roll(scene: Scene) -> None:
    driver = scene.start()

    assert not driver.roll(every=True)
    assert driver.due() is None
    assert not any(name.startswith("r") for name in scene.names())


def test_a_second_roll_of_a_generation_has_the_next_number(scene: Scene) -> None:
    driver = scene.start()
    for epoch in range(2):
        scene.run(driver, epoch)
        driver.roll(every=True)

    assert sorted(scene.journal().read().rolls[1]) == [1, 2]
    assert scene.rows() == [0, 1]


def test_no_roll_comes_between_an_attempt_and_its_end(scene: Scene) -> None:
    driver = scene.start(scene.keeping(most=2))
    scene.run(driver, 0)
    scene.plan(1)
    driver.run(1, [1])
    prepared = driver.roll(every=True)
    scene.commit(1)
    committed = driver.roll(every=True)
    driver.settle()

    assert not prepared
    assert not committed
    assert scene.rows() == [0, 1]


def test_no_roll_comes_before_an_older_generations_attempt_is_decided(scene: Scene) -> None:
    older = scene.start(scene.keeping(most=2))
    scene.run(older, 0)
    scene.plan(1)
    older.run(1, [1])
    newer = scene.start()

    assert not newer.roll(every=True)
    scene.commit(1)
    newer.settle()
    assert scene.rows() == [0, 1]


def test_a_roll_that_is_recorded_is_carried_out_by_whoever_comes(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    scene.die_in_a_roll(driver, "after-roll")
    shown = scene.rows()
    scene.recover()

    assert shown == []
    assert scene.rows() == [0]
    assert scene.sink().leftovers(QUERY) == []
    assert scene.sink().lying_open() == []


def test_the_next_start_keeps_a_recorded_roll_and_carries_it_out(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    scene.die_in_a_roll(driver, "after-roll")
    scene.run(scene.start(scene.keeping(most=1)), 1)

    assert scene.rows() == [0, 1]


def test_a_roll_that_died_before_its_record_is_removed_and_its_part_stays_open(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    scene.die_in_a_roll(driver, "before-roll")
    left = scene.sink().leftovers(QUERY)
    newer = scene.start()

    assert left == [Attempt(QUERY, 0, 1, 1)]
    assert scene.sink().leftovers(QUERY) == []
    assert newer.roll(every=True)
    assert scene.rows() == [0]


def test_a_roll_that_slept_is_sealed_by_a_newer_start(scene: Scene) -> None:
    older = scene.start()
    scene.run(older, 0)

    def a_newer_start_fills_the_part() -> None:
        scene.run(scene.start(scene.keeping(most=2)), 1)

    scene.events["before-roll"] = a_newer_start_fills_the_part
    with pytest.raises(FencedOut, match="its roll was sealed"):
        older.roll(every=True)

    scene.recover()
    assert scene.rows() == [0, 1]
    assert scene.sink().leftovers(QUERY) == []


def test_a_start_that_died_before_its_seal_leaves_nothing_to_a_driver_that_slept(scene: Scene) -> None:
    older = scene.start()
    scene.run(older, 0)

    def starts() -> None:
        scene.events["before-roll-seal"] = die
        with pytest.raises(Stop):
            scene.start()
        scene.run(scene.start(scene.keeping(most=2)), 1)

    scene.events["before-roll"] = starts
    with pytest.raises(FencedOut):
        older.roll(every=True)

    assert scene.rows() == [0, 1]


def test_a_superseded_driver_rolls_nothing(scene: Scene) -> None:
    older = scene.start()
    scene.run(older, 0)
    scene.start()

    with pytest.raises(FencedOut, match="generation 2 has taken over"):
        older.roll(every=True)
    assert scene.sink().leftovers(QUERY) == []


class Away(Keeping):
    """A folder whose commits, rolls or aborts fail for a while."""

    fails = ""
    last: Attempt | None = None

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        self._may_fail("commit", attempt)
        return super().commit(attempt, handle)

    def roll(self, request: RollRequest) -> Staged | None:
        staged = super().roll(request)
        self._may_fail("roll", request.attempt)
        return staged

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._may_fail("abort", attempt)
        super().abort(attempt, handle)

    def _may_fail(self, call: str, attempt: Attempt) -> None:
        self.last = attempt
        if call in self.fails.split():
            raise ConnectionError("away")


def away(scene: Scene, name: str = "sink") -> Away:
    return Away(name, name=name, files=scene.files, idle=IDLE, clock=lambda: scene.now)


def test_a_roll_whose_store_is_away_is_held_and_no_later_epoch_passes_it(scene: Scene) -> None:
    sink = away(scene)
    driver = scene.start(sink)
    scene.run(driver, 0)
    sink.fails = "commit"
    with pytest.raises(CommitFailed):
        driver.roll(every=True)
    scene.plan(1)
    driver.run(1, [1])
    scene.commit(1)

    with pytest.raises(CommitFailed):
        driver.settle()
    assert sink.last == Attempt(QUERY, 0, 1, 1)
    sink.fails = ""
    driver.settle()
    assert scene.rows() == [0]
    assert kept(scene) == ["000000000001"]


def test_a_roll_that_one_sink_cannot_stage_leaves_nothing_in_the_other(scene: Scene) -> None:
    sink, other = scene.sink(), away(scene, "other")
    driver = scene.start(sink, other)
    scene.run(driver, 0)
    other.fails = "roll"

    with pytest.raises(CommitFailed, match="sink 'other'"):
        driver.roll(every=True)
    assert sink.leftovers(QUERY) == other.leftovers(QUERY) == []
    other.fails = ""
    assert driver.roll(every=True)
    assert sink.rows() == other.rows() == [0]


def test_a_roll_that_is_tried_again_does_not_find_what_its_first_try_staged(scene: Scene) -> None:
    sink = away(scene)
    driver = scene.start(sink)
    scene.run(driver, 0)
    scene.files.create(f"sink/_staged/{QUERY}/{Attempt(QUERY, 0, 1, 1).key}/part", b"{}\nhalf of it")

    assert driver.roll(every=True)
    assert scene.rows() == [0]


def test_a_roll_whose_record_was_made_though_the_file_system_says_no_is_ours(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    create = scene.files.create

    def answer_lost(path: str, data: bytes, *, durable: bool = True) -> bool:
        created = create(path, data, durable=durable)
        return created and not path.endswith("r000001.000001.json")

    monkeypatch.setattr(scene.files, "create", answer_lost)

    assert driver.roll(every=True)
    assert scene.rows() == [0]


def test_a_roll_whose_name_a_replaced_journal_has_taken_removes_nothing_of_its_namesake(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    scene.events["before-roll"] = lambda: print(scene.journal().roll(Roll(1, 1, by=1, after=0, at="theirs")))

    with pytest.raises(FencedOut):
        driver.roll(every=True)
    assert scene.sink().leftovers(QUERY) == [Attempt(QUERY, 0, 1, 1)]


# A generation whose own sinks have no policy can roll too: `epochal roll` does.


def test_a_roll_of_a_generation_without_a_policy_is_sealed_too(scene: Scene) -> None:
    scene.run(scene.start(), 0)
    scene.start(scene.keeping(most=0))  # the policy was taken away, and no epoch has come since

    def a_newer_start_closes_what_is_open() -> None:
        scene.run(scene.start(scene.keeping(most=0)), 1)

    scene.events["before-roll"] = a_newer_start_closes_what_is_open
    with pytest.raises(FencedOut):
        scene.roll_all()

    scene.recover()
    assert scene.rows() == [0, 1]


def test_a_roll_that_had_not_staged_when_a_newer_start_swept_is_sealed_too(scene: Scene) -> None:
    scene.run(scene.start(), 0)
    scene.start(scene.keeping(most=0))
    newer: list[Coordinator[Rows]] = []
    scene.events["after-generation"] = lambda: newer.append(scene.start(scene.keeping(most=0)))

    with pytest.raises(FencedOut):
        scene.roll_all()
    scene.run(newer[0], 1)

    assert scene.rows() == [0, 1]


class Undescribed(Keeping):
    """A sink that does not say that it keeps parts open."""

    @property
    def opens(self) -> bool:
        return False


def test_a_roll_of_a_sink_that_does_not_say_so_is_sealed_too_once_something_is_open(scene: Scene) -> None:
    older = scene.start(Undescribed("sink", files=scene.files))
    scene.run(older, 0)
    view = older.journal.read()
    scene.run(scene.start(Undescribed("sink", files=scene.files, most=2)), 1)

    assert view.may_roll
    assert scene.journal().read().next_roll(1) is None


# `epochal roll`.


def test_epochal_roll_shows_all_that_is_open_and_stops_the_driver(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0, 1)
    before = open_rows(scene.journal().read(), scene.sinks())
    scene.roll_all()
    scene.recover()

    assert [(sink, part.chunks) for sink, part in before] == [("sink", 2)]
    assert scene.rows() == [0, 1]
    assert open_rows(scene.journal().read(), scene.sinks()) == []
    scene.plan(2)
    with pytest.raises(FencedOut):
        driver.run(2, [2])


def test_epochal_roll_is_refused_while_an_epoch_is_in_doubt_and_stops_nobody(scene: Scene) -> None:
    driver = scene.start(scene.keeping(most=2))
    scene.run(driver, 0)
    scene.plan(1)
    driver.run(1, [1])

    with pytest.raises(Refused, match="epoch 1 is not decided"):
        scene.roll_all()
    scene.commit(1)
    driver.settle()
    scene.run(driver, 2)
    assert scene.rows() == [0, 1]


def test_an_epoch_that_is_prepared_while_epochal_roll_starts_is_not_rolled_over(scene: Scene) -> None:
    driver = scene.start(scene.keeping(most=2))
    scene.run(driver, 0)

    def an_epoch_comes() -> None:
        scene.plan(1)
        driver.run(1, [1])

    scene.events["before-generation"] = an_epoch_comes
    with pytest.raises(Refused, match="epoch 1 is not decided"):
        scene.roll_all()

    scene.commit(1)
    scene.recover()
    assert scene.rows() == [0, 1]


@pytest.mark.parametrize("moment", ["before-commit", "none"])
def test_what_a_sink_that_was_removed_left_open_is_shown_by_epochal_roll(scene: Scene, moment: str) -> None:
    scene.run(scene.start(), 0)
    scene.start(DirectoryParticipant("other", name="other", files=scene.files))
    scene.events[moment] = die
    recovery = scene.recovery()
    try:
        scene.roll_all()
        recovery.settle()
    except Stop:
        scene.recover()

    assert scene.rows() == [0]


def test_what_is_open_where_a_sink_wrote_before_is_shown_there(scene: Scene) -> None:
    scene.run(scene.start(), 0)
    with pytest.raises(Refused, match="parts are open in sink"):
        scene.run(scene.start(scene.keeping("elsewhere")), 1)
    recovery = scene.recovery()
    scene.roll_all()
    recovery.settle()
    scene.run(scene.start(scene.keeping("elsewhere")), 1)

    assert scene.rows() == [0]


def test_a_start_without_a_sink_that_has_something_open_says_so(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.run(scene.start(), 0)
    with caplog.at_level(logging.WARNING, logger="epochal"):
        scene.start(DirectoryParticipant("other", name="other", files=scene.files))

    assert "sink 'sink' has open parts" in caplog.text
    assert "epochal roll" in caplog.text


class Counting(DirectoryParticipant):
    """Keeps a number over epochs, and never holds rows open."""

    def stage(self, batch: Batch[Rows]) -> Staged:
        edit = batch.edit()
        edit.value("seen").set(batch.attempt.epoch)
        return replace(super().stage(batch), changes=edit.changes)


def test_a_start_without_a_sink_that_only_keeps_state_does_not_ask_for_a_roll(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting("counting", name="counting", files=scene.files)
    with caplog.at_level(logging.WARNING, logger="epochal"):
        scene.run(scene.start(counting), 0)
        scene.start(counting)
        scene.start(DirectoryParticipant("other", name="other", files=scene.files))

    assert scene.journal().read().sink_state("counting") == {"seen": 0}
    assert "sink 'counting' of the previous start is not in this writer" in caplog.text
    assert "epochal roll" not in caplog.text


def test_new_is_not_refused_because_of_state_that_holds_no_rows(scene: Scene) -> None:
    scene.run(scene.start(Counting("counting", name="counting", files=scene.files)), 0)
    other = DirectoryParticipant("other", name="other", files=scene.files)
    view = scene.journal().read()

    assert rolls.without_owner(view, {"other": other}) == []


def test_open_rows_are_known_as_such_when_the_start_that_opened_them_is_old(scene: Scene) -> None:
    scene.run(scene.start(), 0)
    closing = scene.keeping(most=0)
    for _ in range(KEEP_GENERATIONS + 3):
        scene.small(closing)
    other = scene.small(scene.sink("other"))

    assert rolls.without_owner(other.journal.read(), {}) == ["sink"]


# A roll that has been carried out is over.


def test_a_sink_can_be_removed_once_its_rolls_are_carried_out(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    driver.roll(every=True)
    other = DirectoryParticipant("other", name="other", files=scene.files)
    scene.run(scene.start(other), 1)

    assert other.rows() == [1]


def test_a_sink_can_move_once_its_rolls_are_carried_out(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    driver.roll(every=True)
    moved = scene.keeping("elsewhere", most=1)
    scene.run(scene.start(moved), 1)

    assert moved.rows() == [1]


def test_a_roll_that_waits_for_a_sink_that_was_removed_is_named_and_recover_finishes_it(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    scene.die_in_a_roll(driver, "after-roll")
    other = DirectoryParticipant("other", name="other", files=scene.files)
    with pytest.raises(Refused, match="waits for sink 'sink'"):
        scene.start(other).settle()
    scene.recover()
    scene.run(scene.start(other), 1)

    assert scene.rows() == [0]


def test_what_a_power_cut_takes_of_a_carried_out_roll_is_done_again_to_no_effect(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    driver.roll(every=True)
    for name in ("e000000000000.decided.json", "e000000000000.done.json", "r000001.000001.done.json"):
        scene.files.delete(f"{scene.journal().path}/{name}")
    again = scene.start()
    again.settle()

    assert scene.rows() == [0]
    assert scene.journal().read().done_through == 0
    assert kept(scene) == []


def test_a_roll_waits_for_an_epoch_that_a_power_cut_took_back(scene: Scene) -> None:
    driver = scene.start()
    scene.plan(0)
    driver.run(0, [0])
    scene.commit(0)
    durable = dict(scene.files.content)
    driver.settle()
    scene.die_in_a_roll(driver, "after-roll")
    of_the_roll = {p: d for p, d in scene.files.content.items() if "r000001" in p}
    scene.files.content = {**durable, **of_the_roll}
    scene.start().settle()

    assert scene.rows() == [0]
    assert scene.sink().lying_open() == []
    assert scene.sink().leftovers(QUERY) == []


def test_a_roll_is_carried_out_once_by_each_process_and_never_after_it_is_done(scene: Scene) -> None:
    sink = away(scene)
    driver = scene.start(sink)
    scene.run(driver, 0)
    driver.roll(every=True)
    sink.last = None
    driver.settle()
    scene.start(sink).settle()

    assert sink.last is None


# Compaction.


def test_what_is_open_outlives_every_compaction(scene: Scene) -> None:
    driver = scene.small()
    scene.run(driver, *range(60))
    newer = scene.small()
    newer.roll(every=True)

    assert scene.journal().read().floor > 30
    assert scene.rows() == list(range(60))
    assert scene.sink().lying_open() == []


def test_rolls_are_folded_away_with_their_epochs(scene: Scene) -> None:
    driver = scene.small()
    for epoch in range(80):
        scene.run(driver, epoch)
        driver.roll(every=True)

    recorded = [name for name in scene.names() if name.startswith("r")]
    assert scene.rows() == list(range(80))
    assert len(recorded) < 2 * 25
    assert scene.journal().read().next_roll(1) == 81


def test_the_last_number_of_a_generations_rolls_is_not_forgotten(scene: Scene) -> None:
    driver = scene.small()
    scene.run(driver, 0)
    driver.roll(every=True)
    scene.run(driver, *range(1, 60))

    assert scene.journal().read().floor > 30
    assert scene.journal().read().next_roll(1) == 2


def test_what_is_open_is_folded_up_to_the_snapshot_and_not_beyond(scene: Scene) -> None:
    driver = scene.start()
    scene.run(driver, 0)
    driver.roll(every=True)
    scene.run(driver, 1)
    view = scene.journal().read()

    assert view.sink_state("sink", through=0) == {}
    assert view.sink_state("sink", through=1) == view.sink_state("sink") != {}


def test_a_generation_whose_rolls_are_not_sealed_outlives_a_purge_that_slept(scene: Scene) -> None:
    older = scene.start()
    scene.run(older, *range(6))
    seen = older.journal.read()
    for _ in range(KEEP_GENERATIONS + 1):
        scene.events["before-roll-seal"] = die
        with pytest.raises(Stop):
            scene.start()

    def the_older_one_goes_on_with_its_roll() -> None:
        attempt = Attempt(QUERY, 5, 1, 1, seen.start_of(1))
        assert rolls.close(older.journal, seen, older._participants, attempt, every=True)
        older.settle()

    scene.events["before-purge"] = the_older_one_goes_on_with_its_roll
    scene.journal().compact(scene.journal().read(), retain=1, slack=0)

    assert scene.rows() == [*range(6)]
    assert kept(scene) == []


def test_the_seals_of_generations_that_are_gone_go_too(scene: Scene) -> None:
    for _ in range(3 * KEEP_GENERATIONS):
        driver = scene.small()
    scene.run(driver, *range(60))

    numbers = {int(name[1:7]) for name in scene.names() if name.startswith("r")}
    assert numbers <= set(scene.journal().read().generations)


def test_a_purge_that_died_before_the_seals_leaves_them_to_the_next(scene: Scene) -> None:
    for _ in range(2 * KEEP_GENERATIONS):
        driver = scene.small()
    scene.run(driver, *range(20))
    for number in range(1, 5):
        scene.files.delete(f"{scene.journal().path}/g{number:06d}.json")  # as far as it came
    scene.run(driver, *range(20, 60))

    numbers = {int(name[1:7]) for name in scene.names() if name.startswith("r")}
    assert numbers <= set(scene.journal().read().generations)


def test_a_purge_that_slept_does_not_take_the_start_of_a_roll_that_it_has_not_seen(scene: Scene) -> None:
    first = scene.small()
    scene.run(first, *range(24))
    stale = scene.journal().read()
    roller = scene.start()
    scene.run(roller, 24)
    roller.roll(every=True)
    for _ in range(KEEP_GENERATIONS + 1):
        last = scene.start()
    scene.journal().compact(stale, retain=1, slack=0)

    assert kept(scene) == []
    assert scene.rows() == list(range(25))
    scene.run(last, 25)
    last.roll(every=True)
    assert scene.rows() == list(range(26))


def test_a_roll_recorded_after_its_generation_was_purged_never_was_and_is_swept(scene: Scene) -> None:
    older = scene.small()
    scene.run(older, 0)
    newest: list[Coordinator[Rows]] = []

    def many_starts() -> None:
        newest.extend(scene.small() for _ in range(KEEP_GENERATIONS + 2))
        scene.run(newest[-1], *range(1, 60))

    def a_start_that_does_not_see_what_is_staged() -> None:
        staged = f"/{Attempt(QUERY, 0, 1, 1).number}-"
        (path,) = [path for path in scene.files.content if staged in path and path.endswith("/part")]
        hidden = scene.files.content.pop(path)
        many_starts()
        scene.files.content[path] = hidden

    scene.events["before-roll"] = a_start_that_does_not_see_what_is_staged
    with pytest.raises(FencedOut):
        older.roll(every=True)
    recorded = "r000001.000001.json" in scene.names()
    last = scene.small()
    left = scene.sink().leftovers(QUERY)
    scene.run(last, *range(60, 120))

    assert recorded
    assert left == []
    assert "r000001.000001.json" not in scene.names()
    last.roll(every=True)
    assert scene.rows() == list(range(120))


def test_where_a_removed_sink_has_something_open_is_not_forgotten(scene: Scene) -> None:
    scene.run(scene.start(), 0)
    other = DirectoryParticipant("other", name="other", files=scene.files)
    for _ in range(KEEP_GENERATIONS + 2):
        driver = scene.coordinator(other, retain=1)
        driver.begin()
    scene.run(driver, *range(1, 60))
    scene.roll_all()
    scene.recover()

    assert scene.rows() == [0]


def test_a_purge_that_stopped_anywhere_leaves_what_is_open_as_it_was(scene: Scene) -> None:
    for start in range(KEEP_GENERATIONS + 2):
        driver = scene.start()
        scene.run(driver, 2 * start, 2 * start + 1)
        if start % 2:
            driver.roll(every=True)
    scene.run(driver, 2 * KEEP_GENERATIONS + 4)
    before, expected = dict(scene.files.content), kept(scene)
    deleted: list[str] = []
    stops: list[int] = [10**6]

    def stopping(path: str) -> None:
        if len(deleted) == stops[-1]:
            raise Stop
        deleted.append(path)
        MemoryFiles.delete(scene.files, path)

    scene.files.delete = stopping  # type: ignore[method-assign]  # a purge that dies
    scene.journal().compact(scene.journal().read(), retain=1, slack=0)
    stops += range(0, len(deleted), 3)
    purged = list(deleted)
    while len(stops) > 1:
        scene.files.content = dict(before)
        deleted.clear()
        with pytest.raises(Stop):
            scene.journal().compact(scene.journal().read(), retain=1, slack=0)
        stops.pop()

        assert kept(scene) == expected
        assert scene.journal().read().pending_rolls() == []
    assert any("/g" in path for path in purged)


class Torn(MemoryFiles):
    """A folder whose next listing misses what a purge made and removed while it went on."""

    missing: frozenset[str] = frozenset()

    def names(self, path: str) -> tuple[str, ...]:
        found = tuple(name for name in super().names(path) if name not in self.missing)
        self.missing = frozenset()
        return found


@pytest.mark.parametrize("fresh", [True, False], ids=["a new process", "one that has read it before"])
def test_a_listing_that_misses_a_new_snapshot_is_made_again(fresh: bool) -> None:
    scene = Scene(files=Torn())
    files = scene.files
    assert isinstance(files, Torn)
    scene.run(scene.start(), *range(10))
    journal = scene.journal()
    if not fresh:
        journal.read()
    scene.journal().compact(scene.journal().read(), retain=1, slack=0)
    files.missing = frozenset({"s000000000008.json"})

    assert len(journal.read().sink_state("sink")) == 10 + 1


def test_a_listing_that_shows_a_roll_without_its_start_is_made_again() -> None:
    scene = Scene(files=Torn())
    files = scene.files
    assert isinstance(files, Torn)
    driver = scene.start()
    scene.run(driver, 0)
    driver.roll(every=True)
    files.missing = frozenset({"g000001.json"})

    assert scene.journal().read().sink_state("sink") == {}


# Two drivers with different offsets.


def test_an_attempt_that_a_roll_came_before_cannot_win(scene: Scene) -> None:
    zombie = scene.start(scene.keeping(most=2))
    scene.run(zombie, 0)
    scene.plan(1, "theirs")
    newer: list[Coordinator[Rows]] = []

    scene.events["before-stage"] = lambda: newer.append(scene.start(scene.keeping(most=2)))
    scene.events["after-stage"] = lambda: print(newer[0].roll(every=True))
    with pytest.raises(FencedOut):
        zombie.run(1, ["theirs"])
    scene.files.delete(f"{scene.path}/offsets/1")
    scene.plan(1, "ours")
    newer[0].run(1, ["ours"])
    scene.files.delete(f"{scene.path}/offsets/1")
    scene.plan(1, "theirs")  # a weak file system lets the older driver write last
    scene.commit(1)

    with pytest.raises(OffsetsChanged):
        newer[0].settle()
    assert scene.rows() == [0]


# A stream that goes on as a new one.


def rewound(scene: Scene, *, most: int = 1000) -> Coordinator[Rows]:
    """A driver of two epochs, and a checkpoint that knows only the first: something to choose `new` for."""
    driver = scene.start(scene.keeping(most=most))
    scene.run(driver, 0, 1)
    scene.rewind(keep=0)
    return driver


def closed_parts(scene: Scene) -> list[str]:
    """What the first incarnation still has open."""
    return sorted(key for key in scene.journal(1).read().sink_state("sink") if key != "target")


def test_new_shows_what_the_old_stream_left_open(scene: Scene) -> None:
    rewound(scene)
    again = scene.start(new=f"{TAG}@1")

    assert scene.rows() == [0, 1]
    assert closed_parts(scene) == []
    scene.run(again, 1)
    again.roll(every=True)
    assert scene.rows() == [0, 1, 1]


@pytest.mark.parametrize("moment", ["before-roll", "after-roll", "before-commit", "after-commit"])
def test_a_start_that_dies_while_it_closes_an_old_stream_leaves_it_to_the_next(scene: Scene, moment: str) -> None:
    rewound(scene)
    scene.events[moment] = die
    with pytest.raises(Stop):
        scene.start(new=f"{TAG}@1")
    scene.run(scene.start(), 1)
    scene.start()

    assert scene.rows() == [0, 1]
    assert scene.sink().leftovers(QUERY) == []
    assert [name for name in scene.sink().lying_open() if closed_parts(scene)] == []


@pytest.mark.parametrize("moment", ["before-roll", "after-roll"])
def test_two_starts_that_close_an_old_stream_at_once_show_it_once(scene: Scene, moment: str) -> None:
    rewound(scene)
    scene.events[moment] = lambda: scene.run(scene.start(), 1)
    scene.start(new=f"{TAG}@1")
    scene.recover()

    assert scene.rows() == [0, 1]
    assert scene.sink().leftovers(QUERY) == []


def test_a_start_that_is_overtaken_while_it_closes_an_old_stream_removes_nothing_of_the_other(scene: Scene) -> None:
    rewound(scene)

    def another_start_dies_with_its_roll_recorded() -> None:
        scene.events["after-roll"] = die
        with pytest.raises(Stop):
            scene.start()

    scene.events["before-roll"] = another_start_dies_with_its_roll_recorded
    scene.start(new=f"{TAG}@1")
    scene.run(scene.start(), 1)
    scene.start()

    assert scene.rows() == [0, 1]
    assert scene.sink().leftovers(QUERY) == []


def in_doubt_and_left(scene: Scene) -> tuple[Coordinator[Rows], Coordinator[Rows]]:
    """A driver that has prepared epoch 1 and slept, and the new stream that replays it."""
    zombie = scene.start(scene.keeping(most=2))
    scene.run(zombie, 0)
    scene.plan(1)
    zombie.run(1, [1])
    claim_for(scene.sink(), "other", replaces=(QUERY,))  # so that there is something to choose
    newer = scene.coordinator(new=[f"{TAG}@0", "other@none"])
    newer.begin()
    return zombie, newer


def test_a_driver_of_a_closed_stream_does_not_show_an_epoch_that_the_new_one_has(scene: Scene) -> None:
    zombie, newer = in_doubt_and_left(scene)
    newer.run(1, [1])
    scene.commit(1)
    zombie.settle()
    newer.settle()
    newer.roll(every=True)

    assert scene.rows() == [0, 1]


def test_an_epoch_that_a_closed_stream_had_in_doubt_does_not_close_what_new_has_closed(scene: Scene) -> None:
    zombie, newer = in_doubt_and_left(scene)
    scene.commit(1)
    zombie.settle()

    assert scene.rows() == [0]
    with pytest.raises(JournalLost, match="epoch 1"):
        newer.settle()


def test_a_decision_that_was_thought_of_before_a_stream_was_closed_comes_too_late(scene: Scene) -> None:
    zombie = scene.start(scene.keeping(most=2))
    scene.run(zombie, 0)
    scene.plan(1)
    zombie.run(1, [1])
    claim_for(scene.sink(), "other", replaces=(QUERY,))
    newer = scene.coordinator(new=[f"{TAG}@0", "other@none"])

    def close_and_replay() -> None:
        scene.files.delete(f"{scene.path}/commits/1")  # what the zombie has read is another driver's, and not there yet
        newer.begin()
        newer.run(1, [1])
        scene.commit(1)

    scene.commit(1)
    scene.events["before-decided"] = close_and_replay
    zombie.settle()
    newer.settle()
    newer.roll(every=True)

    assert scene.rows() == [0, 1]


def test_a_decision_that_came_before_a_stream_was_left_is_finished_and_the_new_one_begins_after_it(
    scene: Scene,
) -> None:
    zombie = scene.start(scene.keeping(most=2))
    scene.run(zombie, 0)
    scene.plan(1)
    zombie.run(1, [1])
    claim_for(scene.sink(), "other", replaces=(QUERY,))
    newer = scene.coordinator(new=[f"{TAG}@0", "other@none"])

    def the_zombie_decides() -> None:
        scene.commit(1)
        zombie.journal.decide(1, 1)

    scene.events["before-generation"] = the_zombie_decides
    newer.begin()

    assert scene.rows() == [0, 1]
    assert newer.journal.read().base == 2


def test_new_is_refused_while_a_sink_that_was_removed_has_something_open(scene: Scene) -> None:
    rewound(scene)
    other = DirectoryParticipant("other", name="other", files=scene.files)
    with pytest.raises(Refused, match=r"sink 'sink' has open parts.*epochal roll"):
        scene.start(other, new=f"{TAG}@1")

    latest = scene.journal(1).read().latest
    assert latest is not None
    assert not latest.closed
    scene.roll_all()
    scene.recover()
    scene.start(other, new=f"{TAG}@1")
    assert scene.rows() == [0, 1]


def test_new_is_refused_while_parts_are_open_where_the_sink_wrote_before(scene: Scene) -> None:
    rewound(scene)
    with pytest.raises(Refused, match="parts are open in sink"):
        scene.start(scene.keeping("elsewhere"), new=f"{TAG}@1")

    latest = scene.journal(1).read().latest
    assert latest is not None
    assert not latest.closed


def test_a_journal_from_before_parts_were_closed_is_refused_whatever_is_chosen(scene: Scene) -> None:
    driver = scene.start(scene.keeping(most=3))
    scene.run(driver, 0, 1)
    old = dict(scene.files.content)
    scene.run(driver, 2, 3)
    shown = scene.rows()
    for path in [p for p in scene.files.content if p.startswith(f"{scene.path}/")]:
        scene.files.delete(path)
    for path, data in old.items():
        if path.startswith(f"{scene.path}/"):
            scene.files.create(path, data)

    for adopt, new in ((None, None), (f"{TAG}@3", None), (None, f"{TAG}@3")):
        with pytest.raises(Rewound, match="parts were open then"):
            scene.start(scene.keeping(most=3), adopt=adopt, new=new)
    assert scene.rows() == shown == [0, 1, 2]
