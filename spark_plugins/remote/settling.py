"""Settles from the client, if it reaches the checkpoint; else reads through the server whether all is settled."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks.config.kinds import class_of
from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.lead import open_journal
from epochal.spark_plugins.remote.server_files import ServerFiles
from epochal.txn.errors import EpochalError, NotSettled, Refused
from epochal.txn.files import Files, is_local, join, local_path
from epochal.txn.incarnations import current_journal
from epochal.txn.journal import Journal, scratch_beside
from epochal.txn.participant import Participant
from epochal.txn.plan import decided_not_done
from epochal.txn.recovery import Recovery, Sinks
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.settler import Retrying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal.txn.model import Json

LOOK = 0.25  # seconds between two looks through the server


class ClientSettling:
    """Settles a query of a Spark Connect server. Every step is idempotent and safe beside the server's own process."""

    def __init__(
        self,
        session: SparkSession,
        checkpoint: str,
        sinks: Sequence[Participant[Any]],
        *,
        journal: str | None,
        timeout: float,
    ) -> None:
        self._session, self._checkpoint, self._sinks = session, checkpoint, sinks
        self._given, self._timeout = journal, timeout

    @property
    def recover_command(self) -> str:
        """What to run where the checkpoint can be reached."""
        path = local_path(self._checkpoint) if is_local(self._checkpoint) else self._checkpoint
        return f"epochal recover {path}" + ("" if self._given is None else f" --journal {self._given}")

    def reach(self, query_id: str | None = None) -> tuple[Files, str] | None:
        """The checkpoint, if this process sees the same one as the server; None if not, or if there is none yet.

        It is the same if it has the same query's id. Without an id, the server is asked which it has.
        """
        try:
            files, path = resolve(self._checkpoint, self._session)
            found = SparkCheckpoint(files, path).query_id()
            known = query_id or SparkCheckpoint(ServerFiles(self._session), self._checkpoint).query_id()
        except (Refused, OSError):
            return None
        return (files, path) if found == known else None

    def settle(self, query_id: str, timeout: float | None = None) -> None:
        """Bring every decided epoch to done. NotSettled if it is not known to be."""
        limit = self._timeout if timeout is None else timeout
        place = self.reach(query_id)
        if place is None:
            self._wait_for_server(limit)
            return
        try:
            self._recover(*place, limit)
        except NotSettled:
            raise
        except (EpochalError, OSError) as fault:
            raise NotSettled(
                f"decided epochs could not be settled from this machine: {fault}. They are safe. Run "
                f"`{self.recover_command}` on the server's machine, or start the query again"
            ) from fault

    def recover(self, files: Files, path: str) -> None:
        """Settle what an earlier run has left, before the query starts: its first batch may be long in coming."""
        self._recover(files, path, self._timeout)

    def _recover(self, files: Files, path: str, timeout: float) -> None:
        place = spark_path(path)

        def journals(incarnation: int) -> Journal:
            return open_journal(place, self._given, incarnation)

        view = current_journal(journals)[1].read()
        if view.latest is None:
            return  # no batch has run
        scratch = scratch_beside(resolve(self._given or join(place, "epochal"))[1])
        reports = reporter(stream=stream_name(path))
        recovery = Recovery(
            journals=journals,
            checkpoint=SparkCheckpoint(files, path),
            sinks=Sinks(view, self._build, scratch=scratch),
            on_commit=lambda *_: None,
            reporter=reports,
        )
        Retrying(recovery.settle, reporter=reports, lineage=lambda: recovery.lineage).settle(timeout)

    def _build(self, description: Mapping[str, Json]) -> Participant[Any]:
        """The writer's own sink if it is the one that is described, else one like it."""
        for sink in self._sinks:
            if sink.name == description.get("name") and sink.describe().get("target") == description.get("target"):
                return sink
        found = class_of(str(description.get("type", "")))
        if found is None:
            raise Refused(f"sink {description.get('name')!r}: its kind is not installed here")
        return found.from_description(description)

    def _wait_for_server(self, timeout: float) -> None:
        """Wait until the journal, read through the server, has every committed epoch as done."""
        deadline = time.monotonic() + timeout
        while (waiting := self._unsettled()) and time.monotonic() < deadline:
            time.sleep(LOOK)
        if waiting:
            raise NotSettled(
                f"epoch {waiting[0]} is decided but not yet visible, and this client cannot reach the checkpoint "
                f"{self._checkpoint} to finish it. It is safe: run `{self.recover_command}` where the checkpoint can "
                "be reached, or start the query again"
            )

    def _unsettled(self) -> list[int]:
        files = ServerFiles(self._session)
        committed = SparkCheckpoint(files, self._checkpoint).committed()
        path = (self._given or join(self._checkpoint, "epochal")).rstrip("/")
        view = current_journal(lambda n: Journal(files, path if n == 1 else f"{path}~{n}"))[1].read()
        return [] if view.latest is None else list(decided_not_done(view, committed))
