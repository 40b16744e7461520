"""Binds a batch on Spark Connect: finds the query in the server, and proves that the checkpoint is its own."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage.hadoop import resolve
from epochal.spark_plugins import exit_code
from epochal.spark_plugins.binding import Binding
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.remote.on_server import check_version
from epochal.spark_plugins.run import Run  # also for its handler at exit, which ends the process
from epochal.txn.errors import Refused, UnsupportedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal.spark_plugins.remote.started import RemoteQuery


def bound(session: SparkSession, remote: RemoteQuery | None, epoch: int) -> Binding:
    """The query that is running this batch. Refused if the checkpoint cannot be proven to be its own."""
    if remote is None:
        raise UnsupportedQuery(
            "on Spark Connect a batch does not tell which query it belongs to. Nothing was written. Start the query "
            "with the writer: writer.start(frame.writeStream.option('checkpointLocation', ...))"
        )
    check_version(remote.version)
    named = [query for query in session.streams.active if query.name == remote.name]
    if len(named) != 1:
        raise UnsupportedQuery(
            f"query {remote.name!r} is not active in its session; is it being stopped? Nothing was written"
        )
    query = named[0]
    _check_own(session, remote.checkpoint, str(query.id), epoch)
    return Binding(
        query_id=str(query.id),
        run_id=str(query.runId),
        checkpoint=remote.checkpoint,
        output_mode=remote.output_mode,
        session=session,
        name=remote.given_name,
    )


def _check_own(session: SparkSession, checkpoint: str, query_id: str, epoch: int) -> None:
    """The checkpoint has the query's id, and the epoch of this batch is its newest, planned and not committed."""
    files, path = resolve(checkpoint, session)
    found = SparkCheckpoint(files, path)
    if (owner := found.query_id()) != query_id:
        raise Refused(
            f"{path} is the checkpoint of query {owner}, and this batch is query {query_id}'s. Nothing was written. "
            "Do this process and the server see the same file system?"
        )
    planned, committed = found.planned(), found.committed()
    if planned != epoch or committed >= epoch:
        raise Refused(
            f"{path} is not where this query writes its checkpoint: its newest planned epoch is {planned} and its "
            f"newest committed one {committed}, while epoch {epoch} is being written. It is a copy, or another file "
            "system of the same name. Nothing was written"
        )


def settle_when_stopped(run: Run) -> None:
    """Exit as a program does when the server ends this process, which it does with SIGTERM as soon as the query ends.

    Python's own reaction would skip the handlers that settle the last epoch.
    """
    exit_code.leave_at_once()
    # atexit would be too late: by then no executor takes work any more, and WebHDFS and Cassandra's driver need theirs.
    # These handlers run last in, first out, so before that of concurrent.futures, which is imported by now. This also
    # keeps the run: Spark's worker has dropped the writer, and all that it has, when the interpreter exits.
    getattr(threading, "_register_atexit", atexit.register)(run.halt)
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread can; then the next start settles
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: Any) -> None:  # noqa: ARG001  # Python's signature
    # Spark sends it twice, the second at once. Settling ends by itself, after `settle_timeout` at the latest.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # It closes the pipes of our output, too: what is written there from now on must not fail.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.exit(128 + number)
