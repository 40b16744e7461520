"""Queries of a Spark Connect server, started by a client in another process."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from integration_tests.connect.clients import Client
from integration_tests.connect.server import Server
from integration_tests.spark import avro_files
from integration_tests.spark.checks import check_at_the_end, visible_files
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
FILES = 3
IDS = list(range(FILES * ROWS))


def ids_in(file: Path) -> list[int]:
    """The ids of the rows of a file, whatever its format."""
    if file.suffix == ".parquet":
        return [row["id"] for row in pq.ParquetFile(file).read().to_pylist()]
    if file.suffix == ".orc":
        return [row["id"] for row in orc.ORCFile(file).read().to_pylist()]
    if file.suffix == ".avro":
        return [row["id"] for row in avro_files.rows_of(file)]
    if file.suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            return [int(row["id"]) for row in csv.DictReader(lines)]
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text(encoding="utf-8")
    return [json.loads(line)["id"] for line in text.splitlines()]


def ids(target: Path) -> list[int]:
    return sorted(id_ for file in visible_files(target) for id_ in ids_in(file))


@pytest.mark.matrix  # Parquet, JSON and Delta, so both ways to count rows, are in every test of test_kills.py
def test_every_format_that_is_not_refused_gets_every_row_once(connect: Server, user: Client, world: World) -> None:
    world.feed(FILES)
    answer = user.run(connect, world, sinks="formats")

    assert "error" not in answer, answer
    for format_ in ("orc", "csv", "avro", "gzip", "first"):
        assert ids(world.root / format_) == IDS, format_


@pytest.mark.matrix
def test_a_sink_of_another_package_that_declares_spark_connect_gets_every_row_once(
    connect: Server, user: Client, world: World
) -> None:
    database = world.root / "shop.db"
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE orders (id INTEGER, file INTEGER, kind TEXT, word TEXT)")
    world.feed(FILES)
    answer = user.run(connect, world, sinks="sqlite")

    assert "error" not in answer, answer
    with closing(sqlite3.connect(database)) as db:
        assert sorted(id_ for (id_,) in db.execute("SELECT id FROM orders")) == IDS


@pytest.mark.matrix
def test_parts_stay_open_over_epochs_and_close_at_their_limit(connect: Server, user: Client, world: World) -> None:
    world.feed(2 * FILES + 1)
    answer = user.run(connect, world, sinks="rolling")

    assert "error" not in answer, answer
    for format_ in ("parquet", "orc", "json", "csv"):
        parts = [len(ids_in(file)) for file in visible_files(world.root / format_)]

        assert parts == [9, 9, 9, 9], format_  # three epochs each; those of the last one are open
        assert ids(world.root / format_) == list(range(2 * FILES * ROWS)), format_


@pytest.mark.matrix  # in the default suite, a client that is killed leaves such a query
def test_the_last_epoch_is_visible_while_the_query_goes_on_and_waits(
    connect: Server, user: Client, world: World
) -> None:
    world.feed(FILES)
    answer = user.run(connect, world, sinks="2", trigger={"processingTime": "0 seconds"}, leave=True)

    assert "error" not in answer, answer
    wait_until(lambda: ids(world.first) == IDS, "the last epoch to appear")
    user.run(connect, world, of=answer["id"], do="stop")
    connect.wait_for_workers()
    check_at_the_end(world, files=FILES)


@pytest.mark.matrix  # test_kills.py has a worse case: the process that writes batches settles nothing
def test_every_row_is_there_once_when_the_query_has_ended(connect: Server, far: Client, world: World) -> None:
    world.feed(FILES)
    answer = far.run(connect, world, sinks="all")

    assert "error" not in answer, answer
    connect.wait_for_workers()
    check_at_the_end(world, files=FILES)


@pytest.mark.matrix  # tests/spark_plugins/test_remote.py has it without a server
def test_a_frame_that_does_not_fit_ends_the_query_before_anything_is_written(
    connect: Server, user: Client, world: World
) -> None:
    world.feed(1)
    answer = user.run(connect, world, sinks="2", drop=["kind"])

    assert answer["error"] == "BadRows", answer
    assert "'kind'" in answer["text"]
    assert not world.first.exists()
    assert not world.journal.exists()


@pytest.mark.matrix  # tests/spark_plugins/test_remote.py has it without a server
def test_a_writer_that_did_not_start_the_query_refuses_its_batches(connect: Server, user: Client, world: World) -> None:
    world.feed(1)
    answer = user.run(connect, world, sinks="2", plain=True)

    assert "on Spark Connect a batch does not tell which query it belongs to" in answer["text"]
    assert not world.first.exists()


@pytest.mark.parametrize(
    ("order", "error", "text"),
    [
        ({"trigger": {"realTime": "5 minutes"}}, "UnsupportedQuery", "real-time mode"),
        ({"options": {"asyncProgressTrackingEnabled": "true"}}, "UnsupportedQuery", "asynchronous progress"),
        ({"options": {"checkpointLocation": "s3a://bucket/c"}}, "Refused", "object store"),
        ({"options": {"checkpointLocation": "viewfs://shop/c"}}, "Refused", "only local disks and HDFS"),
        ({"sinks": "by-delta"}, "OptionError", "mode='upsert'"),
    ],
    ids=["real time", "asynchronous", "object store", "view", "upsert"],
)
def test_what_cannot_hold_is_refused_before_the_query_starts(
    connect: Server, user: Client, world: World, order: dict[str, object], error: str, text: str
) -> None:
    world.feed(1)
    answer = user.run(connect, world, **order)

    assert answer["error"] == error, answer
    assert text in answer["text"]
    assert not world.checkpoint.exists()


@pytest.mark.parametrize("sinks", ["1", pytest.param("json", marks=pytest.mark.matrix)])
def test_a_staged_file_that_is_gone_before_its_rows_are_counted_ends_the_query(
    connect: Server, user: Client, world: World, sinks: str
) -> None:
    world.feed(2)
    gate = world.root / "gate"
    connect.arm(f"after-write=pause:{gate}@2")
    user.send(connect, world, sinks=sinks)
    wait_until(gate.exists, "the second epoch to be written")
    connect.arm("")
    staged = sorted(path for path in world.first.glob("_epochal/staged/*/*/data/**/*") if path.is_file())
    next(path for path in staged if path.name.startswith("part-")).unlink()
    gate.unlink()
    answer = user.answer()

    assert answer["error"] == "Refused", answer
    assert "are not there, or not all of them" in answer["text"]
    assert ids(world.first) == list(range(ROWS))
