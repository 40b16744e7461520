"""The handle of a query that runs in a Spark Connect server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from epochal.spark_plugins.query import EpochQuery
from epochal.txn import errors
from epochal.txn.errors import EpochalError

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.streaming.query import StreamingQuery

    from epochal.spark_plugins.remote.settling import ClientSettling
    from epochal.spark_plugins.writer import EpochWriter

# The last line of a Python trace, which Spark has put into its own text.
_RAISED = re.compile(r"^epochal\.txn\.errors\.(\w+): (.*?)(?=^\s*$|^\S*JVM stacktrace|\Z)", re.MULTILINE | re.DOTALL)


class RemoteEpochQuery(EpochQuery):
    """As `EpochQuery`. The server's process settles; when the query has ended, this client does what is left."""

    def __init__(self, query: StreamingQuery, writer: EpochWriter, settling: ClientSettling) -> None:
        super().__init__(query, writer)
        self._settling = settling

    def settle(self, timeout: float | None = None) -> None:
        """Make every epoch visible that Spark has checkpointed. NotSettled if it is not known to be."""
        self._settling.settle(str(self._query.id), timeout)

    def _settle(self) -> None:
        self.settle()

    def _stop_waiting(self) -> None:
        """Nothing: the process that waits is the server's, which ends it."""

    def _ended(self, fault: StreamingQueryException | None) -> None:
        raised = None if fault is None else raised_in(str(fault))
        if raised is None or isinstance(raised, errors.NotSettled):
            self.settle()
        if raised is not None:
            raise raised from fault


def raised_in(text: str) -> EpochalError | None:
    r"""The error of ours that ended a query, from what Spark says about it.

    >>> raised_in("[PYTHON_EXCEPTION] Found error:\nTraceback:\nepochal.txn.errors.BadRows: column x is null\n")
    BadRows('column x is null')
    """
    found = _RAISED.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, EpochalError)):
        return None
    error = EpochalError.__new__(kind)
    EpochalError.__init__(error, found[2].strip())  # some have other arguments; what they say is the same
    return error
