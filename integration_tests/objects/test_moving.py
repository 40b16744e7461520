"""A stateful query moves from a disk to an object store, is rescaled there, and moves on, with Spark's own state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import EpochWriter, RollingFileSink, published
from epochal.cli import main
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.testing.servers import S3Store
from epochal.txn import failpoints
from epochal.txn.errors import ForeignTarget, Refused
from integration_tests.spark.stateful import Forked, counts, expected, format_of, put_away, shown, start
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1200)]


@pytest.fixture
def epochal(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A command's answer."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        code = main([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.mark.parametrize("form", ["changelog", "format 2"])
def test_a_stream_moves_to_a_store_is_rescaled_there_and_moves_on(
    form: str, spark_on_s3: SparkSession, world: World, folder: str, epochal: Callable[..., Any]
) -> None:
    spark, there, back = spark_on_s3, f"{folder}/checkpoint", f"{folder}/back"
    with format_of(spark, form):
        world.feed(2)
        start(spark, world).awaitTermination()
        first = epochal("savepoint", str(world.checkpoint), f"{folder}/backups")
        moved = epochal("restore", first["savepoint"], there)
        put_away(world)
        world.feed(4)
        start(spark, world, checkpoint=there).awaitTermination()
        again = epochal("savepoint", there, f"{folder}/backups")
        failpoints.arm("after-rescale-state=raise")
        try:
            assert main(["rescale", there, "--partitions", "3"]) != 0
        finally:
            failpoints.arm("")
        with pytest.raises(Refused, match="--partitions 3"):
            start(spark, world, checkpoint=there)
        rescaled = epochal("rescale", there, "--partitions", "3")
        forked = epochal("restore", again["savepoint"], f"{folder}/fork", "--fork")
        onward = epochal("restore", epochal("savepoint", there, f"{folder}/backups")["savepoint"], back)
        with pytest.raises(Refused, match="has moved"):
            start(spark, world, checkpoint=there)
        world.feed(6)
        start(spark, world, checkpoint=back).awaitTermination()
        fork = Forked(world.root / "fork", world)
        start(spark, fork, checkpoint=forked["checkpoint"]).awaitTermination()

    numbers = [0, 1, 2, 3, 5, 6]  # 4 went to Spark
    assert shown(spark, world) == {epoch: expected(files + 1) for files, epoch in enumerate(numbers)}
    assert shown(spark, fork) == {4: expected(5), 5: expected(6)}
    assert moved["checkpoint"] == there
    assert (rescaled["from"], rescaled["to"], rescaled["epoch"], rescaled["resumed"]) == (1, 3, 4, True)
    assert again["stored"] < again["bytes"], "nothing was shared with the first savepoint"
    assert onward["closed"] == there
    listed = epochal("savepoints", f"{folder}/backups", "--verify")["savepoints"]
    assert [(one["epoch"], one["missing"]) for one in listed] == [(1, 0), (3, 0), (4, 0)]


def test_a_restore_on_a_store_that_died_lets_no_query_start(
    spark_on_s3: SparkSession, world: World, folder: str, epochal: Callable[..., Any], reached: S3Store, tmp_path: Path
) -> None:
    new = f"{folder}/new"
    world.feed(1)
    start(spark_on_s3, world).awaitTermination()
    saved = epochal("savepoint", str(world.checkpoint), f"{folder}/backups")["savepoint"]
    failpoints.arm("after-restore-journal=raise")
    try:
        assert main(["restore", saved, new, "--fork"]) != 0
    finally:
        failpoints.arm("")
    files, place = resolve_checkpoint(new)
    assert [entry.name for entry in files.list(place)] == ["epochal-restoring"]
    files.delete(f"{place}/epochal-restoring/000003.json")  # as if it had died before it could clear the place
    fork = Forked(world.root / "fork", world)
    with pytest.raises(Refused, match="has not ended, so the checkpoint is not whole"):
        start(spark_on_s3, fork, checkpoint=new)

    assert files.names(f"{place}/metadata") == ()


def test_a_stream_with_its_checkpoint_on_a_disk_and_its_targets_on_a_store_moves_and_is_forked(
    spark_on_s3: SparkSession, world: World, folder: str, epochal: Callable[..., Any]
) -> None:
    target, trial = f"{folder}/archive", f"{folder}/trial"

    def run(checkpoint: Path, *targets: str) -> None:
        sinks = [RollingFileSink(place, format="json", name=place.rpartition("/")[2]) for place in targets]
        frame = counts(spark_on_s3, world, 1).writeStream.outputMode("complete").trigger(availableNow=True)
        EpochWriter(*sinks).start(frame.option("checkpointLocation", str(checkpoint))).awaitTermination()

    def epochs(place: str) -> list[int]:
        return [epoch.epoch for epoch in published(place)]

    world.feed(2)
    run(world.checkpoint, target)
    saved = epochal("savepoint", str(world.checkpoint), str(world.root / "backups"))["savepoint"]
    world.feed(3)
    run(world.checkpoint, target)
    epochal("restore", saved, str(world.root / "fork"), "--fork")
    epochal("restore", saved, str(world.root / "new"))
    with pytest.raises(ForeignTarget, match="is a fork of stream") as refused:
        run(world.root / "fork", target)
    assert refused.value.offers == ()
    run(world.root / "fork", trial)
    with pytest.raises(Refused, match="has moved"):
        run(world.checkpoint, target)
    world.feed(4)
    run(world.root / "new", target)

    assert (epochs(target), epochs(trial)) == ([0, 1, 2, 3], [2])
