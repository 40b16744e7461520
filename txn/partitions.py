"""A change of the number of partitions of Spark's state. It takes an epoch, which is given to no sink (`rescaling`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epochal.txn.json_value import Json


@dataclass(frozen=True, slots=True)
class Repartitioned:
    """How many partitions there were before, and how many since.

    >>> print(Repartitioned(4, 2))
    from 4 to 2 partitions
    """

    before: int
    after: int

    def __str__(self) -> str:
        return f"from {self.before} to {self.after} partitions"

    def to_json(self) -> dict[str, Json]:
        return {"from": self.before, "to": self.after}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Repartitioned:
        return Repartitioned(int(value["from"]), int(value["to"]))
