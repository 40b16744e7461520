"""Rescales killed at each of their steps, without Spark: the old or the new stream, never neither."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal.cli import main
from epochal.cli.exit_codes import DEAD, WELL
from epochal.cli.rescale import to_json
from epochal.cli.streams import build
from epochal.spark_plugins.moving.origin import Origin
from epochal.spark_plugins.moving.rescaling import Rescale, Rescaled
from epochal.testing import DirectoryParticipant
from epochal.txn.cuts import watermark
from epochal.txn.errors import DataLost, ForeignTarget, JournalCorrupt, Refused
from epochal.txn.files import join
from epochal.txn.records import Prepared
from integration_tests.kill_matrix.rescaling import STEPS, SparkStandIn, Stateful
from integration_tests.kill_matrix.test_savepoints import SINKS, hits, in_a_process
from integration_tests.steps import NAMES_OF_RESCALES
from tests.cli.test_schemas import check as check_schema

OWN = 3  # the epoch that Spark takes: the streams have run three
POINTS = [p for p in NAMES_OF_RESCALES if not p.endswith("withdraw")]


def prepared(root: Path) -> Stateful:
    streams = Stateful(root)
    streams.run(3)
    return streams


def check_goes_on(streams: Stateful, partitions: int) -> None:
    """Run on, over the number that Spark took."""
    streams.run(7)
    spark = SparkStandIn(streams.root / "checkpoint")

    assert streams.shown() == [Counter({0, 1, 2, 4, 5, 6})] * 2
    assert spark.partitions(6) == partitions
    assert spark.keys(6) == [0, 1, 2, 4, 5, 6]


def test_a_rescaled_stream_goes_on_after_the_number_that_spark_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = prepared(tmp_path / "streams")
    done = streams.rescale()
    assert (done.epoch, done.partitions.after, done.resumed) == (OWN, 2, False)
    check_schema("rescale", to_json(done))
    again = streams.rescale()
    assert again.epoch is None
    check_schema("rescale", to_json(again))
    capsys.readouterr()
    checkpoint = str(streams.scenery.checkpoint)
    assert main(["status", checkpoint]) == 0
    assert "rescaled from 4 to 2 partitions in epoch 3" in capsys.readouterr().out
    check_goes_on(streams, 2)

    assert main(["log", checkpoint, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    check_schema("log", answer)
    logged = {one["epoch"]: one for one in answer["epochs"]}
    assert logged[OWN]["repartitioned"] == {"from": 4, "to": 2}
    assert (logged[OWN]["state"], logged[OWN]["rows"]) == ("done", {})
    assert logged[4]["repartitioned"] is None
    assert main(["savepoint", checkpoint, str(streams.backups)]) == 0


@pytest.mark.parametrize("after", [OWN, OWN + 1, OWN + 30], ids=["at once", "an epoch later", "folded away"])
def test_a_start_and_readers_live_with_the_number_that_spark_took(tmp_path: Path, after: int) -> None:
    streams = prepared(tmp_path / "streams")
    streams.rescale()
    streams.run(after + 1)
    assert streams.starts("checkpoint")
    assert main(["recover", str(streams.scenery.checkpoint)]) == 0
    (cut,) = (streams.scenery.checkpoint / "epochal-cut").iterdir()

    assert int(cut.stem) == (2 if after == OWN else after)
    mark = watermark(streams.scenery.journal.read())
    assert mark is not None
    assert {name: sink.notes for name, sink in mark.sinks.items()} == {"left": (), "right": ()}
    assert main(["status", str(streams.scenery.checkpoint)]) in (WELL, DEAD)
    streams.rescale(8)
    streams.run(after + 3)
    assert streams.shown() == [Counter(e for e in range(after + 3) if e not in (OWN, after + 1))] * 2


def test_the_record_of_the_number_that_spark_took_is_missed_if_it_is_lost(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    streams.rescale()
    streams.run(6)
    for path in (streams.scenery.checkpoint / "epochal").glob(f"e{OWN:012d}.*"):
        path.unlink()

    with pytest.raises(JournalCorrupt, match=f"epoch {OWN} has no record"):
        streams.scenery.journal.read()


def test_a_record_that_an_older_epochal_does_not_know_is_refused_by_it(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    streams.rescale()
    older = {name: f for name, f in Prepared.__dataclass_fields__.items() if name != "repartitioned"}

    with patch.object(Prepared, "__dataclass_fields__", older), pytest.raises(JournalCorrupt, match="is unknown to"):
        streams.scenery.journal.read()


def test_folding_does_not_end_with_the_number_that_spark_took(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    streams.rescale()
    journal = streams.scenery.journal
    journal.compact(journal.read(), retain=0, slack=0)

    assert journal.read().floor == OWN - 1
    assert streams.starts("checkpoint")


@pytest.mark.parametrize("point", [*POINTS, *(f"spark {step}" for step in STEPS)])
def test_a_rescale_that_is_killed_is_finished_by_the_next_or_given_up_for_its_savepoint(
    tmp_path: Path, point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    step = point.removeprefix("spark ") if point.startswith("spark ") else ""
    for back in (False, True):
        streams = prepared(tmp_path / f"{back}")
        life = streams.rescaling(dies_after=step)
        assert in_a_process(life, "" if step else f"{point}=kill") == -signal.SIGKILL
        begun = point != "before-rescale-begin"
        over = point == "after-rescale-record"
        committed = over or point in ("after-rescale-state", "before-rescale-record", "spark commits")
        assert streams.starts("checkpoint") is (not begun or over)
        if begun and not over:
            capsys.readouterr()
            main(["status", str(streams.scenery.checkpoint)])
            said = capsys.readouterr().out
            assert "epochal rescale CHECKPOINT --partitions 2" in said
            assert "REFUSED" in said
            assert main(["savepoint", str(streams.scenery.checkpoint), str(streams.backups)]) == 2
            assert (main(["recover", str(streams.scenery.checkpoint)]) == 0) is not committed
            with pytest.raises(Refused, match="Finish it first: --partitions 2"):
                streams.rescale(8)
        if not back:
            done = streams.rescale()
            assert (done.resumed, done.epoch) == (begun and not over, None if over else OWN)
            check_goes_on(streams, 2)
            continue
        (savepoint,) = (m.name for m in streams.store.manifests())
        restored = ["restore", str(streams.backups / savepoint), str(streams.root / "new"), "--wait", "0"]
        assert in_a_process(lambda given=restored: main(given)) == 0  # type: ignore[misc]
        assert not streams.starts("checkpoint")
        streams.run(7, "new")
        assert streams.shown() == [Counter(range(7))] * 2
        assert SparkStandIn(streams.root / "new").partitions(6) == 4


def test_each_step_is_reached(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")

    assert {*POINTS} <= {*hits(streams.rescaling(), tmp_path / "counts")}


def test_what_spark_refuses_is_withdrawn_also_after_a_kill(tmp_path: Path) -> None:
    for number, side in enumerate(("", "before-rescale-withdraw", "after-rescale-withdraw")):
        streams = prepared(tmp_path / f"{number}")
        life = streams.rescaling(refuses="Unsupported stateful operator flatMapGroupsWithState")
        assert in_a_process(life, f"{side}=kill" if side else "") == (-signal.SIGKILL if side else 2)
        if not side:
            assert "flatMapGroupsWithState" in (streams.root / "error").read_text()
        if side == "before-rescale-withdraw":
            assert not streams.starts("checkpoint")
            assert in_a_process(life) == 2
        streams.run(5)

        assert streams.shown() == [Counter(range(5))] * 2


def test_state_that_has_changed_is_noticed_and_the_way_back_is_the_savepoint(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    with pytest.raises(DataLost, match=r"3 rows before, 2 since.*epochal restore") as fault:
        streams.rescale(loses=True)
    assert not streams.starts("checkpoint")
    savepoint = str(fault.value).split("`epochal restore ")[1].split(" ")[0]
    assert main(["restore", savepoint, str(streams.root / "new"), "--wait", "0"]) == 0
    streams.run(5, "new")

    assert streams.shown() == [Counter(range(5))] * 2
    assert SparkStandIn(streams.root / "new").keys(4) == [0, 1, 2, 3, 4]


def test_a_savepoint_of_before_is_refused_once_the_rescaled_stream_has_written(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    done = streams.rescale()
    streams.run(6)

    assert main(["restore", done.savepoint, str(streams.root / "new"), "--wait", "0"]) == 2
    assert streams.starts("checkpoint")


def test_a_stream_that_cannot_be_rescaled_is_refused_with_what_to_do(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    offsets = streams.scenery.checkpoint / "offsets"
    good = (offsets / "2").read_text()
    (offsets / "2").write_text(good.replace("RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"))
    with pytest.raises(Refused, match=r"HDFSBackedStateStoreProvider.*only RocksDBStateStoreProvider"):
        streams.rescale()
    (offsets / "2").write_text(good)
    (offsets / "3").write_text(good)
    with pytest.raises(Refused, match=r"epoch 3 is begun and not in Spark's commits/.*Start the query once more"):
        streams.rescale()
    (offsets / "3").unlink()
    alive = streams.driver()
    with pytest.raises(Refused, match=r"is alive.*Stop the query first"):
        streams.rescale()

    assert alive.generation == 2
    assert not streams.backups.exists()


class Fork(Stateful):
    """A fork of it, with targets of its own."""

    def participants(self) -> list[DirectoryParticipant]:
        return [self.scenery.target(f"fork-{name}") for name in SINKS]

    def rescaled(self, partitions: int) -> Rescaled:
        place = self.root / "fork"
        origin = Origin.at(str(place))
        return Rescale(origin=origin, savepoints=str(self.backups), engine=lambda: SparkStandIn(place), build=build).to(
            partitions
        )


def test_a_fork_is_rescaled_after_its_first_epoch_and_goes_on(tmp_path: Path) -> None:
    streams = prepared(tmp_path / "streams")
    assert main(["savepoint", str(streams.scenery.checkpoint), str(streams.backups)]) == 0
    (savepoint,) = (join(str(streams.backups), manifest.name) for manifest in streams.store.manifests())
    assert main(["restore", savepoint, str(streams.root / "fork"), "--fork"]) == 0
    fork = Fork.__new__(Fork)
    fork.scenery, fork.root, fork.backups = streams.scenery, streams.root, streams.backups
    with pytest.raises(Refused, match=r"has written no epoch yet.*stop it after its first epoch"):
        fork.rescaled(2)
    fork.run(4, "fork")
    done = fork.rescaled(2)
    fork.run(7, "fork")
    fork.rescaled(5)
    fork.run(9, "fork")

    assert done.epoch == 4
    assert SparkStandIn(streams.root / "fork").partitions(8) == 5
    wanted = Counter({3, 5, 6, 8})  # Spark took the others
    for sink in SINKS:
        shown = (path for path in (streams.root / f"fork-{sink}").iterdir() if path.is_file())
        assert Counter(int(path.name.split(".")[0]) for path in shown) == wanted
    with pytest.raises(ForeignTarget, match="is a fork of stream 1f0c9a2e"):
        streams.driver("fork")
