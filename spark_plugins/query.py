"""The query handle that `EpochWriter.start` returns: Spark's own, plus settling at its end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from epochal.spark_plugins.causes import cause_of
from epochal.txn.errors import EpochalError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from epochal.spark_plugins.run import Run
    from epochal.spark_plugins.writer import EpochWriter


class EpochQuery:
    """Delegates to Spark's StreamingQuery; `awaitTermination`, `stop` and context exit settle.

    All attributes of StreamingQuery work here too: ``id``, ``status``, ``exception`` and so on. ``lastProgress`` and
    ``recentProgress`` have a part of ours beside Spark's.
    """

    def __init__(self, query: StreamingQuery, writer: EpochWriter) -> None:
        self._query = query
        self._writer = writer
        self.run: Run | None = None  # set once the coordinator has started

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def __repr__(self) -> str:
        return f"EpochQuery(id={self._query.id}, runId={self._query.runId})"

    @property
    def spark_query(self) -> StreamingQuery:
        """Spark's own handle."""
        return self._query

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802  # Spark's name
        """Wait for the end of the query, then settle its last epoch.

        With a timeout it returns whether the query has ended, as Spark's does.
        """
        try:
            ended = self._query.awaitTermination(timeout)
        except StreamingQueryException as fault:
            self._ended(fault)
            raise
        except (Py4JError, OSError) as fault:
            self._raise_if_spark_is_gone(fault)
            raise
        if timeout is None or ended:
            self._ended(None)
        return ended

    def processAllAvailable(self) -> None:  # noqa: N802  # Spark's name
        """Wait until all available data is processed and visible."""
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as fault:
            self._ended(fault)
            raise
        except (Py4JError, OSError) as fault:
            self._raise_if_spark_is_gone(fault)
            raise
        self._settle()

    def exception(self) -> EpochalError | StreamingQueryException | None:
        """Why the query ended; None if it runs or ended well. An error of ours has Spark's as its cause."""
        theirs = self._query.exception()
        ours = cause_of(theirs) or (self.run.failure if self.run is not None else None)
        if ours is None:
            return theirs
        ours.__cause__ = ours.__cause__ or theirs
        return ours

    def stop(self) -> None:
        """Stop the query, then settle its finished epochs."""
        self.request_stop()
        self._ended(None)

    def request_stop(self) -> None:
        """Stop the query. Whoever waits in `awaitTermination` settles it."""
        self._stop_waiting()
        self._query.stop()

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802  # Spark's name
        """Spark's progress of the last epoch, with ``["epochal"]`` beside it: what each sink shows."""
        progress = self._query.lastProgress
        return progress if progress is None or self.run is None else self.run.progress.added_to(progress)

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802  # Spark's name
        """The same of the last epochs."""
        recent = list(self._query.recentProgress)
        return recent if self.run is None else [self.run.progress.added_to(progress) for progress in recent]

    def settle(self, timeout: float | None = None) -> None:
        """Make every epoch visible that Spark has checkpointed. Raises NotSettled if a store stays unreachable."""
        self._writer.settle(timeout)

    def _settle(self) -> None:
        self._writer.settle()

    def _stop_waiting(self) -> None:
        self._writer.stop_waiting()

    def _ended(self, fault: StreamingQueryException | None) -> None:
        """The query has ended: settle, and raise the error of this writer that ended it, if there is one."""
        self._writer.ended(fault, self.run)

    def _raise_if_spark_is_gone(self, fault: Exception) -> None:
        """A call of Spark has failed. If its JVM has died, settle what needs no Spark, and say so."""
        if self.run is not None and (gone := self.run.spark_gone()) is not None:
            self.run.retire()
            raise gone from fault

    def __enter__(self) -> EpochQuery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
