"""File operations through the JVM, on a stand-in for a cluster's file system: a view of local folders."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal import EpochWriter, RollingFileSink, published
from epochal.sinks.storage.hadoop import HadoopFiles, resolve
from epochal.sinks.storage.sink_files import lines_in
from epochal.txn.files import Entry, LocalFiles, join
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.queries import stream
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(params=["file", "viewfs"])
def home(request: pytest.FixtureRequest, tmp_path: Path, view: str) -> str:
    """A folder, spelled with its scheme."""
    return f"file:{tmp_path}" if request.param == "file" else view


@pytest.fixture
def hadoop(spark: SparkSession) -> HadoopFiles:
    return HadoopFiles(spark)


def test_the_first_to_create_a_file_wins(hadoop: HadoopFiles, home: str) -> None:
    path = join(home, "a", "b", "record")
    answers = [hadoop.create(path, data) for data in (b"one", b"two")]

    assert answers == [True, False]
    assert hadoop.read(path) == b"one"
    assert hadoop.names(join(home, "a", "b")) == ("record",)


@pytest.mark.parametrize("data", [b"", bytes(range(256)), b"x" * 300_000], ids=["empty", "every byte", "large"])
def test_what_was_created_is_read_back(hadoop: HadoopFiles, home: str, data: bytes) -> None:
    path = join(home, "record")
    hadoop.create(path, data, durable=len(data) < 300)

    assert hadoop.read(path) == data
    assert hadoop.length(path) == len(data)
    assert abs((hadoop.modified(path) or 0.0) - time.time()) < 60


def test_what_is_not_there_has_no_length_no_names_and_cannot_be_read(hadoop: HadoopFiles, home: str) -> None:
    path = join(home, "nothing")

    assert hadoop.length(path) is None
    assert hadoop.modified(path) is None
    assert hadoop.names(path) == ()
    assert hadoop.list(path) == []
    assert list(hadoop.walk(path)) == []
    with pytest.raises(FileNotFoundError):
        hadoop.read(path)


def test_rename_is_strict(hadoop: HadoopFiles, home: str) -> None:
    one, two, three = (join(home, name) for name in ("one", "two", "three"))
    hadoop.create(one, b"1")
    hadoop.create(two, b"2")

    with pytest.raises(FileExistsError):
        hadoop.rename(one, two)
    with pytest.raises(FileNotFoundError):
        hadoop.rename(three, join(home, "four"))
    hadoop.rename(one, three)
    assert (hadoop.read(two), hadoop.read(three), hadoop.length(one)) == (b"2", b"1", None)


def test_folders_are_listed_and_walked_in_order(hadoop: HadoopFiles, home: str) -> None:
    for name in ("b/2", "b/1", "a", "c/d/e"):
        hadoop.create(join(home, "folder", name), name.encode())
    hadoop.make_folder(join(home, "folder", "empty"))
    hadoop.make_folder(join(home, "folder", "empty"))

    folder = join(home, "folder")
    assert [(e.name, e.is_folder) for e in hadoop.list(folder)] == [
        ("a", False),
        ("b", True),
        ("c", True),
        ("empty", True),
    ]
    assert list(hadoop.walk(folder)) == [
        Entry("a", 1, False),
        Entry("b/1", 3, False),
        Entry("b/2", 3, False),
        Entry("c/d/e", 5, False),
    ]


def test_many_folders_are_walked_side_by_side_and_what_is_in_each_is_found(hadoop: HadoopFiles, home: str) -> None:
    folder = join(home, "folder")
    names = [f"bucket=%3A{number:02d}/{'deep/' * (number % 3)}part" for number in range(30)]
    hadoop.create_all([(join(folder, name), name.encode()) for name in names], durable=False)

    found = list(hadoop.walk(folder))
    assert found == [Entry(name, len(name), False) for name in names]


def test_lines_are_counted_as_spark_counts_them(spark: SparkSession, hadoop: HadoopFiles, home: str) -> None:
    texts = [b"", b"a", b"a\n", b"\n", b"a\r\n\nb", b"x" * 100_000 + b"\n" + b"y" * 100_000]
    paths = [join(home, "lines", str(number)) for number in range(len(texts))]
    hadoop.create_all(list(zip(paths, texts, strict=True)))

    counted = [spark.read.option("lineSep", "\n").text(path).count() for path in paths]
    assert list(hadoop.line_counts(paths)) == [lines_in(text) for text in texts] == counted == [0, 1, 1, 1, 3, 2]
    with pytest.raises(FileNotFoundError):
        hadoop.line_counts([join(home, "lines", "none")])


def test_delete_takes_files_and_whole_folders_and_minds_nothing_missing(hadoop: HadoopFiles, home: str) -> None:
    hadoop.create(join(home, "folder", "below", "file"), b"x")
    hadoop.create(join(home, "file"), b"x")
    for _ in range(2):
        hadoop.delete(join(home, "folder"))
        hadoop.delete(join(home, "file"))

    assert hadoop.names(join(home, "folder")) == ()
    assert hadoop.length(join(home, "file")) is None


def test_names_that_a_path_could_mistake_are_kept(hadoop: HadoopFiles, home: str) -> None:
    names = ["day=a%2F..%2Fb", "with space", "ünï", "a=b", "x#y?z", "100%"]
    for name in names:
        hadoop.create(join(home, "names", name, "file"), b"x")

    assert sorted(hadoop.names(join(home, "names"))) == sorted(names)
    assert all(hadoop.read(join(home, "names", name, "file")) == b"x" for name in names)


def test_a_failure_of_the_file_system_is_one_that_is_tried_again(hadoop: HadoopFiles) -> None:
    with pytest.raises(OSError, match="viewfs"):
        hadoop.read("viewfs://nobody/file")


def test_a_plain_path_is_what_the_default_file_system_says(spark: SparkSession, tmp_path: Path, view: str) -> None:
    conf = spark._jsc.hadoopConfiguration()
    before = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", "viewfs://tests/")
    try:
        files, full = resolve("/data/target", spark)
        local, plain = resolve(f"file:{tmp_path}/a b", spark)
    finally:
        conf.set("fs.defaultFS", before)

    assert isinstance(files, HadoopFiles)
    assert full == "viewfs://tests/data/target"
    assert isinstance(local, LocalFiles)
    assert plain == f"{tmp_path}/a b"


def test_local_paths_never_go_through_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    found = [resolve(path, spark) for path in (str(tmp_path), f"file://{tmp_path}", "relative")]

    assert [isinstance(files, LocalFiles) for files, _ in found] == [True, True, True]
    assert [path for _, path in found] == [str(tmp_path), str(tmp_path), os.path.abspath("relative")]


def test_a_stream_with_target_and_checkpoint_on_hadoop_is_exactly_once(
    spark: SparkSession, tmp_path: Path, view: str
) -> None:
    world = World(tmp_path)
    world.feed(2)
    sinks = [
        RollingFileSink(f"{view}/first", bucket_by=["kind"], marker="epoch", name="first"),
        RollingFileSink(f"{view}/second", format="json", bucket_by=["word"], marker="bucket", name="second"),
    ]
    for files in (2, 3):
        world.feed(files)
        query = stream(spark, world).writeStream.option("checkpointLocation", f"{view}/checkpoint")
        EpochWriter(*sinks).start(query.trigger(availableNow=True)).awaitTermination()

    for checksum in tmp_path.rglob(".*.crc"):
        checksum.unlink()  # of the local folders behind the view
    check_at_the_end(world, files=3)
    assert [epoch.rows for epoch in published(f"{view}/first")] == [6, 6, 6]
