"""Settings of a Spark session that hold for a while, and what differs on Spark Connect.

A query's batches have a session of their own, a clone, whose settings nobody else sees. On Spark Connect they do not:
they run in the session that started the query, which other queries and the client use too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from epochal.sinks.storage.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def set_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have these settings inside, and what was there before after it.

    On Spark Connect they stay: to put them back would change them under another query that needs them too.
    """
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        if before[key] != value:
            spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, given in before.items():
            if is_connect(spark) or given == settings[key]:
                continue
            if given is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, given)


def for_many_files(spark: SparkSession) -> dict[str, str]:
    """So that thousands of small files are read by a few tasks. None on Spark Connect: they only save time.

    Left alone, Spark lists more than 32 paths by a task each, up to 10,000, and counts 4 MB for opening a file.
    """
    if is_connect(spark):
        return {}
    return {
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * parallelism(spark)),
        "spark.sql.files.openCostInBytes": str(64 * 1024),
    }


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs at a time, more or less."""
    return _of_server(spark) if is_connect(spark) else spark.sparkContext.defaultParallelism


@cache
def _of_server(spark: SparkSession) -> int:
    """A range without a number of partitions gets so many; there is no other way to ask a Connect server."""
    from pyspark.sql import functions as f

    return spark.range(10_000).select(f.spark_partition_id()).distinct().count()
