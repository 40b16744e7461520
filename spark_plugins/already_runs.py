"""Whether a driver runs a stream already, for whoever is about to start another. Reads only."""

from __future__ import annotations

import time
from dataclasses import dataclass

from epochal.metrics import observer_of
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.coordinators import open_journal
from epochal.spark_plugins.place import CheckpointPlace
from epochal.txn.errors import Refused
from epochal.txn.incarnations import current_journal
from epochal.txn.live import read_live
from epochal.txn.liveness import DriverStatus, Liveness, driver_status
from epochal.txn.model import Json
from epochal.txn.process import this_process
from epochal.txn.records import GenerationStarted


@dataclass(frozen=True, slots=True)
class RunningDriver:
    """The driver of a stream, which is alive."""

    started: GenerationStarted
    status: DriverStatus

    def __str__(self) -> str:
        beat = f", {self.status.last_heard}" if self.status.last_heard else ""
        since = f", since {self.started.at}" if self.started.at else ""
        return f"{self.status.name} (generation {self.started.generation}{since}), which is alive{beat}"

    def to_json(self) -> dict[str, Json]:
        """As JSON. `started` is seconds since 1970, as in `epochal status --json`."""
        heard = self.status.heartbeat
        return {
            "generation": self.started.generation,
            "at": self.started.at,
            "host": self.status.process.host,
            "pid": self.status.process.pid,
            "started": self.status.process.started,
            "liveness": self.status.liveness.value,
            "heartbeat_seconds": None if heard is None else round(heard, 3),
        }


def driver_at(checkpoint: str, journal: str | None) -> RunningDriver | None:
    """The driver that runs the stream of a checkpoint in another process; None if none is known to be alive."""
    place = spark_path(checkpoint)
    current = current_journal(lambda incarnation: open_journal(place, journal, incarnation))[1]
    latest = current.read().latest
    if latest is None:
        return None
    live = read_live(current.files, current.path, place=current.place).live
    status = driver_status(latest, live, time.time())
    is_me = status.process.is_same_as(this_process())
    return RunningDriver(latest, status) if status.liveness is Liveness.ALIVE and not is_me else None


def driver_of(place: CheckpointPlace, journal: str | None) -> RunningDriver | None:
    """The same for a checkpoint that may not exist yet."""
    return None if place.is_new else driver_at(place.path, journal)


def serve_metrics(metrics: str | None, place: CheckpointPlace | None, journal: str | None) -> None:
    """Serve metrics from now on, if there are any. Refused if another process uses their address.

    That process is most often an earlier driver of the same stream: then the error names it.
    """
    if metrics is None:
        return
    try:
        observer_of(metrics)
    except Refused as fault:
        driver = None if place is None else driver_of(place, journal)
        if driver is None:
            raise
        raise Refused(
            f"{fault}. This very stream runs already: {driver}. It goes on. To replace it, stop it first, or start "
            "this one with metrics at another address: it takes over then"
        ) from None
