"""Reading epochal's own topic while a transaction is open in it, or still looks open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from epochal.sinks.kafka.layout import claims_key
from epochal.sinks.kafka.ledger import Ledger

TARGET, OURS = "broker/orders", "7a1f1c9e-1"
END = 7  # of the topic, whose messages from 5 on are those of a claim of ours


class Sent:
    """A message that is behind the stable end."""

    def key(self) -> bytes:
        return claims_key(TARGET)


class LateBroker(Ledger):
    """A ledger on a broker that shows a transaction as open for some time after it was committed."""

    def __init__(self, *stable: int) -> None:
        super().__init__(cast("Any", None), "_epochal")
        self._stable: Iterator[int] = iter(stable)
        self.read_to: list[int] = []

    def _look_for_another_topic(self) -> None:
        pass

    def _end(self, *, committed: bool) -> int:
        return next(self._stable) if committed else END

    def _read_to(self, end: int) -> None:
        self.read_to.append(end)

    def _behind(self, stable: int, end: int) -> list[Any]:
        return [Sent() for _ in range(stable, end)][:1]


def test_what_this_process_has_committed_is_waited_for() -> None:
    ledger = LateBroker(5, 5, END)
    ledger.committed(6)
    ledger.read(TARGET, OURS)

    assert ledger.read_to == [5, 5, END]


def test_a_transaction_of_ours_that_a_dead_driver_left_open_is_not_waited_for() -> None:
    ledger = LateBroker(5)
    ledger.read(TARGET, OURS)

    assert ledger.read_to == [5]


@pytest.mark.parametrize("earlier", [3, 5])
def test_nor_is_it_after_a_commit_that_can_be_read(earlier: int) -> None:
    ledger = LateBroker(5)
    ledger.committed(earlier)
    ledger.read(TARGET, OURS)

    assert ledger.read_to == [5]
