"""A segment that vanishes under a driver: it is noticed, said once, and the state in memory is written anew."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import pytest

from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.state.folding import Folding
from epochal.txn.state.folding_plan import FoldingPlan
from epochal.txn.state.policy import Knobs, Policy
from epochal.txn.state.segments import SegmentLost
from epochal.txn.state.store import number_of_segment
from tests.txn.memory import Crash, MemoryFiles
from tests.txn.state.scribe import Scribe, WatchedFiles, fold, states
from tests.txn.state.test_folding import aged, existing, step, view_of
from tests.txn.syncs import Synced


def segments(files: MemoryFiles) -> list[str]:
    return [f"journal/{name}" for name in files.names("journal") if number_of_segment(name) is not None]


class Driver:
    """A process that has read the journal while it was whole, and goes on with it."""

    def __init__(self, scribe: Scribe) -> None:
        self.scribe = scribe
        self.journal = scribe.journal()
        self.journal.read()

    def run(self, *numbers: int) -> None:
        for number in numbers:
            self.scribe.run(step(number))
            view = self.journal.read()
            plan = self.journal.plan(view, retain=1, slack=0)
            if plan is not None:
                self.journal.fold(plan)


def test_a_lost_segment_is_said_once_and_healed_from_memory(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "epochal")
    files = MemoryFiles()
    driver = Driver(aged(files))
    lost = segments(files)[0]
    files.delete(lost)

    driver.run(12)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    with pytest.raises(JournalCorrupt, match="A driver that runs has the state in memory"):
        view_of(files)
    driver.run(13, 14)

    assert [level for level, _ in said] == ["ERROR"]
    assert lost in said[0][1]
    assert [record.getMessage() for record in caplog.records][1:] == ["the sinks' state was written anew, from memory"]
    assert states(files) == existing(driver.scribe.state)
    driver.run(15, 16, 17)
    assert states(files) == existing(driver.scribe.state)
    record = view_of(files).state_record
    assert record is not None
    assert segments(files) == sorted(f"journal/{ref.name}" for ref in record.segments)
    assert view_of(files).floor == 16


def test_a_damaged_segment_is_healed_once_a_merge_reads_it(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    driver = Driver(aged(files))
    damaged = segments(files)[0]
    files.content[damaged] = files.content[damaged][:-30]
    driver.run(*range(12, 30))

    assert states(files) == existing(driver.scribe.state)
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


def test_a_segment_that_another_process_merged_away_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    scribe = aged(files, 8)
    driver = Driver(scribe)
    scribe.run(step(8), step(9), step(10))
    stale = FoldingPlan.of(driver.journal.read(), retain=1)
    for number in (11, 12, 13):
        scribe.run(step(number))
        fold(files, view_of(files), knobs=Knobs(dirty_ratio=0.01))
    driver.journal.fold(stale)

    assert caplog.records == []
    assert states(files) == existing(scribe.state)


def test_a_loss_is_noticed_although_the_listing_that_shows_it_may_overlap_with_a_purge() -> None:
    files = MemoryFiles()
    aged(files)
    gone = segments(files)[0]
    listed = files.names
    shown: list[int] = []

    def names(path: str) -> tuple[str, ...]:
        shown.append(1)
        found = listed(path)
        return found if len(shown) > 1 else tuple(name for name in found if f"{path}/{name}" != gone)

    files.names = names  # type: ignore[method-assign]
    folding = Folding(files, "journal", str)
    folding.check_segments()
    files.delete(gone)

    with pytest.raises(SegmentLost, match=gone):
        folding.check_segments()


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_any_crash_while_healing_leaves_the_loss_or_the_state(epochs: int) -> None:
    for place in range(20):
        files = MemoryFiles()
        driver = Driver(aged(files))
        files.delete(segments(files)[0])
        driver.run(12)
        driver.scribe.run(*(step(13 + n) for n in range(epochs)))
        plan = driver.journal.plan(driver.journal.read(), retain=1, slack=0)
        assert plan is not None
        assert plan.whole is not None
        left = place

        def before(path: str) -> None:
            nonlocal left
            if not left:
                raise Crash(path)
            left -= 1

        try:
            folding = Folding(WatchedFiles(files.content, before), "journal", str)
            folding.fold(plan, Journal(files, "journal").read)
        except Crash:
            with pytest.raises(JournalCorrupt, match="missing"):
                states(files)
            continue
        assert place == 2  # the segment and the state record
        assert states(files) == existing(driver.scribe.state)
        return
    raise AssertionError("the healing never ended")


def test_two_processes_that_heal_at_once_make_one_state() -> None:
    for place in range(2):
        files = MemoryFiles()
        scribe = aged(files)
        one, other = Driver(scribe), Driver(scribe)
        files.delete(segments(files)[0])
        one.run(12)
        other.run(13)  # each has noticed it
        scribe.run(step(14))
        plan = one.journal.plan(one.journal.read(), retain=1, slack=0)
        assert plan is not None
        left = place

        def meanwhile(path: str, other: Driver = other) -> None:
            nonlocal left
            if left == 0:
                other.run(15, 16, 17, 18)
            left -= 1

        Folding(WatchedFiles(files.content, meanwhile), "journal", str).fold(plan, Journal(files, "journal").read)

        assert states(files) == existing(scribe.state)
        one.run(19, 20)
        other.run(21, 22)
        assert states(files) == existing(scribe.state)


def test_a_state_record_never_goes_back_when_it_is_written_anew() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    scribe.run(step(0), step(1), step(2))
    scribe.run(step(3), done=False)
    fold(files, view_of(files), retain=0)
    view = view_of(files)

    assert view.state_record is not None
    assert view.state_record.through == view.done_through == 2
    assert FoldingPlan.to_heal(view) is None


def test_a_command_that_folds_at_once_goes_on_too(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    driver = Driver(aged(files))
    files.delete(segments(files)[0])
    for number in range(12, 16):
        driver.scribe.run(step(number))
        driver.journal.compact(driver.journal.read(), retain=1, slack=0)

    assert states(files) == existing(driver.scribe.state)
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


def test_what_a_state_record_follows_from_is_synced_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(tmp_path / "journal")
    scribe = Scribe(LocalFiles(), folder)
    scribe.begin()
    scribe.run(step(0), {"left": {}}, {"left": {}}, {"left": {}})
    journal = scribe.journal()
    journal.compact(journal.read(), retain=1, slack=0)
    scribe.run({"left": {}}, {"left": {}})
    synced = Synced(monkeypatch.setattr)
    journal.compact(journal.read(), retain=1, slack=0)  # no sink has changed anything: no segment is written

    record = next(n for n, path in enumerate(synced.paths) if ".epochal-tmp-m0" in path)
    assert folder in synced.paths[:record]


def test_a_fold_that_fails_for_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    scribe = Scribe(LocalFiles(sync=False), str(folder))
    scribe.begin()
    scribe.run(*(step(number) for number in range(6)))
    journal = scribe.journal()
    view, before = journal.read(), sorted(folder.iterdir())
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limit[1]))  # fewer bytes than any record has
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.compact(view, retain=1, slack=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert sorted(folder.iterdir()) == before
    journal.compact(journal.read(), retain=1, slack=0)
    assert journal.read().floor == 4


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_clock_that_goes_back_does_not_stop_folding_by_age() -> None:
    files = MemoryFiles()
    clock = Clock(1_000_000.0)
    scribe = Scribe(files)
    scribe.begin()
    journal = Journal(files, "journal", clock=clock, policy=Policy(knobs=Knobs(segment_age=10.0)))
    scribe.run(step(0), step(1), step(2), step(3))
    clock.now = 1000.0
    assert journal.plan(journal.read(), retain=2) is None
    clock.now = 1011.0

    assert journal.plan(journal.read(), retain=2) is not None


@pytest.mark.parametrize("clocks", [(1e9, 5.0), (5.0, 1e9), (1e9, 5.0, 1e9, 5.0), (0.0, -1e9)])
@pytest.mark.parametrize("retention", [0.0, 100.0])
def test_deletes_survive_clocks_that_jump(clocks: tuple[float, ...], retention: float) -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    for number in range(40):
        scribe.run(step(number))
        if number % 3 == 2:
            knobs = Knobs(dirty_ratio=0.3, retention=retention)
            fold(files, view_of(files), knobs=knobs, clock=clocks[number // 3 % len(clocks)])
        assert states(files) == existing(scribe.state)


def test_a_tombstone_from_the_future_is_dropped_in_time() -> None:
    files = MemoryFiles()
    scribe = Scribe(files)
    scribe.begin()
    for number in range(30):
        scribe.run(step(number))
        if number % 3 == 2:
            fold(files, view_of(files), knobs=Knobs(dirty_ratio=0.01), clock=1e9 if number < 10 else 5.0)
    record = view_of(files).state_record

    assert record is not None
    assert sum(ref.deleted for ref in record.segments if ref.clean) == 0
