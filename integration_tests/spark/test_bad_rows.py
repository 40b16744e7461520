"""Rows that a sink cannot hold stop the query before anything of the epoch is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import epochal
from epochal import BadRows, Bucket, DeltaSink, EpochWriter, Refused, RollingFileSink, TimeBucket
from epochal.txn.participant import Wrapper
from integration_tests.spark.checks import leftovers, visible_files, visible_rows
from integration_tests.spark.queries import archive, stream, to_checkpoint
from integration_tests.spark.world import World, all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "columns", "answer"),
    [
        ({"bucket_by": ["kin"]}, ["*"], "'kin' is not in the frame, which has id, file, kind, word"),
        ({"bucket_by": [TimeBucket("kind")]}, ["*"], "'kind' is string: a time bucket needs a timestamp"),
        ({"bucket_by": ["pair"]}, ["id", "array(id) as pair"], "'pair' is array<bigint>: a bucket needs a plain value"),
        ({"bucket_by": [Bucket("b", lambda frame: frame["nope"])]}, ["id"], "bucket 'b': .*nope"),
        ({"format": "csv"}, ["map(word, id) as m"], "as csv: .*column `m`"),
        ({"format": "csv"}, ["id", "struct(word) as s"], "as csv: .*column `s`"),
        ({"format": "avro"}, ["map(id, id) as m"], "as avro"),
        ({"format": "text"}, ["word", "kind"], "as text: .*2 columns"),
        ({"format": "text"}, ["id"], "as text"),
        ({"bucket_by": ["word"], "drop_bucket_columns": True}, ["word"], "it has only bucket columns"),
        ({"compression": "nonsense"}, ["*"], "codec nonsense is not available"),
        ({"format": "json", "options": {"lineSep": ""}}, ["*"], "Spark's writer says: .*lineSep"),
    ],
)
def test_a_frame_that_the_sink_cannot_write_is_refused(
    spark: SparkSession, world: World, options: dict[str, Any], columns: list[str], answer: str
) -> None:
    world.feed(1)
    frame = stream(spark, world).selectExpr(*columns)

    with pytest.raises(BadRows, match=answer):
        EpochWriter(archive(world, **options)).start(to_checkpoint(frame, world))
    assert not world.first.exists()
    assert not world.checkpoint.exists(), "the query was not even started"


def test_all_sinks_say_what_they_have_against_a_frame_at_once(spark: SparkSession, world: World) -> None:
    world.feed(1)
    sinks: list[Any] = [
        archive(world, bucket_by=["kin"], compression="nonsense"),
        RollingFileSink(str(world.second), name="second", format="text"),
        DeltaSink(str(world.table), mode="upsert", keys=["idd"], order_by=["fil"], drop=["op"], delete_when="op = 'D'"),
    ]
    with pytest.raises(BadRows, match="Nothing was written") as raised:
        EpochWriter(*sinks).start(to_checkpoint(stream(spark, world), world))

    lines = str(raised.value).splitlines()[1:]
    assert [line.split("'")[1] for line in lines] == ["files", "files", "second", "delta", "delta", "delta", "delta"]
    assert "keys: 'idd' is not in the frame, which has id, file, kind, word; did you mean 'id'?" in lines[3]
    assert "order_by: 'fil' is not in the frame, which has id, file, kind, word; did you mean 'file'?" in lines[4]
    assert "drop: 'op' is not in the frame" in lines[5]
    assert "delete_when" in lines[6]
    assert spark.streams.active == []
    assert not any(path.exists() for path in (world.first, world.second, world.table, world.checkpoint))


class Choosy(Wrapper["DataFrame"]):
    """A sink that takes no updates."""

    def check_output_mode(self, mode: str) -> None:
        if mode == "update":
            raise Refused("sink 'files': no updates. Nothing was written")


def test_an_output_mode_that_does_not_fit_is_told_with_the_columns_before_the_query_starts(
    spark: SparkSession, world: World
) -> None:
    world.feed(1)
    writer = EpochWriter(Choosy(archive(world, bucket_by=["kin"])))
    with pytest.raises(BadRows, match=r"refused for 2 reasons(?s:.*)'kin' is not in the frame(?s:.*)no updates"):
        writer.start(to_checkpoint(stream(spark, world), world, mode="update"))

    assert not world.checkpoint.exists()


def test_foreach_batch_refuses_a_bad_frame_before_anything_is_written(
    spark: SparkSession, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.feed(1)
    writer = EpochWriter(archive(world, bucket_by=["kin"]))
    query = to_checkpoint(stream(spark, world), world).foreachBatch(writer).start()

    with pytest.raises(StreamingQueryException, match="'kin' is not in the frame") as caught:
        query.awaitTermination()
    ours = epochal.cause_of(caught.value)
    assert isinstance(ours, BadRows)
    assert epochal.cause_of(query.exception()) is ours
    assert str(caught.value).count('File "') <= 4, "the trace is short"
    assert not world.first.exists()
    assert not world.journal.exists()
    assert "'kin' is not in the frame" in caplog.records[0].getMessage()


def test_the_query_goes_on_once_the_frame_is_mended(spark: SparkSession, world: World) -> None:
    world.feed(2)
    with pytest.raises(BadRows):
        EpochWriter(archive(world, bucket_by=["kin"])).start(
            to_checkpoint(stream(spark, world), world)
        ).awaitTermination()
    EpochWriter(archive(world, bucket_by=["kind"])).start(to_checkpoint(stream(spark, world), world)).awaitTermination()

    assert visible_rows(world.first) == all_rows(2)


def fickle(spark: SparkSession, world: World) -> DataFrame:
    """Rows that a frame gives only the first time it runs."""
    from pyspark.sql import functions as f

    once = str(world.root / "once")
    os.mkdir(once)

    @f.udf("boolean", useArrow=False)
    def first_time(number: int) -> bool:
        try:
            os.mkdir(f"{once}/{number}")
        except FileExistsError:
            return False
        return True

    return stream(spark, world).where(first_time("id"))


def test_a_frame_that_gives_the_second_sink_other_rows_is_refused(spark: SparkSession, world: World) -> None:
    world.feed(1)
    sinks = [archive(world), RollingFileSink(str(world.second), name="second")]
    query = EpochWriter(*sinks, cache=False).start(to_checkpoint(fickle(spark, world), world))

    with pytest.raises(BadRows, match=r"different numbers of rows \(files 6, second 0\)") as raised:
        query.awaitTermination()
    assert isinstance(raised.value.__cause__, StreamingQueryException)
    assert query.exception() is raised.value
    assert visible_files(world.first) + visible_files(world.second) == []
    assert leftovers(world.first) + leftovers(world.second) == []


def test_several_sinks_get_the_same_rows_of_a_fickle_frame_by_default(spark: SparkSession, world: World) -> None:
    world.feed(2)
    sinks = [archive(world), RollingFileSink(str(world.second), name="second", format="json")]
    EpochWriter(*sinks).start(to_checkpoint(fickle(spark, world), world)).awaitTermination()

    assert visible_rows(world.first) == visible_rows(world.second) == all_rows(2)
