"""HDFS over HTTP, without a JVM: the same operations as through Spark, and the command line on top of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from epochal.sinks.storage.hadoop import HadoopFiles
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.webhdfs import ADDRESS, WebHdfsFiles
from epochal.testing.servers import HdfsCluster
from epochal.txn.files import Entry
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.audits import audited
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.children import REPOSITORY, Children
from integration_tests.spark.driver import Ending

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
        with pytest.raises(OSError, match=r".") as told:
            files.rename(f"{remote.uri}/one", f"{remote.uri}/{target}")
        assert target == "folder" or isinstance(told.value, FileExistsError)
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
    with pytest.raises(OSError, match="file/below") as told:
        files.rename_all(moves)
    before = files.names(remote.uri)

    assert not isinstance(told.value, FileNotFoundError | FileExistsError)
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
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", command, f"{remote.uri}/checkpoint", "--json", *options],
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
