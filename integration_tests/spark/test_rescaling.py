"""Stateful queries whose state gets more or fewer partitions between two starts: rows and state stay exact."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import epochal
from epochal import DeltaSink, EpochWriter, RollingFileSink
from epochal.cli import main
from epochal.txn import failpoints
from integration_tests.spark.killed_rescale import killed_rescale
from integration_tests.spark.operators import Query, first_of_each_id, join, listed_after, rows_after, with_variables
from integration_tests.spark.queries import stream
from integration_tests.spark.stateful import expected, format_of, settings_unset
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(
    autouse=True,
    params=[
        "changelog",
        pytest.param("RocksDB", marks=pytest.mark.matrix),
        pytest.param("format 2", marks=pytest.mark.matrix),
    ],
)
def four_partitions(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """In each format of Spark's state that can be rescaled."""
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, "4")
    with format_of(spark, request.param):
        yield
    spark.conf.set(PARTITIONS, str(before))


@pytest.fixture
def rescale(spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str]) -> Callable[[int], Any]:
    """Rescale the stream of a world; what the command prints. Its session has none of the query's settings."""

    def run(partitions: int) -> Any:
        capsys.readouterr()
        with settings_unset(spark):
            code = main(["rescale", str(world.checkpoint), "--partitions", str(partitions), "--json"])
        out = json.loads(capsys.readouterr().out)
        assert code == (0 if "error" not in out else out["error"]["exit_code"]), out
        return out

    return run


def run_counts(spark: SparkSession, world: World, files: int, *more: Any) -> None:
    """All counts in each epoch, in two folders and a Delta table."""
    world.feed(files)
    sinks = [
        RollingFileSink(str(world.first), name="first", format="json"),
        RollingFileSink(str(world.second), name="second", format="parquet"),
        DeltaSink(str(world.table), mode="complete", name="table"),
        *more,
    ]
    counts = stream(spark, world).groupBy("word", "kind").count()
    writer = counts.writeStream.outputMode("complete").option("checkpointLocation", str(world.checkpoint))
    EpochWriter(*sinks).start(writer.trigger(availableNow=True)).awaitTermination()


def shown(spark: SparkSession, world: World) -> dict[int, Counter[tuple[str, str]]]:
    """The counts that each published epoch holds, the same in both folders."""
    found: dict[int, Counter[tuple[str, str]]] = {}
    for path, kind in ((world.first, "json"), (world.second, "parquet")):
        of_sink = {}
        for epoch in epochal.published(str(path)):
            files = [str(path / name) for name, _ in epoch.files]
            rows = spark.read.schema("word string, kind string, count long").format(kind).load(files).collect()
            assert len({(row[0], row[1]) for row in rows}) == len(rows), "a count is there twice"
            of_sink[epoch.epoch] = Counter({(row[0], row[1]): row[2] for row in rows})
        assert found in ({}, of_sink)
        found = of_sink
    return found


def in_table(spark: SparkSession, world: World) -> Counter[tuple[str, str]]:
    rows = spark.read.format("delta").load(str(world.table)).collect()
    return Counter({(row["word"], row["kind"]): row["count"] for row in rows})


def check_exact(spark: SparkSession, world: World, own: list[int]) -> None:
    """Every file made one epoch; the numbers in `own` went to Spark."""
    epochs = shown(spark, world)
    files = len(list(world.source.iterdir()))
    assert sorted(epochs) == [e for e in range(files + len(own)) if e not in own]
    assert [epochs[e] for e in sorted(epochs)] == [expected(n) for n in range(1, files + 1)]
    assert in_table(spark, world) == expected(files)
    assert main(["audit", str(world.checkpoint)]) == 0
    assert main(["status", str(world.checkpoint)]) == 0


def test_a_stream_with_three_sinks_goes_from_4_to_2_to_8_to_3_partitions_and_breaks_in_between(
    spark: SparkSession, world: World, rescale: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_counts(spark, world, 2)
    first = rescale(2)
    assert (first["from"], first["to"], first["epoch"], first["resumed"]) == (4, 2, 2, False)
    assert [(one["name"], one["rows"]) for one in first["state"]] == [("stateStoreSave", len(expected(2)))]
    run_counts(spark, world, 3)
    failpoints.arm("after-rescale-state=raise")
    try:
        assert "failpoint" in rescale(8)["error"]["message"]
    finally:
        failpoints.arm("")
    with pytest.raises(epochal.Refused, match="--partitions 8"):
        run_counts(spark, world, 3)
    assert rescale(3)["error"]["type"] == "Refused"
    second = rescale(8)
    assert (second["from"], second["to"], second["epoch"], second["resumed"]) == (2, 8, 4, True)
    assert rescale(8)["epoch"] is None
    assert rescale(3)["epoch"] == 5
    run_counts(spark, world, 5)

    check_exact(spark, world, own=[2, 4, 5])


@pytest.mark.parametrize(
    ("query", "stores", "result"),
    [
        (first_of_each_id, ["dedupe default 12"], rows_after(4)),
        (join, ["symmetricHashJoin left 12", "symmetricHashJoin right 12"], rows_after(4, begin=1)),
        (
            with_variables,
            [f"transformWithStateInPandasExec {v}" for v in ("count 2", "ids 2", "kinds 6", "timers 2")],
            listed_after(4),
        ),
    ],
    ids=["dropDuplicates", "join", "transformWithState"],
)
def test_other_operators_go_on_with_their_state(
    spark: SparkSession,
    world: World,
    rescale: Callable[[int], Any],
    query: Query,
    stores: list[str],
    result: Counter[tuple[int, str]],
) -> None:
    def run(files: int) -> None:
        world.feed(files)
        frame, mode = query(stream(spark, world))
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(world.checkpoint))
        sink = RollingFileSink(str(world.first), format="json")
        EpochWriter(sink).start(writer.trigger(availableNow=True)).awaitTermination()

    run(2)
    found = rescale(3)
    assert sorted(f"{one['name']} {one['store']} {one['rows']}" for one in found["state"]) == sorted(stores)
    run(4)

    files = [str(world.first / name) for epoch in epochal.published(str(world.first)) for name, _ in epoch.files]
    rows = spark.read.schema("id long, word string").json(files).collect()
    assert Counter((row[0], row[1]) for row in rows) == result


@pytest.mark.parametrize("four_partitions", ["HDFSBacked"], indirect=True)
def test_state_in_the_default_store_is_refused_before_anything_is_done(
    spark: SparkSession, world: World, rescale: Callable[[int], Any]
) -> None:
    run_counts(spark, world, 1)
    answer = rescale(2)

    assert answer["error"]["type"] == "Refused"
    assert "HDFSBackedStateStoreProvider" in answer["error"]["message"]
    assert not (world.root / "checkpoint-savepoints").exists()


@pytest.mark.matrix
def test_a_long_chain_of_rescales_each_killed_somewhere_is_exact(
    spark: SparkSession, world: World, rescale: Callable[[int], Any]
) -> None:
    run_counts(spark, world, 2)
    own: list[int] = []
    files = 2
    kills = ("after-rescale-begin", "before-rescale-state", "spark", "after-rescale-state", "before-rescale-record")
    for number, point in enumerate(kills):
        partitions = (2, 8, 3, 4, 2)[number]
        epoch = files + len(own)
        begun = world.checkpoint / "offsets" / str(epoch)
        command, output = (str(world.checkpoint), partitions), world.root / "output"
        code = (
            killed_rescale(*command, output, until=begun.exists)
            if point == "spark"
            else killed_rescale(*command, output, points=f"{point}=kill")
        )
        assert code == -signal.SIGKILL, f"{point}: {output.read_text()}"
        assert rescale(partitions)["epoch"] == epoch, point
        own.append(epoch)
        files += 1
        run_counts(spark, world, files)

        check_exact(spark, world, own)
