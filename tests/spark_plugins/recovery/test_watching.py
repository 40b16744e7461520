"""A recovery objective: each epoch is measured once, and the turns are warnings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from epochal import EpochWriter
from epochal.spark_plugins.recovery.watching import RecoveryWatch
from epochal.testing import DirectoryParticipant
from epochal.txn.errors import OptionError
from epochal.txn.events import Event, Observers, RecoveryMeasured
from epochal.txn.files import LocalFiles
from epochal.txn.log_lines import level_of, text_of
from tests.spark_plugins.recovery.written import Written, archive, lz4, rows, untagged


@pytest.fixture(autouse=True)
def no_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))


class Watched:
    """A checkpoint whose state grows, and what a watch says of it."""

    def __init__(self, root: Path, objective: float) -> None:
        self.written = Written(root)
        self.written.operator()
        self.events: list[RecoveryMeasured] = []
        self.watch = RecoveryWatch(
            LocalFiles(), self.written.path, objective, Observers([self._take], stream="orders"), "1f0c", slots=1
        )
        self.epoch = -1

    def _take(self, event: Event) -> None:
        assert isinstance(event, RecoveryMeasured)
        self.events.append(event)

    def commit(self, *, snapshot: bool = False) -> None:
        self.epoch += 1
        version = self.epoch + 1
        if snapshot:
            self.written.put(f"state/0/0/{version}.zip", archive(10, {}))
        self.written.put(f"state/0/0/{version}.changelog", lz4(untagged(rows(0, 240_000))))
        self.written.commit(self.epoch)
        self.watch.look()


def test_a_warning_when_it_begins_to_miss_and_when_it_holds_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, objective=16.7)  # 13.6 s by the guesses, and 2 s for each epoch to replay
    for snapshot in (True, False, False, False, True, False):
        watched.commit(snapshot=snapshot)

    assert [event.extent for event in watched.events] == [0, 1, 2, 3, 0, 1]
    assert [event.late for event in watched.events] == [False, False, True, True, False, False]
    assert [event.turned for event in watched.events] == [False, False, True, False, True, False]
    assert [level_of(event) for event in watched.events if event.turned] == [logging.WARNING] * 2
    assert level_of(watched.events[3]) == logging.DEBUG
    missed, held = (text_of(event) for event in watched.events if event.turned)
    assert "orders would miss its recovery objective of 16.7 s" in missed
    assert "plan-recovery" in missed
    assert "orders holds its recovery objective" in held


def test_an_epoch_is_measured_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path, objective=60)
    watched.commit(snapshot=True)
    watched.watch.look()

    assert len(watched.events) == 1


def test_a_query_without_state_is_not_measured(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "none", objective=60)
    LocalFiles().delete(str(tmp_path / "none" / "state"))
    watched.watch.look()

    assert watched.events == []


def test_what_cannot_be_read_is_logged_once_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(tmp_path, objective=60)
    watched.commit()
    watched.written.put("state/0/0/1.changelog", b"torn")
    with caplog.at_level(logging.WARNING, "epochal"):
        watched.watch.look()
        watched.watch.look()

    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_watch_ends_when_it_is_stopped(tmp_path: Path) -> None:
    watched = Watched(tmp_path, objective=60)
    watched.watch.start()
    watched.watch.stop()

    watched.commit(snapshot=True)
    assert len(watched.events) == 1  # by hand, not by its thread


def test_an_objective_that_is_no_time_is_refused(tmp_path: Path) -> None:
    sink = DirectoryParticipant(str(tmp_path / "sink"))

    with pytest.raises(OptionError, match="recovery_objective"):
        EpochWriter(sink, recovery_objective="soon")  # type: ignore[arg-type]
    EpochWriter(sink, recovery_objective="10 s")  # type: ignore[arg-type]
