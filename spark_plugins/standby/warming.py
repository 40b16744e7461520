"""A throw-away query, so that a standby's first epoch is not the first that its JVM runs.

What takes long in a new driver is Java: loading Spark's classes, compiling them, starting the first tasks. So the query
is made as much like the real one as is known from outside: the same kind of source, if that reads files; the
columns of its frame; a stateful step if it has one; stand-ins of its file and Delta sinks, with the same options, in a
folder that is removed afterwards. It touches neither the stream's checkpoint nor its sources, sinks or settings.

If it fails, the standby waits all the same, and takes over more slowly. What it logs is no news of the user's stream,
and is not shown.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.errors import EpochalError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from epochal.txn.participant import Participant

log = logging.getLogger("epochal")

NAME = "epochal-warm-up"
FOLDER = "epochal-standby-"  # how the name of its folder begins
EPOCHS = 3  # the second and the third still gain from the one before
TIMEOUT = 120  # seconds
STAND_INS = ("files", "delta")  # kinds of sinks that need nothing but a folder
FILES = ("parquet", "csv", "json", "orc", "text")  # sources whose files can be made here
STATEFUL = ("Aggregate", "Deduplicate", "Join", "TransformWithState", "FlatMapGroups")


def warm_up(frame: DataFrame, sinks: Sequence[Participant[DataFrame]]) -> float:
    """Run the throw-away query for a stream's frame and sinks. Returns the seconds that it took."""
    began = time.monotonic()
    folder = tempfile.mkdtemp(prefix=FOLDER)
    log.addFilter(_is_of_another)  # for good: one of its threads may still end after it
    try:
        session = _session(frame.sparkSession)
        local = str(session.sparkContext.master).startswith("local")
        for stand_ins in [_stand_ins(sinks, folder), []] if local else [[]]:
            try:
                _run(session, frame, stand_ins, folder)
                break
            except (EpochalError, OSError, Py4JError, PySparkException, ValueError) as fault:
                log.info("the throw-away query of a standby failed; it goes on without: %s", _brief(fault))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return time.monotonic() - began


def _is_of_another(record: logging.LogRecord) -> bool:
    """Whether a log line is not of a throw-away query."""
    return getattr(record, "stream", None) != NAME and FOLDER not in repr(vars(record))


def _brief(fault: Exception) -> str:
    """The first line of an error, without the folder, or its class if it has no text."""
    return str(fault).partition("\n")[0].rstrip(": ").replace(FOLDER, "") or type(fault).__name__


def _session(spark: SparkSession) -> SparkSession:
    """A session beside that of the stream, with its settings and few partitions."""
    session = spark.newSession()
    settings = {key: text for key, text in dict(spark.conf.getAll).items() if key.startswith("spark.sql.")}
    for key, text in {**settings, "spark.sql.shuffle.partitions": "2"}.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, text)
    return session


def _run(session: SparkSession, frame: DataFrame, sinks: list[Any], folder: str) -> None:
    plan = frame._jdf.queryExecution().analyzed()
    rows = _source(session, _format_of(plan), folder)
    if any(step in str(plan.toString()) for step in STATEFUL):
        rows = rows.dropDuplicates(["value"])
    rows = rows.select(*(_column(one.name, one.dataType) for one in frame.schema.fields))
    stream = rows.writeStream.queryName(NAME).option("checkpointLocation", f"file:{folder}/checkpoint")
    # It ends by itself: a query that is stopped in mid-epoch ends in a heap of errors, and sometimes not at all.
    stream = stream.trigger(availableNow=True)
    query = _writer(sinks).start(stream) if sinks else stream.foreachBatch(_execute).start()
    if not query.awaitTermination(TIMEOUT):
        query.stop()
        raise OSError(f"it did not end within {TIMEOUT} s")


def _writer(sinks: list[Any]) -> EpochWriter:
    writer = EpochWriter(*sinks)
    writer.stream = NAME
    return writer


def _execute(rows: DataFrame, _: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _format_of(plan: Any) -> str:
    """The format of the first source of a stream that is one of files which can be made here; else Parquet."""
    leaves = plan.collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() == "StreamingRelation":
            found = str(leaf.dataSource().className()).lower()
            return found if found in FILES else FILES[0]
    return FILES[0]


def _source(session: SparkSession, kind: str, folder: str) -> DataFrame:
    """A stream of files, each an epoch, with a column `value` of whole numbers."""
    from pyspark.sql import functions as f

    source = f"file:{folder}/source"
    rows = session.range(8 * EPOCHS).select(f.col("id").cast("string").alias("value"))
    rows.repartition(EPOCHS).write.format(kind).save(source)
    files = session.readStream.format(kind).schema("value string").option("maxFilesPerTrigger", 1)
    return files.load(source).select(f.col("value").cast("bigint").alias("value"))


def _column(name: str, kind: DataType) -> Column:
    """A column of a frame's type, with a value where one is easily made: sinks may need it for a bucket or as a key."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType

    makers: list[tuple[type[DataType], Callable[[], Column]]] = [
        (NumericType, lambda: (f.col("value") % 100).cast(kind)),
        (StringType, lambda: f.col("value").cast("string")),
        (BooleanType, lambda: f.lit(True)),
        (DateType, f.current_date),
        (TimestampType, f.current_timestamp),
        (TimestampNTZType, f.localtimestamp),
    ]
    made = next((make() for of, make in makers if isinstance(kind, of)), f.lit(None).cast(kind))
    return made.alias(name)


def _stand_ins(sinks: Sequence[Participant[DataFrame]], folder: str) -> list[Any]:
    """Sinks with the options of the stream's, in folders of their own."""
    from epochal.sinks.config.kinds import class_of

    made = []
    for number, sink in enumerate(sinks):
        described = sink.describe()
        kind = described.get("type")
        found = class_of(str(kind)) if kind in STAND_INS else None
        if found is not None:
            made.append(found.from_description({**described, "target": str(Path(folder, f"sink-{number}"))}))
    return made
