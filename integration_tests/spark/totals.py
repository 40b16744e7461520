"""A stateful operator of Spark's transformWithState, in a module that its workers can import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Totals(StatefulProcessor):
    """Counts the rows of a key, and keeps a list of their ids."""

    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", "total long")
        self._seen = handle.getListState("seen", "id long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803  # Spark's names
        total = self._total.get()[0] if self._total.exists() else 0
        for row in rows:
            total += 1
            self._seen.appendValue((row.id,))
        self._total.update((total,))
        yield Row(word=key[0], total=total)

    def close(self) -> None:
        pass
