"""Folding old records away: what stays, what a crash leaves, and what stalled drivers add later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import FencedOut, JournalCorrupt, Rewound
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH
from epochal.txn.records import Decided, GenerationStarted, Prepared, Record, encode
from epochal.txn.state.folding import Folding
from epochal.txn.state.folding_plan import FoldingPlan
from epochal.txn.states import State
from epochal.txn.view import KEEP_GENERATIONS, fold
from tests.txn.keeping import Keeping
from tests.txn.memory import MemoryFiles
from tests.txn.stream import QUERY, TAG, Rows, Stream

RETAIN = 3
SLACK = 20  # the journal's own


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def start(stream: Stream) -> Coordinator[Rows]:
    coordinator = stream.coordinator(retain=RETAIN)
    coordinator.begin()
    return coordinator


def names(stream: Stream) -> list[str]:
    return list(stream.files.names(stream.journal().path))


def test_the_journal_does_not_grow_with_the_stream() -> None:
    stream = Stream()
    coordinator = start(stream)
    sizes = []
    for epoch in range(200):
        stream.run(coordinator, epoch)
        sizes.append(len(names(stream)))

    assert max(sizes[50:]) <= max(sizes[:50])
    assert max(sizes) < 3 * (RETAIN + SLACK + 2)
    assert stream.sink().rows() == list(range(200))


def test_the_newest_epochs_keep_their_records() -> None:
    stream = Stream()
    coordinator = start(stream)
    stream.run(coordinator, *range(RETAIN + SLACK + 1))

    view = coordinator.journal.read()
    last = RETAIN + SLACK
    assert view.floor == last - 1 - RETAIN
    assert sorted(view.done) == list(range(view.floor + 1, last + 1))
    assert all(view.winner(epoch) for epoch in view.done)
    assert view.done_through == last


def test_only_one_snapshot_is_kept() -> None:
    stream = Stream()
    coordinator = start(stream)

    stream.run(coordinator, *range(3 * SLACK))

    assert len([name for name in names(stream) if name.startswith("s")]) == 1


def test_a_start_on_a_compacted_journal_goes_on_where_it_was() -> None:
    stream = Stream()
    stream.run(start(stream), *range(60))

    second = start(stream)
    stream.run(second, 60)

    assert second.generation == 2
    assert stream.sink().rows() == list(range(61))


def test_the_newest_generations_are_kept_and_their_numbers_never_come_again() -> None:
    stream = Stream()
    for _ in range(KEEP_GENERATIONS + 4):
        coordinator = start(stream)
    stream.run(coordinator, *range(2 * SLACK))

    kept = sorted(stream.journal().read().generations)
    assert kept == list(range(5, KEEP_GENERATIONS + 5))
    assert start(stream).generation == KEEP_GENERATIONS + 5


def test_an_epoch_that_was_folded_away_is_not_written_again() -> None:
    stream = Stream()
    stream.run(start(stream), *range(2 * SLACK))
    stream.rewind(keep=NO_EPOCH)

    with pytest.raises(Rewound, match="epoch 0 is replayed with the same rows, because it was so long ago"):
        stream.start(adopt=f"{TAG}@{2 * SLACK - 1}")
    assert stream.sink().leftovers(QUERY) == []


@pytest.mark.parametrize("point", ["before-snapshot", "after-snapshot", "before-purge", "after-purge"])
def test_a_crash_while_compacting_loses_nothing_and_is_made_good(point: str) -> None:
    stream = Stream()
    coordinator = start(stream)
    failpoints.arm(f"{point}=raise")
    crashed = 0
    for epoch in range(3 * SLACK):
        stream.plan(epoch)
        coordinator.run(epoch, [epoch])
        stream.commit(epoch)
        try:
            coordinator.settle()
        except OSError:
            crashed = epoch
            coordinator = start(stream)
            coordinator.settle()

    view = stream.journal().read()
    assert crashed
    assert stream.sink().rows() == list(range(3 * SLACK))
    assert view.floor > crashed
    assert min(epoch for epoch in view.attempts) == view.floor + 1


def test_a_purge_that_stopped_anywhere_leaves_a_journal_that_can_be_read() -> None:
    stream = Stream()
    stream.run(start(stream), *range(10))
    journal = stream.journal()
    before = dict(stream.files.content)
    journal.compact(journal.read(), retain=1, slack=0)
    after = dict(stream.files.content)
    purged = [path for path in sorted(before) if path not in after]

    for number in range(len(purged) + 1):
        stream.files.content = {**after, **{path: before[path] for path in purged[number:]}}
        view = stream.journal().read()

        assert view.floor == 8
        assert view.done_through == 9
        assert view.waiting() == []


def stalled(stream: Stream) -> Coordinator[Rows]:
    """A driver that has started, and falls asleep before epoch 0."""
    coordinator = start(stream)
    stream.plan(0)
    return coordinator


def test_a_stalled_drivers_late_prepared_below_the_floor_is_harmless() -> None:
    stream = Stream()
    zombie = stalled(stream)
    stream.run(start(stream), *range(2 * SLACK))
    assert stream.journal().read().floor > 0
    zombie.journal.prepare(Prepared(0, 1, "", {}))

    view = stream.journal().read()
    with pytest.raises(FencedOut):
        zombie.run(0, ["late"])
    zombie.settle()

    assert view.waiting() == []
    assert view.state(0, 1) is State.LOST
    assert stream.sink().rows() == list(range(2 * SLACK))


def test_a_stalled_drivers_late_decided_and_done_below_the_floor_are_harmless() -> None:
    stream = Stream()
    zombie = stalled(stream)
    stream.run(start(stream), *range(2 * SLACK))
    zombie.journal.decide(0, 1)
    zombie.journal.finish(0, 1)

    third = start(stream)
    stream.run(third, 2 * SLACK)

    assert stream.sink().rows() == list(range(2 * SLACK + 1))


def test_what_a_stalled_driver_staged_below_the_floor_is_swept() -> None:
    stream = Stream()
    zombie = stalled(stream)
    stream.run(start(stream), *range(2 * SLACK))
    stream.files.create(f"sink/_staged/{QUERY}/000000000000.000001", b"late")
    zombie.journal.seal(0, 1, by=2)
    zombie.journal.decide(0, 1)

    start(stream)

    assert stream.sink().leftovers(QUERY) == []
    assert stream.sink().rows() == list(range(2 * SLACK))


def test_late_records_are_folded_away_by_the_next_compaction() -> None:
    stream = Stream()
    zombie = stalled(stream)
    second = start(stream)
    stream.run(second, *range(2 * SLACK))
    zombie.journal.prepare(Prepared(0, 1, "", {}))

    stream.run(second, *range(2 * SLACK, 4 * SLACK))

    assert min(stream.journal().read().attempts) > 0


class Racing(MemoryFiles):
    """A folder that another driver purges between the listing and the reading of it."""

    def __init__(self, purges: int) -> None:
        super().__init__()
        self.purges = purges
        self.gone: dict[str, bytes] = {}

    def names(self, path: str) -> tuple[str, ...]:
        self.content.update(self.gone)
        found = super().names(path)
        if self.purges:
            self.purges -= 1
            self.gone = {p: d for p, d in self.content.items() if "/e" in p}
            for purged in self.gone:
                del self.content[purged]
        else:
            self.gone = {}
        return found


@pytest.mark.parametrize("purges", [1, 4])
def test_a_listing_that_a_purge_overtakes_is_made_again(purges: int) -> None:
    files = Racing(purges)
    files.content["journal/g000001.json"] = encode(GenerationStarted(1, "query", base=0))
    files.content["journal/e000000000000.g000001.json"] = encode(Prepared(0, 1, "", {}))

    assert Journal(files, "journal").read().waiting() == [0]


def test_records_that_vanish_again_and_again_are_an_error() -> None:
    files = Racing(100)
    files.content["journal/e000000000000.g000001.json"] = encode(Prepared(0, 1, "", {}))

    with pytest.raises(JournalCorrupt, match="records vanish while they are read"):
        Journal(files, "journal").read()


class HalfListed(MemoryFiles):
    """A folder whose listing shows DECIDED, and PREPARED only the next time."""

    def __init__(self, halves: int) -> None:
        super().__init__()
        self.halves = halves

    def names(self, path: str) -> tuple[str, ...]:
        found = super().names(path)
        self.halves -= 1
        return tuple(name for name in found if "g000001" not in name) if self.halves >= 0 else found


def test_a_listing_that_shows_half_an_epoch_is_made_again() -> None:
    files = HalfListed(1)
    records: list[Record] = [GenerationStarted(1, "query", base=0), Prepared(0, 1, "", {}), Decided(0, 1)]
    for record in records:
        files.content[f"journal/{record.name}"] = encode(record)

    assert Journal(files, "journal").read() == fold(records)


def test_half_an_epoch_that_stays_half_is_an_error() -> None:
    files = HalfListed(100)
    for record in (Prepared(0, 1, "", {}), Decided(0, 1)):
        files.content[f"journal/{record.name}"] = encode(record)

    with pytest.raises(JournalCorrupt, match="journal: epoch 0 was decided for generation 1, whose PREPARED"):
        Journal(files, "journal").read()


def test_a_driver_that_slept_through_a_roll_and_a_compaction_computes_the_same_state() -> None:
    stream = Stream(MemoryFiles())

    def sink() -> Keeping:
        return Keeping("sink", name="sink", files=stream.files)

    sleeper = stream.start(sink())
    stream.run(sleeper, *range(20))
    sleeper.journal.read()
    other = stream.start(sink())
    other.roll(every=True)  # closes what the sleeper has open, after the epoch that the next snapshot ends with
    stream.run(other, *range(20, 60))
    fresh = stream.journal().read()

    assert fresh.floor == 19
    assert sleeper.journal.read().sink_state("sink") == fresh.sink_state("sink")


def test_the_state_of_a_snapshot_stays_while_no_later_epoch_is_done() -> None:
    stream = Stream(MemoryFiles())
    driver = stream.start(Keeping("sink", name="sink", files=stream.files))
    stream.run(driver, *range(3))
    stream.plan(3)
    driver.run(3, [3])
    driver.journal.decide(3, 1)
    driver.journal.compact(driver.journal.read(), retain=0, slack=0)
    driver.journal.read()
    driver.journal.seal(4, 1, by=1)  # another record: the view is made anew from what is in memory
    view = driver.journal.read()

    assert (view.floor, view.done_through) == (2, 2)
    assert len(view.sink_state("sink", through=2)) == 3 + 1
    assert len(view.sink_state("sink")) == 4 + 1


def test_a_purge_leaves_done_of_a_roll_that_was_recorded_since_it_read_the_journal() -> None:
    stream = Stream(MemoryFiles())
    driver = stream.start(Keeping("sink", name="sink", files=stream.files))
    stream.run(driver, *range(3))
    journal = stream.journal()
    journal.compact(journal.read(), retain=1, slack=0)
    names = journal._files.names

    def names_after_a_roll(path: str) -> tuple[str, ...]:
        journal._files.names = names  # type: ignore[method-assign]  # once
        driver.roll(every=True)
        return names(path)

    read = journal.read
    view = read()
    journal._files.names = names_after_a_roll  # type: ignore[method-assign]
    Folding(journal._files, journal.path, journal.now).purge(FoldingPlan.of(view, retain=1), lambda: view)

    assert stream.journal().read().pending_rolls() == []
