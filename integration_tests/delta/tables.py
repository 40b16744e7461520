"""Delta tables as others see them: by Delta's own reader and by delta-rs, who must agree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from epochal import DeltaSink
from epochal.testing.contract import claim_for
from epochal.txn.model import Attempt, Batch, Handle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINEAGE = "7a1f1c9e-0000-4000-8000-000000000001"
OTHER = "c0ffee00-0000-4000-8000-000000000002"
OFFSETS = "0" * 64


def attempt(epoch: int, *, generation: int = 1, lineage: str = LINEAGE) -> Attempt:
    return Attempt(lineage, epoch, generation)


def staged(sink: DeltaSink, epoch: Attempt, rows: DataFrame) -> Handle:
    """An epoch of a stream that is enrolled."""
    if not sink.open(epoch.lineage).enrolled:
        claim_for(sink, epoch.lineage)
    return sink.stage(Batch(attempt=epoch, rows=rows, offsets=OFFSETS)).handle


def write(sink: DeltaSink, number: int, rows: DataFrame, *, lineage: str = LINEAGE) -> None:
    """A whole epoch."""
    epoch = attempt(number, lineage=lineage)
    sink.commit(epoch, staged(sink, epoch, rows))


def numbers(spark: SparkSession, *values: int) -> DataFrame:
    """Rows of the simplest table there is."""
    return spark.createDataFrame([(value, f"w{value}") for value in values], "id long, word string").coalesce(1)


def by_delta(spark: SparkSession, path: Path, where: str = "true") -> Counter[str]:
    """Every row as Delta's own reader sees it."""
    return rows_of(spark.read.format("delta").load(str(path)).where(where))


def rows_of(frame: DataFrame) -> Counter[str]:
    """Every row of a frame, as text."""
    return Counter(_text(row.asDict(recursive=True)) for row in frame.collect())


def by_delta_rs(path: Path) -> Counter[str]:
    """Every row as delta-rs sees it."""
    rows = DeltaTable(path).to_pyarrow_table().to_pylist(maps_as_pydicts="strict")
    return Counter(_text(row) for row in rows)


def ids(spark: SparkSession, path: Path) -> list[int]:
    """The ids in a table, on which both readers agree."""
    found = by_delta(spark, path)
    assert by_delta_rs(path) == found
    return sorted(json.loads(row)["id"] for row in found.elements())


def engines(path: Path) -> list[str]:
    """Who made each version of a table, the newest first."""
    return ["delta-rs" if "delta-rs" in str(e.get("engineInfo")) else "Delta" for e in DeltaTable(path).history()]


def files_of(path: Path) -> set[str]:
    """The data files in a table's folder."""
    return {file.name for file in path.iterdir() if file.suffix == ".parquet"}


def staged_files(path: Path) -> list[Path]:
    return sorted((path / "_epochal" / "staged").rglob("*.parquet"))


def make(spark: SparkSession, path: Path, columns: str, *, rest: str = "", properties: Sequence[str] = ()) -> None:
    """A table made by Delta itself."""
    given = f" TBLPROPERTIES ({', '.join(properties)})" if properties else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {rest}{given}")


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=_plain)


def _plain(value: Any) -> str:
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return str(value.replace(tzinfo=None))  # Spark's driver gives times in UTC without saying so
    return str(value)
