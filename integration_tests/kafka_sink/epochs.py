"""Epochs that are staged and committed as the coordinator does it, without a query."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal import KafkaSink
from epochal.testing.contract import claim_for
from epochal.txn import failpoints
from epochal.txn.model import Attempt, Batch, Handle, Outcome
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINEAGE = "0f0e0d0c-0000-0000-0000-000000000001"


def frame(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(n, f"row {n}") for n in numbers], "number long, word string").coalesce(1)


def stage(
    sink: KafkaSink, epoch: int, rows: DataFrame, *, lineage: str = LINEAGE, after: int | None = None
) -> tuple[Attempt, Handle]:
    attempt = Attempt(lineage, epoch, 1, after=after)
    if not sink.open(lineage).enrolled:
        claim_for(sink, lineage)
    return attempt, sink.stage(Batch(attempt=attempt, rows=rows, offsets=f"{epoch:064x}")).handle


def write(sink: KafkaSink, epoch: int, rows: DataFrame, **options: Any) -> tuple[Attempt, Handle]:
    attempt, handle = stage(sink, epoch, rows, **options)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    return attempt, handle


class Commit(threading.Thread):
    """A commit in a thread of its own, and what came of it."""

    def __init__(self, sink: KafkaSink, attempt: Attempt, handle: Handle) -> None:
        super().__init__(daemon=True)
        self._sink, self._attempt, self._handle = sink, attempt, handle
        self.outcome: Outcome | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._sink.commit(self._attempt, self._handle)
        except Exception as fault:  # noqa: BLE001  # the test looks at it
            self.outcome = fault

    def ended(self) -> Outcome | Exception:
        self.join(120)
        assert self.outcome is not None, "the commit has not ended"
        return self.outcome


@contextmanager
def held_at(point: str, gate: Path, commit: tuple[KafkaSink, Attempt, Handle]) -> Iterator[Commit]:
    """A commit that waits at a failpoint for the duration of a block."""
    failpoints.arm(f"{point}=pause:{gate}")
    try:
        started = Commit(*commit)
        wait_until(gate.exists, f"the commit to come to {point}")
        yield started
    finally:
        gate.unlink(missing_ok=True)
        failpoints.arm("")


def committed(sink: KafkaSink, attempt: Attempt, handle: Handle) -> Outcome:
    """Commit as the settler does: again and again while the store is away."""
    found: list[Outcome] = []

    def done() -> bool:
        try:
            found.append(sink.commit(attempt, handle))
        except OSError:
            return False
        return True

    wait_until(done, "the commit")
    return found[0]
