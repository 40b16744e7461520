"""What a standby sees of a stream's files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.standby.judging import Rules
from epochal.spark_plugins.standby.looking import Lookout
from epochal.spark_plugins.standby.sight import Leader
from epochal.spark_plugins.standby.waiting import Watch
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.process import Running

FILES = LocalFiles(sync=False)


def begun(root: Path) -> Lookout:
    """A standby that watches a stream of one epoch."""
    checkpoint = str(root / "checkpoint")

    def journal(number: int) -> Journal:
        return Journal(FILES, f"{checkpoint}/epochal" if number == 1 else f"{checkpoint}/epochal~{number}")

    query: StandInQuery[Sequence[Json]] = StandInQuery(FILES, checkpoint)
    driver: Coordinator[Sequence[Json]] = Coordinator(
        journals=journal,
        checkpoint=SparkCheckpoint(FILES, checkpoint),
        participants=(DirectoryParticipant(str(root / "target"), files=FILES),),
        version="0.0.0",
    )
    driver.begin()
    query.run(1, lambda _: ("a",), driver.run, driver.settle)
    return Lookout(FILES, checkpoint, journal, looked_up=lambda _: Running.UNKNOWN)


@pytest.mark.parametrize("leaves", [True, False], ids=["an empty folder is left", "nothing is left"])
def test_a_checkpoint_that_vanishes_is_not_one_that_nobody_has_begun(tmp_path: Path, leaves: bool) -> None:
    lookout = begun(tmp_path)
    before = lookout.look()
    shutil.rmtree(tmp_path / "checkpoint")  # as when a file system is not mounted any more
    if leaves:
        (tmp_path / "checkpoint").mkdir()

    assert before.leader is Leader.RUNS
    for _ in range(2):
        with pytest.raises(OSError, match="had a start"):
            lookout.look(afresh=True)


def test_a_standby_does_not_begin_a_stream_anew_whose_checkpoint_has_vanished(tmp_path: Path) -> None:
    lookout, looks = begun(tmp_path), iter(range(1_000))
    now = 0.0

    def sleep(_: float) -> None:
        nonlocal now
        now += 1.0
        if now == 5.0:
            shutil.rmtree(tmp_path / "checkpoint")

    watch = Watch(
        lookout=lookout,
        rules=Rules(lease=10.0),
        is_stopped=lambda: next(looks) > 100,
        ticks=lambda: now,
        sleep=sleep,
    )

    assert watch.stand_by(lambda sight: sight) is None


def test_a_folder_in_which_no_driver_can_write_its_live_file_is_refused(tmp_path: Path) -> None:
    lookout = begun(tmp_path)
    (tmp_path / "checkpoint" / "epochal-live").mkdir()
    (tmp_path / "checkpoint" / "epochal-live" / "notes.txt").touch()
    watch = Watch(lookout=lookout, rules=Rules(), is_stopped=lambda: True)

    with pytest.raises(Refused, match="it holds notes"):
        watch.stand_by(lambda sight: sight)
