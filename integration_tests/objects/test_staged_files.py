"""How Spark's tasks hand in what they stage on an object store: nothing is moved, and only what they report stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from obstore import put
from obstore.store import from_url

from epochal.sinks.spark import write_counts
from epochal.sinks.spark.staging import MOVED_ONCE, PROTOCOL, STAGED, settings_for
from epochal.sinks.storage.paths import spark_path
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import StoreProxy
from epochal.txn.model import Outcome
from integration_tests.objects.remote import Remote
from integration_tests.spark.tampering import Tampered

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture
def remote(s3: S3Store, folder: str, tmp_path: Path) -> Remote:
    return Remote(s3, folder, tmp_path)


def test_tasks_write_to_the_folder_itself_without_moving_or_marking_anything(
    spark_on_s3: SparkSession, s3: S3Store, remote: Remote
) -> None:
    frame = spark_on_s3.range(100).selectExpr("id", "id % 3 AS kind").repartition(4)
    place = f"{spark_path(remote.uri)}/data"
    conf: Any = spark_on_s3._jsc.hadoopConfiguration()
    with StoreProxy(s3.endpoint) as proxy:
        conf.set("fs.s3a.endpoint", proxy.endpoint)
        conf.set("fs.s3a.impl.disable.cache", "true")
        wrote = write_counts.written(frame, place, lambda rows: rows.write.partitionBy("kind").json(place)).counts
        conf.set("fs.s3a.endpoint", s3.endpoint)
    conf.unset("fs.s3a.impl.disable.cache")

    assert (wrote.files, wrote.rows) == (12, 100)
    assert wrote.fits(len(remote.read(key)) for key in remote.objects())
    assert all(key.startswith("data/kind=") for key in remote.objects())
    assert proxy.requests["PUT"] == 12
    assert not proxy.requests["COPY"]


def test_what_another_program_has_changed_is_not_published_until_it_is_put_back(
    spark_on_s3: SparkSession, s3: S3Store, folder: str
) -> None:
    store: ObjectStore = from_url(s3.url, config=cast("Any", s3.options), client_options={"allow_http": True})
    epoch = Tampered(f"{folder}/target", spark_on_s3, lambda path, data: put(store, path.removeprefix(s3.url), data))
    epoch.check_that_changed_rows_are_not_published()
    epoch.put_back()

    assert epoch.commit() is Outcome.COMMITTED, "the same content has the same ETag"
    epoch.check_that_all_is_published()


def test_what_an_attempt_has_written_that_does_not_count_is_removed(spark_on_s3: SparkSession, remote: Remote) -> None:
    """Two attempts of one task have ended, as with speculation; Spark has taken the second."""
    jvm: Any = spark_on_s3._jvm
    conf = spark_on_s3._jsc.hadoopConfiguration()
    folder = f"{spark_path(remote.uri)}/data"
    protocol = jvm.epochal.StagedFiles("job", folder, False)
    mapreduce = jvm.org.apache.hadoop.mapreduce
    messages = jvm.java.util.ArrayList()
    for attempt in (7, 8):
        task_id = mapreduce.TaskAttemptID("job", 1, mapreduce.TaskType.MAP, 0, attempt)
        task = mapreduce.task.TaskAttemptContextImpl(conf, task_id)
        protocol.setupTask(task)
        path = jvm.org.apache.hadoop.fs.Path(protocol.newTaskTempFile(task, jvm.scala.Option.apply("a b=1"), ".json"))
        stream = path.getFileSystem(conf).create(path)
        stream.write(bytearray(b"{}"))
        stream.close()
        message = protocol.commitTask(task)
    messages.add(message)
    before = remote.objects()
    committed = jvm.scala.jdk.javaapi.CollectionConverters.asScala(messages).toSeq()
    protocol.commitJob(mapreduce.task.JobContextImpl(conf, task_id.getJobID()), committed)

    assert before == ["data/a b=1/part-00000-job-7.json", "data/a b=1/part-00000-job-8.json"]
    assert remote.objects() == ["data/a b=1/part-00000-job-8.json"]


def test_a_task_that_failed_removes_what_it_has_written(spark_on_s3: SparkSession, remote: Remote) -> None:
    from pyspark.errors import PySparkException

    place = f"{spark_path(remote.uri)}/data"
    frame = spark_on_s3.range(0, 2000, 1, 1).selectExpr("IF(id < 1999, id, raise_error('no')) AS id")

    with pytest.raises(PySparkException):
        write_counts.written(frame, place, lambda rows: rows.write.option("maxRecordsPerFile", 500).json(place))
    assert remote.objects() in ([], ["data"]), "S3A may mark the empty folder, which is removed with the attempt"


def test_only_s3_has_settings_of_its_own_and_without_the_class_files_are_moved_once(
    spark_on_s3: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_for(spark_on_s3, "s3a://bucket/data") == {PROTOCOL: STAGED}
    assert settings_for(spark_on_s3, "file:/data") == {}

    monkeypatch.setattr("epochal.sinks.spark.staging.STAGED", "epochal.NoSuchClass")
    assert settings_for(spark_on_s3, "s3a://bucket/data") == MOVED_ONCE
