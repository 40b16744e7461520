"""Counts the rows in the targets as any reader would see them. No Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epochal.cli.demo import orders
from epochal.cli.demo.watch import data_files


@dataclass(frozen=True, slots=True)
class Count:
    """How a target compares with what was streamed."""

    expected: int
    found: int
    duplicates: int
    missing: int
    wrong: int  # rows that were never sent, or were changed

    @property
    def perfect(self) -> bool:
        return (self.found, self.duplicates, self.missing, self.wrong) == (self.expected, 0, 0, 0)


def count(folder: Path, expected: int) -> Count:
    """Compare a target with the orders 0 to `expected` - 1."""
    seen: Counter[int] = Counter()
    wrong = 0
    for row in _rows(folder):
        number = row["order_id"]
        if not 0 <= number < expected or not _same(row, orders.order(number)):
            wrong += 1
        else:
            seen[number] += 1
    found = seen.total() + wrong
    return Count(expected, found, seen.total() - len(seen), expected - len(seen), wrong)


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    if (folder / "_delta_log").exists():
        from deltalake import DeltaTable

        yield from DeltaTable(folder).to_pyarrow_table().to_pylist()
        return
    for file in data_files(folder):
        yield from map(json.loads, Path(file).read_text(encoding="utf-8").splitlines())


def staged(target: Path) -> int:
    """The number of attempts that are still staged in a target of epochal."""
    return sum(1 for _ in (target / "_epochal" / "staged").glob("*/*"))


def _same(row: dict[str, Any], order: dict[str, object]) -> bool:
    return f"{row['amount']:.2f}" == order["amount"] and row["customer"] == order["customer"]
