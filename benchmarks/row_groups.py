"""How large must a row group be? Spark reads Parquet files with the same rows and row groups of different sizes.

    python -m benchmarks.row_groups [--rounds 7] [--json]

The result sets the size from which a rolled part is made by copying row groups (`Rolling(merge_below=)`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks.measure import Figure, race, table, timed
from benchmarks.streams import SourceStream
from epochal import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2_000_000
GROUPS = (10_000, 25_000, 50_000, 100_000, 500_000, ROWS)
PEER = "one row group"


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_groups", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as folder:
        spark = session("benchmark", master="local[2]")
        files = _files(spark, Path(folder))
        figures = {
            "every value": _race(spark, files, "sum(id), max(s), sum(d), sum(p)", "true", args.rounds),
            "one row": _race(spark, files, "*", "id = 77777", args.rounds),
        }
    if args.json:
        print(json.dumps({what: {f.name: f.ratio for f in found} for what, found in figures.items()}, indent=1))
        return
    for what, found in figures.items():
        print(f"\n{what} of {ROWS:,} rows\n{table(found, PEER)}")


def _files(spark: SparkSession, home: Path) -> dict[str, Path]:
    SourceStream(spark, home, 1, ROWS)  # makes the source
    rows = pq.read_table(sorted((home / f"source-1x{ROWS}").glob("*/*.parquet")))
    files = {}
    for group in GROUPS:
        file = home / f"{group}.parquet"
        pq.write_table(rows, file, row_group_size=group, compression="snappy")
        size = file.stat().st_size / (ROWS / group) / 1e6
        files[PEER if group == ROWS else f"{group:,} rows, {size:.2f} MB"] = file
    return files


def _race(spark: SparkSession, files: dict[str, Path], columns: str, where: str, rounds: int) -> list[Figure]:
    def read(file: Path) -> float:
        query = f"SELECT {columns} FROM parquet.`file:{file}` WHERE {where}"
        return timed(lambda: spark.sql(query).collect())

    return race({name: partial(read, file) for name, file in files.items()}, peer=PEER, rounds=rounds)


if __name__ == "__main__":
    main()
