"""Rescales of a stream whose sinks hold rows open, without Spark: killed at each step, every row is shown once."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal.cli import main
from epochal.sinks.config import kinds
from epochal.txn.errors import FencedOut, JournalCorrupt
from epochal.txn.journal import Journal
from epochal.txn.records import Roll
from integration_tests.kill_matrix.rescaling import STEPS, Holding
from integration_tests.kill_matrix.test_rescales import OWN, POINTS
from integration_tests.kill_matrix.test_savepoints import in_a_process
from tests.cli.scene import dying

OPEN = [["000000000002"], ["000000000002"]]  # of the epochs 0 to 2, in each sink
LAST = 6


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands can build these sinks from what the journal says."""
    monkeypatch.setitem(kinds.BUILT_IN, "keeping", "tests.txn.keeping:Keeping")


def prepared(root: Path, rolled_after: tuple[int, ...] = (1,)) -> Holding:
    streams = Holding(root)
    streams.rolled_after = rolled_after
    streams.run(OWN)
    return streams


def roll(streams: Holding, checkpoint: str = "checkpoint") -> int:
    return in_a_process(lambda: main(["roll", str(streams.root / checkpoint)]))


def go_on_elsewhere(streams: Holding) -> int:
    """Go on elsewhere, after the newest savepoint."""
    newest = streams.store.manifests()[-1]
    restored = ["restore", str(streams.backups / newest.name), str(streams.root / "new"), "--wait", "0"]
    return in_a_process(lambda: main(restored))


def check_goes_on(streams: Holding, checkpoint: str = "checkpoint", own: tuple[int, ...] = (OWN,)) -> None:
    """Run to the last epoch, close what is open, and look at what is there."""
    streams.run(LAST + 1, checkpoint)
    assert roll(streams, checkpoint) == 0

    assert streams.rows_shown() == [Counter(e for e in range(LAST + 1) if e not in own)] * 2
    assert streams.lying_open() == [[], []]
    assert main(["audit", str(streams.root / checkpoint)]) == 0
    assert main(["recover", str(streams.root / checkpoint)]) == 0


@pytest.mark.parametrize(
    ("rolled_after", "at_rest"),
    [((1,), False), ((1, 2), False), ((1,), True), ((1, 2, 4), True)],
    ids=["none beside it", "one right before", "one right after", "before, after, and later"],
)
def test_open_parts_go_through_a_rescale_whatever_was_rolled_beside_it(
    tmp_path: Path, rolled_after: tuple[int, ...], at_rest: bool
) -> None:
    streams = prepared(tmp_path / "streams", rolled_after)
    before = streams.lying_open()
    assert before == [OPEN[0], [] if 2 in rolled_after else OPEN[1]]
    streams.rescale()
    assert streams.lying_open() == before
    if at_rest:
        assert roll(streams) == 0
        assert streams.lying_open() == [[], []]
    assert streams.rescale(8).epoch == OWN + 1

    check_goes_on(streams, own=(OWN, OWN + 1))


@pytest.mark.parametrize("point", [*POINTS, *(f"spark {step}" for step in STEPS)])
def test_a_rescale_that_is_killed_keeps_what_is_open_whether_it_is_finished_or_given_up(
    tmp_path: Path, point: str
) -> None:
    step = point.removeprefix("spark ") if point.startswith("spark ") else ""
    for back in (False, True):
        streams = prepared(tmp_path / f"{back}", (1, 2) if back else (1,))
        life = streams.rescaling(dies_after=step)
        assert in_a_process(life, "" if step else f"{point}=kill") == -signal.SIGKILL
        assert streams.lying_open() == [OPEN[0], [] if back else OPEN[1]]
        if not back:
            streams.rescale()
            check_goes_on(streams)
            continue
        assert go_on_elsewhere(streams) == 0
        check_goes_on(streams, "new", own=())


def test_a_rescale_is_not_taken_back_once_what_was_open_at_its_savepoint_has_been_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    streams = prepared(tmp_path / "streams")
    streams.rescale()
    assert roll(streams) == 0

    assert go_on_elsewhere(streams) == 2
    assert "Sink 'left' had open parts at the savepoint" in capfd.readouterr().err
    check_goes_on(streams)


def test_a_checkpoint_brought_back_to_its_rescale_does_not_hide_that_parts_were_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    streams = prepared(tmp_path / "streams")
    streams.rescale()
    shutil.copytree(streams.scenery.checkpoint, streams.root / "copy")
    streams.run(LAST)
    shutil.rmtree(streams.scenery.checkpoint)
    (streams.root / "copy").rename(streams.scenery.checkpoint)

    assert go_on_elsewhere(streams) == 2
    assert "Sink 'left' had open parts at the savepoint" in capfd.readouterr().err
    assert not (streams.root / "new").exists()


def test_what_is_open_goes_through_a_fold_of_the_journal_and_a_move_after_a_rescale(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams", (1, 2))
    streams.rescale()
    journal = streams.scenery.journal
    journal.compact(journal.read(), retain=0, slack=0)
    assert in_a_process(lambda: main(["savepoint", str(streams.scenery.checkpoint), str(streams.backups)])) == 0
    assert streams.store.manifests()[-1].epoch == OWN
    assert go_on_elsewhere(streams) == 0
    check_goes_on(streams, "new")


def test_a_roll_is_refused_while_a_rescale_is_not_finished(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    assert in_a_process(streams.rescaling(), "after-rescale-begin=kill") == -signal.SIGKILL

    assert roll(streams) == 2
    assert streams.lying_open() == OPEN
    streams.rescale()
    check_goes_on(streams)


def test_a_roll_of_a_driver_that_stalled_while_the_stream_was_rescaled_closes_each_row_once(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    with dying():
        stalled = streams.driver()
    record = Journal.roll

    def late(journal: Journal, roll: Roll) -> bool:
        streams.rescale()
        return record(journal, roll)

    with patch.object(Journal, "roll", late), pytest.raises(FencedOut):
        stalled.roll(every=True)

    check_goes_on(streams)


def test_a_roll_before_the_number_that_spark_took_is_missed_if_its_record_is_lost(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams", (2,))
    streams.rescale()
    for name in ("r000001.000001.json", "r000001.000001.done.json"):
        (streams.scenery.checkpoint / "epochal" / name).unlink()

    with pytest.raises(JournalCorrupt, match="1 rolls followed epoch 2, but only 0 are there"):
        streams.scenery.journal.read()
