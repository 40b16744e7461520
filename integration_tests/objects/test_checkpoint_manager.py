"""How Spark writes its checkpoint on an object store: by our manager once, by Spark's own more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import epochal
from epochal.sinks.storage.objects import ObjectFiles
from epochal.spark_plugins.store_checkpoints import MANAGER, SETTING, why_refused
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import Faults, StoreProxy
from integration_tests.objects.managers import OURS, SPARKS, Manager, race

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAULTS = Faults(lost=0.15, failed=0.05, refused=0.1, slow=0.05, pause=0.01)
ROUNDS = 10


def test_of_two_drivers_that_write_one_file_one_does_and_the_other_is_told(
    spark_on_s3: SparkSession, files: ObjectFiles, folder: str
) -> None:
    managers = [Manager(spark_on_s3, OURS, folder) for _ in range(2)]
    for number in range(ROUNDS):
        told = race(managers, f"commits-{number}")

        assert sorted(told) == [False, True]
        assert int(files.read(f"{folder}/commits-{number}")) == told.index(True)
    assert len(files.names(folder)) == ROUNDS, "nothing but the files"


@pytest.mark.parametrize("kind", SPARKS, ids=["FileContext", "FileSystem"])
def test_by_sparks_own_managers_both_do_which_is_why_they_are_refused(
    kind: str, spark_on_s3: SparkSession, folder: str
) -> None:
    managers = [Manager(spark_on_s3, kind, folder) for _ in range(2)]
    managers[0].make_folder()
    winners = [sum(race(managers, f"commits-{number}")) for number in range(ROUNDS)]

    assert max(winners) == 2, winners
    assert why_refused(kind) is not None


def test_a_file_whose_answer_is_lost_is_known_to_be_the_drivers_own(
    spark_on_s3: SparkSession, s3: S3Store, files: ObjectFiles, folder: str
) -> None:
    with StoreProxy(s3.endpoint, FAULTS, seed=3) as proxy:
        managers = [Manager(spark_on_s3, OURS, folder, proxy.endpoint) for _ in range(2)]
        for number in range(ROUNDS):
            told = race(managers, f"offsets-{number}")

            assert sorted(told) == [False, True]
            assert int(files.read(f"{folder}/offsets-{number}")) == told.index(True)
        print(f"\n{proxy.requests.total()} requests, {proxy.injected.total()} faults: {dict(proxy.injected)}")
    assert proxy.injected.total() > ROUNDS


def test_a_file_that_is_cancelled_is_never_there(spark_on_s3: SparkSession, files: ObjectFiles, folder: str) -> None:
    manager = Manager(spark_on_s3, OURS, folder)
    stream = manager.begin("offsets", b"half")
    stream.cancel()
    stream.close()

    assert files.names(folder) == ()


def test_state_may_be_overwritten(spark_on_s3: SparkSession, files: ObjectFiles, folder: str) -> None:
    manager = Manager(spark_on_s3, OURS, folder)
    for data in (b"first", b"second"):
        assert manager.write("1.delta", data, overwrite=True)

    assert files.read(f"{folder}/1.delta") == b"second"


def test_checkpoints_elsewhere_are_written_as_spark_writes_them(spark_on_s3: SparkSession, tmp_path: object) -> None:
    manager = Manager(spark_on_s3, OURS, f"file:{tmp_path}")

    assert manager.write("offsets", b"first")
    assert not manager.write("offsets", b"second")


@pytest.mark.parametrize("kind", ["", *SPARKS, "some.other.Manager"])
def test_a_query_whose_session_has_another_manager_is_refused_before_it_starts(
    kind: str, spark_on_s3: SparkSession, files: ObjectFiles, folder: str, tmp_path: object
) -> None:
    frame = spark_on_s3.readStream.format("rate").load()
    stream = frame.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    writer = epochal.EpochWriter(epochal.RollingFileSink(f"{tmp_path}/target", format="json"))
    before = spark_on_s3.conf.get(SETTING, None)
    try:
        spark_on_s3.conf.set(SETTING, kind) if kind else spark_on_s3.conf.unset(SETTING)
        with pytest.raises(epochal.Refused, match="a manager that creates each file once") as error:
            writer.start(stream)
    finally:
        spark_on_s3.conf.set(SETTING, before) if before else spark_on_s3.conf.unset(SETTING)

    assert MANAGER in str(error.value)
    assert files.names(folder) == ()
