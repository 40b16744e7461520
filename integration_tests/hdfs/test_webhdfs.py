"""HDFS over HTTP, without a JVM: the same operations as through Spark, and the command line on top of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal.cli import main
from epochal.sinks.storage.hadoop import HadoopFiles
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.webhdfs import ADDRESS, WebHdfsFiles
from epochal.spark_plugins.moving.manifest import Manifest
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.spark_plugins.moving.taking import take
from epochal.testing.servers import HdfsCluster
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import TEMPORARY, Entry
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.audits import audited
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.children import REPOSITORY, Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.killed_rescale import killed_rescale
from integration_tests.spark.load import is_told, under_load
from integration_tests.spark.stateful import BRIEF, Forked, expected, format_of, put_away, shown, start
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STRANGE = "kind=b%2F..%2Fc d#1?ü"


@pytest.fixture(params=["over HTTP", "through Spark"])
def files(request: pytest.FixtureRequest, remote: Remote, spark: SparkSession) -> SinkFiles:
    return WebHdfsFiles(remote.cluster.web) if request.param == "over HTTP" else HadoopFiles(spark)


def test_a_file_is_made_once_and_read_back(files: SinkFiles, remote: Remote) -> None:
    path = f"{remote.uri}/{STRANGE}/file"

    assert files.create(path, b"first")
    assert not files.create(path, b"second")
    assert files.read(path) == b"first"
    assert files.length(path) == 5
    assert abs((files.modified(path) or 0.0) - time.time()) < 60
    assert files.names(f"{remote.uri}/{STRANGE}") == ("file",)
    assert list(files.walk(remote.uri)) == [Entry(f"{STRANGE}/file", 5, False)]


def test_a_file_is_written_and_read_a_piece_at_a_time(files: SinkFiles, remote: Remote) -> None:
    path, pieces = f"{remote.uri}/{STRANGE}/file", [b"%d" % (number % 10) * 300_000 for number in range(12)]

    assert files.create_from(path, iter(pieces))
    assert not files.create_from(path, iter([b"other"]))
    read = list(files.chunks(path))
    assert b"".join(read) == b"".join(pieces)
    assert len(read) > 1
    assert files.names(f"{remote.uri}/{STRANGE}") == ("file",)
    with pytest.raises(FileNotFoundError):
        list(files.chunks(f"{remote.uri}/none"))


def test_an_error_of_what_is_copied_is_raised_as_it_is_and_its_name_stays_free(
    files: SinkFiles, remote: Remote
) -> None:
    def vanishing() -> Iterator[bytes]:
        yield b"1" * 300_000
        raise FileNotFoundError("source")

    with pytest.raises(FileNotFoundError, match="source"):
        files.create_from(f"{remote.uri}/folder/file", vanishing())
    # Over HTTP a DataNode may create the temporary file after its client has given up and removed it.
    assert not [name for name in files.names(f"{remote.uri}/folder") if not name.startswith(TEMPORARY)]
    assert files.create_from(f"{remote.uri}/folder/file", iter([b"2"]))


def test_what_is_not_there_is_told(files: SinkFiles, remote: Remote) -> None:
    assert files.length(f"{remote.uri}/none") is None
    assert files.modified(f"{remote.uri}/none") is None
    assert files.names(f"{remote.uri}/none") == ()
    files.delete(f"{remote.uri}/none")
    with pytest.raises(FileNotFoundError):
        files.read(f"{remote.uri}/none")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{remote.uri}/none", f"{remote.uri}/new")


def test_a_rename_never_takes_a_name_that_is_taken_nor_moves_into_a_folder(files: SinkFiles, remote: Remote) -> None:
    files.create(f"{remote.uri}/one", b"1")
    files.create(f"{remote.uri}/two", b"2")
    files.make_folder(f"{remote.uri}/folder")
    for target in ("two", "folder"):
        with pytest.raises(OSError, match=r".") as raised:
            files.rename(f"{remote.uri}/one", f"{remote.uri}/{target}")
        assert target == "folder" or isinstance(raised.value, FileExistsError)
    files.rename(f"{remote.uri}/one", f"{remote.uri}/three")

    assert files.names(remote.uri) == ("folder", "three", "two")
    assert files.names(f"{remote.uri}/folder") == ()


def test_many_files_are_made_asked_for_moved_joined_and_removed_at_once(files: SinkFiles, remote: Remote) -> None:
    def at(*names: str) -> list[str]:
        return [f"{remote.uri}/{STRANGE}/{name}" for name in names]

    names = [f"{number:03d}" for number in range(40)]
    files.make_folders(at("a", "b/c", "a"))
    files.create_all([(path, name.encode()) for path, name in zip(at(*names), names, strict=True)])
    files.create_all([(at("000")[0], b"taken"), (at("empty")[0], b"")])
    moved = files.rename_all([(old, new) for old, new in zip(at(*names), at(*(f"a/{n}" for n in names)), strict=True)])
    joined = files.join_all_in_place([at(*(f"a/{n}" for n in names[start : start + 4])) for start in range(0, 40, 4)])

    assert moved == [None] * 40
    assert joined == [None] * 10
    assert [files.read(path) for path in at("a/000", "a/036")] == [b"000001002003", b"036037038039"]
    assert list(files.lengths(at("a/000", "a/001", "empty", "b/c"))) == [12, None, 0, 0]
    assert list(files.line_counts(at("a/000", "empty"))) == [1, 0]
    files.delete_all(at("a/000", "b", "none"))
    assert len(files.names(at("a")[0])) == 9
    assert files.names(at("b")[0]) == ()


def test_of_many_files_those_that_are_missing_or_taken_are_named_and_the_others_done(
    files: SinkFiles, remote: Remote
) -> None:
    def at(name: str) -> str:
        return f"{remote.uri}/{name}"

    files.create_all([(at(name), name.encode()) for name in ("one", "two", "three", "a", "b")])
    moved = files.rename_all([(at("none"), at("x")), (at("one"), at("two")), (at("three"), at("y"))])
    joined = files.join_all_in_place([[at("none"), at("one")], [at("two"), at("none")], [at("a"), at("b")]])

    assert [type(miss) for miss in moved] == [FileNotFoundError, FileExistsError, type(None)]
    assert [str(miss) for miss in moved[:2]] == [at("x"), at("two")]
    assert [type(miss) for miss in joined] == [FileNotFoundError, FileNotFoundError, type(None)]
    assert files.names(remote.uri) == ("a", "one", "two", "y")
    assert (files.read(at("a")), files.read(at("two"))) == (b"ab", b"two")
    assert list(files.rename_all([])) == []


def test_a_fault_among_many_files_is_raised_when_nothing_is_at_work_and_names_its_file(
    files: SinkFiles, remote: Remote
) -> None:
    sources = [f"{remote.uri}/{number}" for number in range(30)]
    files.create_all([(path, b"1") for path in [*sources, f"{remote.uri}/file"]])
    moves = [(path, f"{path}-moved") for path in sources]
    moves[7] = (sources[7], f"{remote.uri}/file/below")
    with pytest.raises(OSError, match="file/below") as raised:
        files.rename_all(moves)
    before = files.names(remote.uri)

    assert not isinstance(raised.value, FileNotFoundError | FileExistsError)
    assert f"{sources[7]}".rpartition("/")[2] in before
    again = files.rename_all([move for move in moves if move is not moves[7]])
    assert {type(miss) for miss in again} <= {type(None), FileNotFoundError}
    assert len([name for name in files.names(remote.uri) if name.endswith("-moved")]) == 29


def test_a_race_for_a_name_has_one_winner(remote: Remote) -> None:
    files = WebHdfsFiles(remote.cluster.web)
    won: list[int] = []

    def race(number: int) -> None:
        if files.create(f"{remote.uri}/prize", b"%d" % number):
            won.append(number)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert [b"%d" % number for number in won] == [files.read(f"{remote.uri}/prize")]
    assert files.names(remote.uri) == ("prize",)


def test_every_call_has_a_deadline(mortal_hdfs: HdfsCluster) -> None:
    uri, namenode = mortal_hdfs.uri, mortal_hdfs.namenode
    patient, files = WebHdfsFiles(mortal_hdfs.web), WebHdfsFiles(mortal_hdfs.web, deadline=0.5)
    patient.create(f"{uri}/file", b"data")
    calls: list[Callable[[], object]] = [
        lambda: files.read(f"{uri}/file"),
        lambda: files.list(f"{uri}/"),
        lambda: files.length(f"{uri}/file"),
        lambda: files.create(f"{uri}/new", b""),
    ]
    namenode.pause()
    try:
        for call in calls:
            with pytest.raises(OSError, match=r"(?i)timed out"):
                call()
    finally:
        namenode.resume()  # others use it too

    assert patient.read(f"{uri}/file") == b"data"


DEAD = 5  # what `status` returns: the driver was killed


def epochal(remote: Remote, command: str, *options: str, code: int = 0) -> Any:
    return without_java(remote, command, f"{remote.uri}/checkpoint", *options, code=code)


def without_java(remote: Remote, *arguments: str, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", *arguments, "--json"],
        cwd=REPOSITORY,
        env={**os.environ, ADDRESS: remote.cluster.web, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(600)
def test_status_recover_and_gc_work_on_hdfs_without_java(drivers: Children, remote: Remote) -> None:
    remote.world.feed(3)
    killed = drivers.run(remote.world.root, "--sinks", "2", *remote.arguments, points="before-commit=kill@2")
    assert killed.ending is Ending.KILLED, killed.output

    before = epochal(remote, "status", code=DEAD)
    assert before["driver"]["heartbeat_seconds"] is not None  # its live file was written to HDFS
    assert [held["epoch"] for held in before["held"]] == [0]
    recovered = epochal(remote, "recover")
    assert [(commit["sink"], commit["epoch"]) for commit in recovered["commits"]] == [("first", 0), ("second", 0)]
    assert epochal(remote, "status", code=DEAD)["settled"]
    assert epochal(remote, "gc")["kept"] == []

    ended = drivers.run(remote.world.root, "--sinks", "2", *remote.arguments)
    assert ended.ending is Ending.DONE, ended.output
    check_at_the_end(remote.look(), files=3)


@pytest.mark.timeout(600)
def test_a_stream_moves_from_a_local_disk_to_hdfs_is_rescaled_there_and_moves_back(
    spark: SparkSession, remote: Remote
) -> None:
    world, on_hdfs, back = remote.world, f"{remote.uri}/moved/checkpoint", str(remote.world.root / "back")
    with format_of(spark, "changelog"):
        world.feed(2)
        start(spark, world).awaitTermination()
        first = without_java(remote, "savepoint", str(world.checkpoint), f"{remote.uri}/backups")
        moved = without_java(remote, "restore", first["savepoint"], on_hdfs)
        put_away(world)
        world.feed(4)
        start(spark, world, checkpoint=on_hdfs).awaitTermination()
        (operator,) = without_java(remote, "state", on_hdfs)["operators"]
        again = without_java(remote, "savepoint", on_hdfs, f"{remote.uri}/backups")
        failpoints.arm("after-rescale-state=raise")
        try:
            assert main(["rescale", on_hdfs, "--partitions", "3"]) != 0
        finally:
            failpoints.arm("")
        with pytest.raises(Refused, match="--partitions 3"):
            start(spark, world, checkpoint=on_hdfs)
        assert main(["rescale", on_hdfs, "--partitions", "3"]) == 0
        by_java = take(on_hdfs, str(world.root / "backups"))
        assert main(["restore", f"{world.root}/backups/{by_java.name}", back]) == 0
        with pytest.raises(Refused, match="has moved"):
            start(spark, world, checkpoint=on_hdfs)
        world.feed(6)
        start(spark, world, checkpoint=back).awaitTermination()

    numbers = [0, 1, 2, 3, 5, 6]  # 4 went to Spark
    assert shown(spark, world) == {epoch: expected(files + 1) for files, epoch in enumerate(numbers)}
    assert '"spark.sql.shuffle.partitions":"3"' in (Path(back) / "offsets" / "6").read_text()
    assert (moved["checkpoint"], moved["closed"]) == (on_hdfs, str(world.checkpoint))
    assert again["stored"] < again["bytes"], "nothing was shared with the first savepoint"
    assert (again["epoch"], by_java.epoch) == (3, 4)
    assert (operator["rows"], operator["rows_exact"], operator["extent"]) == (len(expected(4)), True, 4)
    listed = without_java(remote, "savepoints", f"{remote.uri}/backups", "--verify")["savepoints"]
    assert [one["epoch"] for one in listed] == [1, 3]


@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_a_rescale_on_hdfs_that_is_killed_between_sparks_own_steps_is_finished_by_the_next(
    spark: SparkSession, remote: Remote
) -> None:
    world, checkpoint, output = remote.world, f"{remote.uri}/killed/checkpoint", remote.world.root / "output"
    there = WebHdfsFiles(remote.cluster.web)

    def has(folder: str, name: str) -> bool:
        return name in there.names(folder)

    with format_of(spark, "changelog"):
        world.feed(2)
        start(spark, world, checkpoint=checkpoint).awaitTermination()
        for number, partitions, step, files in ((2, 3, "offsets", 3), (4, 2, "commits", 4)):
            begun = partial(has, f"{checkpoint}/{step}", str(number))
            code = killed_rescale(checkpoint, partitions, output, until=begun)
            assert code == -signal.SIGKILL, output.read_text()
            with pytest.raises(Refused, match=f"--partitions {partitions}"):
                start(spark, world, checkpoint=checkpoint)
            assert main(["rescale", checkpoint, "--partitions", str(partitions)]) == 0
            world.feed(files)
            start(spark, world, checkpoint=checkpoint).awaitTermination()

    assert shown(spark, world) == {epoch: expected(number + 1) for number, epoch in enumerate([0, 1, 3, 5])}


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", ["HDFSBacked", "changelog"])
def test_savepoints_of_a_query_under_load_on_hdfs_are_exact_over_http_and_through_spark(
    spark: SparkSession, remote: Remote, form: str
) -> None:
    world, checkpoint = remote.world, f"{remote.uri}/running/checkpoint"
    there = WebHdfsFiles(remote.cluster.web)

    def last() -> int:
        return max((int(n) for n in there.names(f"{checkpoint}/commits") if n.isdecimal()), default=-1)

    def taken(number: int) -> tuple[str, Manifest]:
        """A savepoint's path and manifest: by turns on HDFS without Java, and here through Spark."""
        if number % 2 == 0:
            path = without_java(remote, "savepoint", checkpoint, f"{remote.uri}/of-running")["savepoint"]
            place, _, name = path.rpartition("/")
            manifest = SavepointStore(there, place).read(name)
            assert manifest is not None
            return path, manifest
        manifest = take(checkpoint, str(world.root / "backups"))
        return f"{world.root}/backups/{manifest.name}", manifest

    with format_of(spark, form, BRIEF):
        world.feed(1)
        query = start(spark, world, checkpoint=checkpoint, trigger={"processingTime": "0 seconds"})
        found: list[tuple[str, Manifest]] = []
        try:
            query.processAllAvailable()
            with under_load(world, last):
                while len(found) < 6 or not is_told([manifest for _, manifest in found], form):
                    wait_until(lambda: not found or last() > found[-1][1].epoch, "the next epoch")
                    found.append(taken(len(found)))
        finally:
            query.stop()
        files = len(list(world.source.iterdir())) + 1
        world.feed(files)
        for number, (savepoint, manifest) in enumerate(found):
            fork, forked = Forked(world.root / f"fork-{number}", world), f"{remote.uri}/forks/{number}"
            assert main(["restore", savepoint, forked, "--fork"]) == 0
            start(spark, fork, files=1000, checkpoint=forked).awaitTermination()
            epochs = shown(spark, fork)

            assert min(epochs) == manifest.epoch + 1
            assert epochs[max(epochs)] == expected(files), f"{savepoint} of epoch {manifest.epoch}"
    assert len({manifest.epoch for _, manifest in found}) >= 6


@pytest.mark.matrix
@pytest.mark.timeout(600)
def test_a_drill_restores_the_state_of_spark_and_of_sinks_from_hdfs_and_writes_nothing_there(
    spark: SparkSession, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    world, checkpoint = remote.world, f"{remote.uri}/drilled/checkpoint"
    with format_of(spark, "changelog"):
        world.feed(3)
        start(spark, world, checkpoint=checkpoint).awaitTermination()
    files = WebHdfsFiles(remote.cluster.web)
    before = [(e.name, e.length) for e in files.walk(f"{remote.uri}/drilled")]
    capsys.readouterr()
    assert main(["drill", checkpoint, "--cores", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    assert (answer["how"], answer["epoch"], answer["extent"]) == ("stores", 2, 2)
    assert answer["parts"]["load"]["measured_seconds"] + answer["parts"]["replay"]["measured_seconds"] > 0
    assert answer["parts"]["sinks"]["measured_seconds"] is not None
    assert [(e.name, e.length) for e in files.walk(f"{remote.uri}/drilled")] == before


@pytest.mark.timeout(600)
def test_an_audit_on_hdfs_needs_java_for_rows_alone(spark: SparkSession, drivers: Children, remote: Remote) -> None:
    remote.world.feed(2)
    ended = drivers.run(remote.world.root, "--sinks", "rolling-long-csv,parquet", "--digest", *remote.arguments)
    assert ended.ending is Ending.DONE, ended.output

    by_names = epochal(remote, "audit", "--fast")
    by_rows = audited(f"{remote.uri}/checkpoint")
    WebHdfsFiles(remote.cluster.web).create(f"{remote.uri}/first/kind=a/{_part(by_rows)}", b"once more\n")

    assert [sink["not_provable"] for sink in by_names["sinks"]] == [["rows were not read"]] * 2
    assert [(s["verdict"], s["digest"]["compared"], s["rows"]["found"]) for s in by_rows["sinks"]] == [
        ("exact", "equal", 12)
    ] * 2
    found = epochal(remote, "audit", "--fast", code=3)
    assert [sink["verdict"] for sink in found["sinks"]] == ["differs", "consistent"]


def _part(answer: dict[str, Any]) -> str:
    return f"part-000000000000-00077-{answer['lineage'][:8]}.csv"
