"""Settles a query of a Spark Connect server from its client: the server does it, because the files are its own."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage.connect import full_path
from epochal.sinks.storage.hadoop import resolve
from epochal.spark_plugins.remote import on_server
from epochal.spark_plugins.remote.calls import call
from epochal.txn.errors import EpochalError, NotSettled
from epochal.txn.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal.txn.model import Json
    from epochal.txn.participant import Participant

LONGEST = 10.0  # seconds of one call: what is between client and server may cut a longer one
PAUSE = 0.25  # seconds after a call that failed


class RemoteSettling:
    """One checkpoint of a server, for a client that need not see it."""

    def __init__(
        self,
        session: SparkSession,
        checkpoint: str,
        sinks: Sequence[Participant[Any]],
        *,
        journal: str | None,
        timeout: float,
    ) -> None:
        self._session, self._checkpoint, self._sinks, self._timeout = session, checkpoint, tuple(sinks), timeout
        self._journal = None if journal is None else full_path(session, journal)

    def state(self) -> dict[str, Json]:
        """How the checkpoint stands, as the server sees it; empty if there is none yet."""
        found: dict[str, Json] = call(self._session, "state_of", checkpoint=self._checkpoint, journal=self._journal)
        return found

    def reach(self, state: dict[str, Json]) -> tuple[Files, str] | None:
        """The checkpoint, if it stands for this process as it does for the server; None if not, or if there is none.

        Good for checks only. A copy that is as new as the original gives the same answers, and is a copy.
        """
        try:
            here = on_server.state_of(self._checkpoint, self._journal)
            return resolve(self._checkpoint, self._session) if state and here == state else None
        except (EpochalError, OSError):
            return None

    def settle(self, query_id: str, timeout: float | None = None) -> None:
        """Bring every decided epoch to done. NotSettled if it is not known to be."""
        from pyspark import cloudpickle
        from pyspark.errors import PySparkException

        pickled: bytes = cloudpickle.dumps(self._sinks)  # type: ignore[no-untyped-call]  # PySpark does not type it
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        what = {
            "checkpoint": self._checkpoint,
            "journal": self._journal,
            "query": query_id,
            "sinks": b64encode(pickled).decode(),
        }
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                call(self._session, "settle", **what, timeout=min(left, LONGEST))
            except NotSettled:
                if time.monotonic() + PAUSE >= deadline:
                    raise
            except PySparkException as fault:  # the process may have been killed: a new one does the rest
                if time.monotonic() + PAUSE >= deadline:
                    raise NotSettled(
                        "the server did not say whether every decided epoch is visible: "
                        f"{str(fault).strip().partition(chr(10))[0]}. They are safe. Run "
                        f"`{on_server.recover_command(self._checkpoint, self._journal)}` on the server's machine, or "
                        "start the query again"
                    ) from fault
            else:
                return
            time.sleep(PAUSE)
