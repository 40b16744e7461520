"""Queries whose state is no aggregation, of a file an epoch, and the rows that they show after so many files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.sql.streaming import StatefulProcessor

from integration_tests.spark.world import WORDS, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Query: TypeAlias = "Callable[[DataFrame], tuple[DataFrame, str]]"  # with the output mode
Result: TypeAlias = Counter[tuple[int, str]]


def join(frame: DataFrame) -> tuple[DataFrame, str]:
    timed = frame.withColumn("t", F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")))
    left = timed.select("id", "word", "t").withWatermark("t", "1 hour")
    # Each row meets the one six numbers, a file, before it.
    right = timed.select((F.col("id") + 6).alias("other"), F.col("t").alias("u")).withWatermark("u", "1 hour")
    return left.join(right, F.expr("id = other and u between t - interval 1 hour and t")).select("id", "word"), "append"


def first_of_each_id(frame: DataFrame) -> tuple[DataFrame, str]:
    # Each file brings the rows of the one before it again.
    again = frame.withColumn("id", F.explode(F.array(F.col("id"), F.col("id") - 6))).where("id >= 0")
    return again.dropDuplicates(["id"]).select("id", "word"), "append"


def listing() -> StatefulProcessor:
    """Made here, so that workers get the class itself and import no tests."""

    class Listing(StatefulProcessor):
        """What a word has had: how many, which, and the last of each kind. A timer is set far ahead."""

        def init(self, handle: Any) -> None:
            self._handle = handle
            self._count = handle.getValueState("count", "n long")
            self._ids = handle.getListState("ids", "id long")
            self._kinds = handle.getMapState("kinds", "kind string", "id long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  # Spark's
            import pandas as pd

            if not self._count.exists():
                self._handle.registerTimer(4_000_000_000_000)
            total = self._count.get()[0] if self._count.exists() else 0
            for frame in rows:
                total += len(frame)
                for number, kind in zip(frame["id"], frame["kind"], strict=True):
                    self._ids.appendValue((int(number),))
                    self._kinds.updateValue((kind,), (int(number),))
            self._count.update((total,))
            kinds = sum(1 for _ in self._kinds.iterator())
            yield pd.DataFrame({"id": [1000 * len(list(self._ids.get())) + kinds], "word": [key[0]]})

        def close(self) -> None:
            """Nothing to do."""

    return Listing()


def with_variables(frame: DataFrame) -> tuple[DataFrame, str]:
    # By processing time the query would go on for ever, waiting for its timers.
    timed = frame.withColumn("t", F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id"))).withWatermark("t", "1 hour")
    listed = timed.groupBy("word").transformWithStateInPandas(listing(), "id long, word string", "Update", "eventTime")
    return listed, "update"


def rows_after(files: int, *, begin: int = 0) -> Result:
    return Counter((row[0], row[3]) for file in range(begin, files) for row in rows_of(file))


def listed_after(files: int) -> Result:
    """Of `with_variables`."""
    return Counter({(1000 * 3 * n + 3, word): 1 for n in range(1, files + 1) for word in WORDS})
