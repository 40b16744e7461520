"""Folding in the background: no epoch waits for it, its failures stop nothing, and an end does not wait long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.settler import Settler
from epochal.txn.state.background import BackgroundFolding
from epochal.txn.state.budget import Budget
from epochal.txn.state.folding_plan import FoldingPlan
from epochal.txn.state.policy import MOST_EPOCHS
from tests.txn.keeping import Keeping
from tests.txn.memory import MemoryFiles
from tests.txn.stream import Rows, Stream

DEADLINE = 20.0
EPOCHS = 60
LONG = 100  # enough for a merge


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


class Running:
    """A driver whose journal is folded by the thread that its settler starts."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.stream = Stream(files or MemoryFiles())
        self.driver: Coordinator[Rows] = self.stream.coordinator(
            Keeping("sink", name="sink", files=self.stream.files), retain=2
        )
        self.driver.begin()
        self.settler = Settler(self.driver)
        self.settler.start()

    @property
    def folding(self) -> BackgroundFolding:
        assert self.driver.folding is not None
        return self.driver.folding

    def run(self, first: int, after: int) -> None:
        for epoch in range(first, after):
            self.stream.plan(epoch)
            self.settler.run(epoch, [epoch])
            self.stream.commit(epoch)
            self.settler.settle(DEADLINE)

    def floor(self) -> int:
        return self.stream.journal().read().floor

    def open_pieces(self) -> list[str]:
        return sorted(key for key in self.stream.journal().read().sink_state("sink") if key != "target")


def test_the_journal_is_folded_while_epochs_go_on_and_the_state_stays() -> None:
    running = Running()
    running.run(0, EPOCHS)
    assert running.folding.wait(DEADLINE)
    running.settler.stop()

    assert running.floor() >= EPOCHS - 2 - 20 - 2
    assert running.open_pieces() == [f"{epoch:012d}" for epoch in range(EPOCHS)]
    assert not [t for t in threading.enumerate() if t.name == "epochal-state"]


def test_epochs_go_on_while_folding_stands_still(tmp_path: Path) -> None:
    running = Running()
    gate = tmp_path / "gate"
    failpoints.arm(f"before-segment=pause:{gate}")
    running.run(0, EPOCHS)
    stood_still = running.floor()
    waits = gate.exists()
    gate.unlink()
    assert running.folding.wait(DEADLINE)
    running.run(EPOCHS, EPOCHS + 1)
    assert running.folding.wait(DEADLINE)
    running.settler.stop()

    assert (waits, stood_still) == (True, -1)
    assert running.floor() > 0
    assert running.open_pieces() == [f"{epoch:012d}" for epoch in range(EPOCHS + 1)]


@pytest.mark.parametrize("point", ["before-segment", "after-segment", "before-state", "after-state", "before-purge"])
def test_a_failure_is_logged_stops_nothing_and_is_made_good(point: str, caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    failpoints.arm(f"{point}=raise")
    with caplog.at_level(logging.WARNING, "epochal"):
        running.run(0, 24)
        assert running.folding.wait(DEADLINE)
    running.run(24, EPOCHS)
    assert running.folding.wait(DEADLINE)
    running.settler.stop()

    (answer,) = [r for r in caplog.records if "could not be folded" in r.message]
    assert answer.message.endswith(f"failpoint {point}")
    assert running.settler.failure is None
    assert running.floor() > 30
    assert running.open_pieces() == [f"{epoch:012d}" for epoch in range(EPOCHS)]


def test_an_end_abandons_a_merge_and_the_next_driver_makes_it_good() -> None:
    running = Running()
    folding = running.folding
    merging, ended = threading.Event(), threading.Event()
    between = folding._between

    def held() -> None:
        merging.set()
        assert ended.wait(DEADLINE)
        between()

    folding._between = held  # type: ignore[method-assign]
    running.run(0, LONG)
    assert merging.wait(DEADLINE)
    folding._stopping.set()
    ended.set()
    running.settler.stop()
    running.driver.begin()
    running.stream.run(running.driver, *range(LONG, LONG + 40))

    names = running.stream.files.names(running.stream.journal().path)
    record = running.stream.journal().read().state_record
    assert record is not None
    assert [name for name in names if name.endswith(".seg")] == sorted(ref.name for ref in record.segments)
    assert running.open_pieces() == [f"{epoch:012d}" for epoch in range(LONG + 40)]


def test_a_query_of_one_epoch_at_a_time_is_folded_too() -> None:
    stream = Stream(MemoryFiles())
    for epoch in range(60):
        driver = stream.coordinator(Keeping("sink", name="sink", files=stream.files), retain=2)
        driver.begin()
        settler = Settler(driver)
        settler.start()
        stream.plan(epoch)
        settler.run(epoch, [epoch])
        stream.commit(epoch)
        settler.settle(DEADLINE)
        settler.stop()

    assert stream.journal().read().floor > 30


def test_a_merge_waits_until_its_share_of_a_processor_is_saved_up() -> None:
    now = [0.0]
    merge = 0.8  # seconds; what folding the changes takes is milliseconds
    offers: list[tuple[float, bool]] = []

    class Journal:
        """One whose every plan wants a merge."""

        def fold(self, plan: object, *, between: object, affords: Callable[[float], bool]) -> None:
            offers.append((now[0], affords(merge)))

    budget = Budget(lambda: 0.02, clock=lambda: now[0])
    folding = BackgroundFolding(budget)
    for now[0] in (0.0, 30.0, 60.0):
        folding._fold(Journal(), FoldingPlan.of(Stream(MemoryFiles()).journal().read(), retain=2))  # type: ignore[arg-type]
    budget.spent += merge

    assert offers == [(0.0, False), (30.0, False), (60.0, True)]
    assert not folding.affords(merge)  # 2 % of the minute have been spent


def test_what_a_round_has_taken_is_not_there_for_its_merge() -> None:
    taken = [0.0]
    afforded: list[bool] = []

    class Journal:
        """One that first folds what changed."""

        def fold(self, plan: object, *, between: object, affords: Callable[[float], bool]) -> None:
            afforded.append(affords(0.9))
            taken[0] += 0.2
            afforded.append(affords(0.9))

    now = [0.0]
    budget = Budget(lambda: 0.02, clock=lambda: now[0], thread_time=lambda: taken[0])
    now[0] = 50.0
    plan = FoldingPlan.of(Stream(MemoryFiles()).journal().read(), retain=2)
    BackgroundFolding(budget)._fold(Journal(), plan)  # type: ignore[arg-type]

    assert afforded == [True, False]


def test_what_changed_waits_for_its_share_and_is_folded_at_a_limit_which_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running()
    running.folding._budget = Budget(lambda: 1e-9)
    running.run(0, MOST_EPOCHS)
    assert running.folding.wait(DEADLINE)
    waited = running.floor()
    with caplog.at_level(logging.WARNING, "epochal"):
        running.run(MOST_EPOCHS, 2 * MOST_EPOCHS + 20)
        assert running.folding.wait(DEADLINE)
    running.settler.stop()

    assert waited == -1
    assert running.floor() >= 2 * MOST_EPOCHS - 2
    (answer,) = caplog.records
    assert "takes more than its share of a processor" in answer.message
    assert running.open_pieces() == [f"{epoch:012d}" for epoch in range(2 * MOST_EPOCHS + 20)]


def test_a_plan_that_waits_keeps_no_state_in_memory() -> None:
    running = Running()
    running.settler.stop()
    running.stream.run(running.driver, *range(20))
    plan = FoldingPlan.of(running.driver.journal.read(), retain=2)

    assert plan.through == 17
    with pytest.raises(RuntimeError, match="made without it"):
        plan.view.sink_state("sink")


def test_a_segment_that_vanishes_under_a_running_stream_is_said_once_and_written_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running()
    running.run(0, 30)
    assert running.folding.wait(DEADLINE)
    files = running.stream.files
    gone = [path for path in files.content if path.endswith(".seg")]
    for path in gone:
        files.delete(path)
    with caplog.at_level(logging.WARNING, "epochal"):
        running.run(30, EPOCHS + 30)
        assert running.folding.wait(DEADLINE)
    running.settler.stop()

    assert gone
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "a segment of the sinks' state is missing" in caplog.text
    assert "written anew" in caplog.text
    assert running.open_pieces() == [f"{epoch:012d}" for epoch in range(EPOCHS + 30)]
