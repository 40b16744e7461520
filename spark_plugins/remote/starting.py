"""Starts a query of a Spark Connect server. What only the server can check, its first batch does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins import before_start
from epochal.spark_plugins.remote import started
from epochal.spark_plugins.remote.settling import ClientSettling
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from epochal.spark_plugins.remote.started import RemoteQuery
    from epochal.txn.choices import Choices
    from epochal.txn.coordinator import Coordinator
    from epochal.txn.events import Observer
    from epochal.txn.files import Files
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
    coordinator: Callable[[Files, str], Coordinator[DataFrame]],
    sent: Callable[[RemoteQuery], Batches],
) -> tuple[StreamingQuery, ClientSettling]:
    """Check what the client can, settle what an earlier run left, and start the query.

    ``coordinator`` makes the one of a checkpoint; ``sent`` makes what goes to the server.
    """
    started.check_sinks(sinks)
    started.check_observers(observers)
    before_start.refuse(before_start.reserved_columns(started.columns_of(stream)))
    session = started.session_of(stream)
    remote = started.prepared(stream)
    before_start.refuse(before_start.faults(sinks, mode=remote.output_mode))
    settling = ClientSettling(session, remote.checkpoint, sinks, journal=journal, timeout=settle_timeout)
    if (place := settling.reach()) is not None:
        coordinator(*place).check()
        try:
            settling.recover(*place)
        except Refused:
            if not (choices.adopt or choices.new):
                raise
            # The check has accepted what the user chose, which only a start can carry out: the first batch settles.
    return started.start(stream, sent(remote)), settling
