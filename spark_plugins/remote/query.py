"""The handle of a query that runs in a Spark Connect server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from epochal.spark_plugins.query import EpochQuery
from epochal.spark_plugins.remote.calls import error_of
from epochal.txn.errors import EpochalError, NotSettled

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.streaming.query import StreamingQuery

    from epochal.spark_plugins.remote.settling import RemoteSettling
    from epochal.spark_plugins.writer import EpochWriter

# The last line of a Python trace, which Spark has put into its own text.
_RAISED = re.compile(r"^epochal\.txn\.errors\.(\w+): (.*?)(?=^\s*$|^\S*JVM stacktrace|\Z)", re.MULTILINE | re.DOTALL)


class RemoteEpochQuery(EpochQuery):
    """As `EpochQuery`. The server's processes settle; when the query has ended, this client sees that they do."""

    def __init__(self, query: StreamingQuery, writer: EpochWriter, settling: RemoteSettling) -> None:
        super().__init__(query, writer)
        self._settling = settling

    def exception(self) -> EpochalError | StreamingQueryException | None:
        theirs = self._query.exception()
        ours = None if theirs is None else raised_in(str(theirs))
        if ours is None:
            return theirs
        ours.__cause__ = theirs
        return ours

    def settle(self, timeout: float | None = None) -> None:
        """Make every epoch visible that Spark has checkpointed. NotSettled if it is not known to be."""
        self._settling.settle(str(self._query.id), timeout)

    def _settle(self) -> None:
        self.settle()

    def _stop_waiting(self) -> None:
        """Nothing: the process that waits is the server's, which ends it."""

    def _ended(self, fault: StreamingQueryException | None) -> None:
        raised = None if fault is None else raised_in(str(fault))
        if raised is None or isinstance(raised, NotSettled):
            self.settle()
        if raised is not None:
            raise raised from fault


def raised_in(text: str) -> EpochalError | None:
    r"""The error of ours that ended a query, from what Spark says about it.

    >>> raised_in("[PYTHON_EXCEPTION] Found error:\nTraceback:\nepochal.txn.errors.BadRows: column x is null\n")
    BadRows('column x is null')
    """
    found = _RAISED.search(text)
    return None if found is None else error_of(found[1], found[2].strip())
