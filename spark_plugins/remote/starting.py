"""Starts a query of a Spark Connect server. What only a batch can check, its first one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins import before_start
from epochal.spark_plugins.remote import started
from epochal.spark_plugins.remote.settling import RemoteSettling
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from epochal.spark_plugins.remote.started import RemoteQuery
    from epochal.txn.choices import Choices
    from epochal.txn.events import Observer
    from epochal.txn.participant import Participant

Batches = Callable[["DataFrame", int], None]


def start(
    stream: Any,
    *,
    sinks: Sequence[Participant[DataFrame]],
    observers: Sequence[Observer],
    journal: str | None,
    choices: Choices,
    settle_timeout: float,
    sent: Callable[[RemoteQuery], Batches],
) -> tuple[StreamingQuery, RemoteSettling]:
    """Check the query, settle what an earlier run left, and start it. ``sent`` makes what goes to the server."""
    started.check_sinks(sinks)
    started.check_observers(observers)
    before_start.refuse(before_start.reserved_columns(started.columns_of(stream)))
    session = started.session_of(stream)
    remote = started.prepared(stream)
    before_start.refuse(before_start.faults(sinks, mode=remote.output_mode))
    writer = sent(remote)
    settling = RemoteSettling(session, remote.checkpoint, writer, journal=journal, timeout=settle_timeout)
    left = settling.check()
    if left.epochs:
        try:
            settling.settle(left.query)
        except Refused:
            if not (choices.adopt or choices.new):
                raise
            # The check has accepted what the user chose, which only a start can carry out: the first batch settles.
    return started.start(stream, writer), settling
