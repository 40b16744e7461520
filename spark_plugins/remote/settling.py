"""Checks and settles a query of a Spark Connect server for its client. The server does it: the files are its own."""

from __future__ import annotations

import time
from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage import connect
from epochal.spark_plugins.remote import on_server
from epochal.spark_plugins.remote.calls import call
from epochal.txn.errors import NotSettled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST = 10.0  # seconds of one call: what is between client and server may cut a longer one
PAUSE = 0.25  # seconds after a call that failed


@dataclass(frozen=True, slots=True)
class Unsettled:
    """What earlier runs of a query have left to settle."""

    query: str  # its id; empty if there is no checkpoint yet
    epochs: tuple[int, ...]


class RemoteSettling:
    """One checkpoint of a server, for a client that need not see it. `writer` is what goes to the server."""

    def __init__(
        self, session: SparkSession, checkpoint: str, writer: Any, *, journal: str | None, timeout: float
    ) -> None:
        self._session, self._checkpoint, self._writer, self._timeout = session, checkpoint, writer, timeout
        self._journal = None if journal is None else connect.full_path(session, journal)

    def check(self) -> Unsettled:
        """Refuse a checkpoint that does not fit the sinks. Writes nothing."""
        found = call(self._session, "check", **self._place)
        return Unsettled(found["query"], tuple(found["epochs"]))

    def settle(self, query_id: str, timeout: float | None = None) -> None:
        """Bring every decided epoch to done. NotSettled if it is not known to be."""
        from pyspark.errors import PySparkException

        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                call(self._session, "settle", **self._place, query=query_id, timeout=min(left, LONGEST))
            except NotSettled:
                if time.monotonic() + PAUSE >= deadline:
                    raise
            except PySparkException as fault:  # the process may have been killed: a new one does the rest
                if time.monotonic() + PAUSE >= deadline:
                    reason = str(fault).strip().partition("\n")[0]
                    raise NotSettled(
                        f"the server did not say whether every decided epoch is visible: {reason}. They are safe. Run "
                        f"`{on_server.recover_command(self._checkpoint, self._journal)}` on the server's machine, or "
                        "start the query again"
                    ) from fault
            else:
                return
            time.sleep(PAUSE)

    @cached_property
    def _place(self) -> dict[str, Any]:
        """What every call gets."""
        from pyspark import cloudpickle

        pickled: bytes = cloudpickle.dumps(self._writer)  # type: ignore[no-untyped-call]  # PySpark does not type it
        return {
            "checkpoint": self._checkpoint,
            "journal": self._journal,
            "writer": b64encode(pickled).decode(),
            "folders": connect.folders(self._session),
        }
