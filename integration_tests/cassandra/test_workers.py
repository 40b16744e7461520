"""The interpreter that Spark's workers run: the driver's own, and one without epochal is refused at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration_tests.cassandra.tables import Keyspace
from integration_tests.spark.children import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]

BLOCKED = """\
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "epochal":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""
STREAM = """\
import sys
import epochal

spark = epochal.session("workers", master="local[1]", conf={{"spark.jars": ""}})
spark.range(3).coalesce(1).write.parquet("in")
stream = spark.readStream.schema("id long").parquet("in").writeStream
sink = epochal.CassandraSink("{table}", contact_points={hosts!r}, port={port})
try:
    epochal.EpochWriter(sink).start(
        stream.trigger(availableNow=True).option("checkpointLocation", "checkpoint")
    ).awaitTermination()
except epochal.Refused as fault:
    print(f"refused: {{fault}}")
"""


def test_workers_run_the_drivers_interpreter(spark: SparkSession) -> None:
    def interpreter(_: int) -> str:
        import sys

        return sys.executable

    assert spark.sparkContext.parallelize([0], 1).map(interpreter).collect() == [sys.executable]


def test_workers_without_epochal_are_told_with_what_to_do(space: Keyspace, tmp_path: Path) -> None:
    table = space.table("t", "id bigint PRIMARY KEY")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCKED)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/blocked:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    code = STREAM.format(table=table, hosts=list(space.hosts), port=space.port)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    said = done.stdout + done.stderr
    assert "the executors' Python has no epochal. Nothing was written. Install epochal[cassandra] there" in said
    assert space.execute(f"SELECT id FROM {table}") == []
