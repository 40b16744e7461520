"""What `epochal state` reads in a checkpoint is what Spark's own reader and its progress say, for every layout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import EpochWriter
from epochal.cli import main
from epochal.spark_plugins.recovery import watching
from epochal.spark_plugins.recovery.copying import copy_checkpoint, rewind
from epochal.spark_plugins.recovery.reading import read_state
from epochal.spark_plugins.recovery.states import SparkState
from epochal.spark_plugins.streams.running import Running
from epochal.txn.events import Event, RecoveryMeasured
from epochal.txn.files import LocalFiles
from integration_tests.spark.queries import archive, stream, to_checkpoint
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import ROWS, World
from integration_tests.streams.texts import checked
from integration_tests.streams.texts import stream as configured
from tests.cli.test_schemas import check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PREFIX = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
FILES = 5


@dataclass(frozen=True)
class Kind:
    """One layout: settings of the session, a query, and what the rows of our reading may be."""

    settings: dict[str, str]
    query: Callable[[DataFrame], DataFrame]
    mode: str = "update"


def _settings(provider: str, *, changelog: bool = False, form: int = 1) -> dict[str, str]:
    return {
        "providerClass": provider,
        "rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
        "checkpointFormatVersion": str(form),
    }


def counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("id").count()


def distinct(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["id"])


def joined(frame: DataFrame) -> DataFrame:
    left = frame.selectExpr("id", "timestamp_seconds(id) as at").withWatermark("at", "1 day")
    right = frame.selectExpr("id as other", "timestamp_seconds(id) as then").withWatermark("then", "1 day")
    return left.join(right, left.id == right.other)


KINDS = {
    "HDFSBacked": Kind(_settings(HDFS_BACKED), counts),
    "RocksDB": Kind(_settings(ROCKSDB), counts),
    "changelog": Kind(_settings(ROCKSDB, changelog=True), counts),
    "format 2": Kind(_settings(ROCKSDB, changelog=True, form=2), distinct, "append"),
    "join": Kind(_settings(ROCKSDB, changelog=True), joined, "append"),
    "join on HDFSBacked": Kind(_settings(HDFS_BACKED), joined, "append"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Kind]:
    found = KINDS[request.param]
    for key, value in found.settings.items():
        spark.conf.set(PREFIX + key, value)
    yield found
    for key in found.settings:
        spark.conf.unset(PREFIX + key)


def run(spark: SparkSession, world: World, kind: Kind) -> Any:
    """Run a query of this kind to its end, and return its last progress."""
    world.feed(FILES)
    query = to_checkpoint(kind.query(stream(spark, world)), world, kind.mode)
    started = query.foreachBatch(lambda frame, _: frame.write.format("noop").mode("overwrite").save()).start()
    started.awaitTermination()
    return started.lastProgress


def rows_of(spark: SparkSession, world: World, operator: int, store: str, partition: int) -> int:
    """How many keys a store has, by Spark's own reader."""
    reader = spark.read.format("statestore").option("operatorId", operator)
    if store != "default":
        reader = reader.option("storeName", store)
    return reader.load(str(world.checkpoint)).where(f"partition_id = {partition}").count()


def on_disk(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.name.endswith(".crc"))


def test_rows_and_bytes_are_those_of_spark(spark: SparkSession, world: World, kind: Kind) -> None:
    progress = run(spark, world, kind)
    state = read_state(LocalFiles(), str(world.checkpoint))

    (operator,) = state.operators
    assert operator.missing == ()
    assert operator.rows is not None
    assert operator.rows.exact
    (reported,) = progress.stateOperators
    assert operator.rows.count == reported.numRowsTotal
    assert operator.metadata.name == reported.operatorName
    assert len(operator.stores) == reported.numStateStoreInstances
    for store in operator.stores:
        assert store.rows is not None
        assert store.rows.count == rows_of(spark, world, 0, store.store, store.partition)
    folder = world.checkpoint / "state" / "0"
    for partition in operator.partitions:
        place = folder / str(partition.partition)
        schemas = sum(on_disk(one) for one in place.rglob("_metadata"))
        assert partition.stored_bytes == on_disk(place) - schemas
        assert partition.bytes <= partition.stored_bytes


def test_a_rewound_copy_goes_on_where_the_original_was(
    spark: SparkSession, world: World, kind: Kind, tmp_path: Path
) -> None:
    run(spark, world, kind)
    expected = read_state(LocalFiles(), str(world.checkpoint))
    copy = World(tmp_path / "copied")
    epoch = copy_checkpoint(LocalFiles(), str(world.checkpoint), copy.checkpoint)
    rewind(copy.checkpoint)
    copy.root.joinpath("source").symlink_to(world.source)
    # The file source remembers the paths that it has listed: the copied query reads those.
    query = to_checkpoint(kind.query(stream(spark, world)), copy, kind.mode)
    query.foreachBatch(lambda frame, _: frame.write.format("noop").mode("overwrite").save()).start().awaitTermination()
    found = read_state(LocalFiles(), str(copy.checkpoint))

    assert found.epoch == epoch == expected.epoch
    assert found.operators[0].rows == expected.operators[0].rows


def changelog(spark: SparkSession) -> Iterator[None]:
    for key, value in KINDS["changelog"].settings.items():
        spark.conf.set(PREFIX + key, value)
    yield
    for key in KINDS["changelog"].settings:
        spark.conf.unset(PREFIX + key)


with_changelog = pytest.fixture(changelog)


def test_the_variables_of_transform_with_state_are_named(spark: SparkSession, world: World) -> None:
    pytest.importorskip("google.protobuf")
    pytest.importorskip("pandas")
    from integration_tests.spark.totals import Totals

    for key, value in KINDS["RocksDB"].settings.items():
        spark.conf.set(PREFIX + key, value)
    try:
        schema = "word string, total long"
        kind = Kind({}, lambda f: f.groupBy("word").transformWithState(Totals(), schema, "Update", "None"))
        progress = run(spark, world, kind)
    finally:
        for key in KINDS["RocksDB"].settings:
            spark.conf.unset(PREFIX + key)
    (operator,) = read_state(LocalFiles(), str(world.checkpoint)).operators

    assert operator.families == ("total", "seen")
    assert operator.rows is not None
    assert operator.rows.exact
    assert operator.rows.count == progress.stateOperators[0].numRowsTotal


@pytest.mark.usefixtures("with_changelog")
def test_state_is_read_beside_a_running_query_and_an_objective_is_watched(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PAUSE", 0.05)
    seen: list[RecoveryMeasured] = []

    def observe(event: Event) -> None:
        if isinstance(event, RecoveryMeasured):
            seen.append(event)

    world.feed(2)
    writer = EpochWriter(archive(world), recovery_objective="1 ms", observers=[observe])
    states: list[SparkState] = []
    with writer.start(
        to_checkpoint(counts(stream(spark, world)), world, "update", processingTime="0 seconds")
    ) as query:
        for files in range(3, 7):
            world.feed(files)
            query.processAllAvailable()
            states.append(read_state(LocalFiles(), str(world.checkpoint)))
        wait_until(lambda: bool(seen), "the recovery was measured")

    assert [state.operators[0].missing for state in states] == [()] * 4
    assert [state.epoch for state in states] == sorted(state.epoch for state in states)
    assert seen[0].late
    assert seen[-1].rows in {files * ROWS for files in range(1, 7)}
    assert seen[0].turned


@pytest.mark.usefixtures("with_changelog")
def test_a_drill_of_a_configured_stream_runs_its_query_again(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.feed(3)
    sql = "SELECT id, count(*) AS n FROM source GROUP BY id"
    text = configured(world, "counts", f'output_mode = "update"\nsql = "{sql}"', checkpoint=world.checkpoint)
    assert Running(say=print, complain=print).run(spark, checked(spark, world.root, text)) == 0
    capsys.readouterr()
    before = {str(f): f.stat().st_mtime_ns for f in world.root.rglob("*") if f.is_file()}
    code = main(["drill", str(world.checkpoint), "--file", str(world.root / "streams.toml"), "--cores", "2", "--json"])
    answer = json.loads(capsys.readouterr().out)

    assert code == 0
    check("drill", answer)
    assert (answer["how"], answer["epoch"]) == ("query", 2)
    parts = {name: part["measured_seconds"] for name, part in answer["parts"].items()}
    assert parts["load"] + parts["replay"] > 0
    assert sum(parts[name] for name in parts if name != "total") == pytest.approx(parts["total"], abs=0.01)
    assert {str(f): f.stat().st_mtime_ns for f in world.root.rglob("*") if f.is_file()} == before
