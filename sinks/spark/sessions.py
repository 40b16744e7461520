"""Settings of a Spark session that hold for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def set_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have these settings inside, and what was there before after it. A query's batches have a session of their own."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, given in before.items():
            if given is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, given)


def for_many_files(spark: SparkSession) -> dict[str, str]:
    """So that thousands of small files are read by a few tasks.

    Left alone, Spark lists more than 32 paths by a task each, up to 10,000, and counts 4 MB for opening a file.
    """
    return {
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * spark.sparkContext.defaultParallelism),
        "spark.sql.files.openCostInBytes": str(64 * 1024),
    }
