"""Whether a driver runs a stream already, for whoever is about to start another. Reads only."""

from __future__ import annotations

import time
from dataclasses import dataclass

from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.lead import open_journal
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
        heard = self.status.heartbeat
        beat = "" if heard is None else f", last heard of {heard:.0f} s ago"
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
    me = this_process()
    is_me = (status.process.pid, status.process.machine, status.process.host) == (me.pid, me.machine, me.host)
    return RunningDriver(latest, status) if status.liveness is Liveness.ALIVE and not is_me else None
