"""From Spark's error to ours: which error of this process ended a query.

An error in foreachBatch travels through the JVM and comes back as a text inside a StreamingQueryException. The error
itself stays here, under the id of the run, which the exception names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator

from epochal.txn.errors import EpochalError

KEPT = 20  # runs
_RUN = re.compile(r"runId = ([0-9a-f-]{36})")

CONFLICT = "CONCURRENT_STREAM_LOG_UPDATE"  # Spark: two queries have planned or committed the same epoch
SOURCE_CONFLICT = "Multiple streaming jobs detected"  # the same, of a source of files, which keeps a log of its own


_errors: OrderedDict[str, EpochalError] = OrderedDict()
_conflicts: OrderedDict[str, Callable[[], EpochalError | None]] = OrderedDict()


def is_conflict(text: str) -> bool:
    """Whether an error of Spark says that two queries write to one checkpoint."""
    return CONFLICT in text or SOURCE_CONFLICT in text


def record(run_id: str | None, fault: EpochalError) -> None:
    """Keep the error that ends a run."""
    if run_id is None:
        return
    _errors[run_id] = fault
    while len(_errors) > KEPT:
        _errors.popitem(last=False)


def explain_conflicts(run_id: str, explain: Callable[[], EpochalError | None]) -> None:
    """Keep who can say why Spark has found two queries on the checkpoint of a run."""
    _conflicts[run_id] = explain
    while len(_conflicts) > KEPT:
        _conflicts.popitem(last=False)


def cause_of(exception: BaseException | None) -> EpochalError | None:
    """The error of epochal's that ended a query, from the exception that Spark raised for it; None if there is none::

        query = orders.writeStream.foreachBatch(writer).option("checkpointLocation", "checkpoints/orders").start()
        try:
            query.awaitTermination()
        except StreamingQueryException as fault:
            raise epochal.cause_of(fault) or fault from fault

    It works in the process that ran the query. `EpochWriter.start` needs no such thing: its handle raises the error.
    """
    for one in _chain(exception):
        if isinstance(one, EpochalError):
            return one
        text = str(one)
        if found := _RUN.search(text):
            explain = _conflicts.get(found[1]) if is_conflict(text) else None
            return _errors.get(found[1]) or (explain() if explain is not None else None)
    return None


def _chain(exception: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while exception is not None and id(exception) not in seen:
        seen.add(id(exception))
        yield exception
        exception = exception.__cause__ or exception.__context__
