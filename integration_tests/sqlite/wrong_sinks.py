"""Sinks with one fault each, under the contract suite of the package. `test_package.py` renames and runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal_sqlite import SqliteSink
from test_epochal_sqlite import SqliteSinkContract, spark

from epochal.participant import Attempt, Batch, Handle, Outcome, Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TestCommitsAtStage", "TestForgetsTheEpoch", "TestTrustsTheStore", "spark"]


class CommitsAtStage(SqliteSink):
    """One phase instead of two."""

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        staged = super().stage(batch)
        super().commit(batch.attempt, staged.handle)
        return staged


class ForgetsTheEpoch(SqliteSink):
    """Inserts the rows, and does not enter the epoch into the ledger."""

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        outcome = super().commit(attempt, handle)
        with self._transaction() as db:
            db.execute(f"DELETE FROM {self._own('epochs')} WHERE epoch = ?", (attempt.epoch,))
        return outcome


class TrustsTheStore(SqliteSink):
    """Shows whatever is staged, be it less than the handle says."""

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        with self._transaction() as db:
            staged = self._select(db, "staged", "row", lineage=attempt.lineage, attempt=attempt.key)
        return super().commit(attempt, Handle(handle.version, {**handle.body, "rows": len(staged)}))


class Wrong(SqliteSinkContract):
    """Derived classes name the sink."""

    __test__ = False
    rounds = 1
    sink: type[SqliteSink]

    def participant(self) -> SqliteSink:
        return self.sink(str(self.path), table="orders")


class TestCommitsAtStage(Wrong):
    __test__ = True
    sink = CommitsAtStage


class TestForgetsTheEpoch(Wrong):
    __test__ = True
    sink = ForgetsTheEpoch


class TestTrustsTheStore(Wrong):
    __test__ = True
    sink = TrustsTheStore
