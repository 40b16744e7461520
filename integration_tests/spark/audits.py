"""Audits in this process, and sources of rows that are hard to spell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal.cli.audit import audit, to_json
from epochal.cli.streams import open_stream
from integration_tests.spark.world import BIRTH, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAIN = """
SELECT 1L AS id, 'plain' AS word, 1.20BD AS price, TIMESTAMP '2026-01-02 03:04:05.123456' AS at,
       DATE '2026-01-02' AS day, double('NaN') AS share, true AS yes
UNION ALL SELECT 2L, 'a "b", c', NULL, NULL, NULL, -0.0D, NULL
UNION ALL SELECT 3L, 'two\\nlines\\r and a blank ', 3.10BD, TIMESTAMP '1999-12-31 23:59:59.999999', DATE '9999-12-31',
       1e300, false
UNION ALL SELECT 4L, '', 3.14BD, NULL, NULL, NULL, NULL
UNION ALL SELECT 5L, NULL, NULL, NULL, NULL, NULL, NULL
UNION ALL SELECT 6L, 'Grüße 🎉 \\\\ "quoted" \\\\', 0.00BD, NULL, NULL, 0.1D, true
UNION ALL SELECT 7L, '#no comment', NULL, NULL, NULL, NULL, NULL
UNION ALL SELECT 7L, '#no comment', NULL, NULL, NULL, NULL, NULL
"""
NESTED = f"""
SELECT *, float(share) AS f, smallint(id) AS s, int(id) AS i, binary(word) AS raw, CAST(at AS TIMESTAMP_NTZ) AS ntz,
       CAST(price AS DECIMAL(30, 2)) AS wide, array(word, NULL, 'x') AS tags, array(array(id), array()) AS deep,
       map(id, word, -id, NULL) AS pairs, map(struct(id, word), array(price)) AS odd,
       struct(word, CAST(NULL AS STRING) AS nothing, map('k', at) AS inner, array(struct(id, share)) AS many) AS one
FROM ({PLAIN})
"""
WORDS = f"SELECT word FROM ({PLAIN})"


def feed(spark: SparkSession, world: World, rows: str | DataFrame, number: int) -> None:
    """One more file of the source, made by Spark."""
    frame = spark.sql(rows) if isinstance(rows, str) else rows
    made = world.root / f"made-{number}"
    frame.coalesce(1).write.parquet(str(made))
    (part,) = made.glob("*.parquet")
    os.utime(part, (BIRTH + number, BIRTH + number))
    world.source.mkdir(exist_ok=True)
    part.rename(world.source / f"{number:05d}.parquet")


def audited(checkpoint: Path | str, *, fast: bool = False) -> dict[str, Any]:
    """What `epochal audit --json` says."""
    return dict(to_json(audit(open_stream(str(checkpoint), None), fast=fast, progress=lambda _: None)))


def sink(answer: dict[str, Any], name: str = "files") -> dict[str, Any]:
    """One sink's part of the answer."""
    return next(found for found in answer["sinks"] if found["name"] == name)


def is_exact(answer: dict[str, Any], rows: int, name: str = "files") -> bool:
    """Whether every row was found, to the letter."""
    found = sink(answer, name)
    counts = (found["rows"]["expected"], found["rows"]["found"])
    return (answer["verdict"], counts, found["digest"]["compared"]) == ("exact", (rows, rows), "equal")


def never_differs(checkpoint: Path) -> None:
    """Also between kills: what is done is exact, and what is not is not looked at."""
    answer = audited(checkpoint, fast=True)

    assert answer["verdict"] != "differs", answer


def check_all_exact(checkpoint: Path, *, sinks: int, rows: int, without_digest: int = 0) -> None:
    """Every sink holds every row, by count and by digest."""
    answer = audited(checkpoint)
    equal = [s["digest"]["compared"] == "equal" for s in answer["sinks"]]

    assert [(s["verdict"], s["rows"]["found"]) for s in answer["sinks"]] == [("exact", rows)] * sinks, answer
    assert equal.count(False) == without_digest, answer
