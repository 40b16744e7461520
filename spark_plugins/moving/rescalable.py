"""Whether the state of a stream can be rescaled now; what would be refused later is refused before anything is done."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from epochal.spark_plugins.moving.layout import STATE
from epochal.spark_plugins.moving.origin import Origin
from epochal.txn.errors import Refused
from epochal.txn.files import join
from epochal.txn.journal import Journal
from epochal.txn.live import read_live
from epochal.txn.liveness import Liveness, driver_status
from epochal.txn.process import Running, running, this_process
from epochal.txn.records import GenerationStarted
from epochal.txn.view import View

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
ROCKSDB = "RocksDBStateStoreProvider"
NOT_RUNNING = (Liveness.DEAD, Liveness.ENDED, Liveness.NONE)
MAY_RUN = "nothing tells from here that it has ended. If you know that it has, say --stopped"


@dataclass(frozen=True, slots=True)
class StateSettings:
    """What a file in ``offsets/`` says about the state."""

    provider: str
    partitions: int

    @staticmethod
    def parse(path: str, data: bytes) -> StateSettings:
        r"""From its second line.

        >>> conf = '{"spark.sql.streaming.stateStore.providerClass":"a.C","spark.sql.shuffle.partitions":"4"}'
        >>> StateSettings.parse("offsets/3", b'v1\n{"conf":' + conf.encode() + b"}")
        StateSettings(provider='a.C', partitions=4)
        """
        try:
            conf = json.loads(data.split(b"\n")[1])["conf"]
            return StateSettings(str(conf[PROVIDER]), int(conf[PARTITIONS]))
        except (IndexError, ValueError, KeyError, TypeError):
            raise Refused(
                f"{path} does not say how many partitions the state has, and in which store. Nothing was changed. Run "
                "the query once with Spark 4"
            ) from None


def settings_of(origin: Origin, epoch: int) -> StateSettings:
    """What ``offsets/N`` says."""
    path = join(origin.path, "offsets", str(epoch))
    try:
        return StateSettings.parse(path, origin.files.read(path))
    except FileNotFoundError:
        raise Refused(f"{path} is gone: Spark cannot rescale without it. Restore it from a copy") from None


def check(origin: Origin, journal: Journal, view: View, *, stopped: bool) -> StateSettings:
    """How the state is now. Refused if Spark or the protocol would refuse to rescale it."""
    path, committed = origin.path, origin.checkpoint.committed()
    _check_driver(origin, journal, view, stopped=stopped)
    if committed < 0:
        raise Refused(f"{path}: Spark has checkpointed no epoch yet. Nothing was changed. Run the query first")
    planned = origin.checkpoint.planned()
    if planned > committed or any(e > committed and view.prepared(e) for e in view.waiting()):
        raise Refused(
            f"{path}: epoch {committed + 1} is begun and not in Spark's commits/. If the state were rescaled now, its "
            "rows would come again under another number. Nothing was changed. Start the query once more, which "
            "finishes the epoch (trigger availableNow ends by itself), stop it, and run this again"
        )
    if not origin.files.list(join(path, STATE)):
        raise Refused(
            f"{path}: the query has no state to rescale. Nothing was changed. How many tasks it runs depends on its "
            f"source and on the session's {PARTITIONS}"
        )
    settings = settings_of(origin, committed)
    if not settings.provider.endswith(ROCKSDB):
        raise Refused(
            f"{path}: its state is in {settings.provider}, which Spark cannot rescale; only {ROCKSDB} can be. The "
            "store of a checkpoint cannot be changed, and epochal does not convert it. Nothing was changed. Begin a "
            f"new checkpoint with {PROVIDER} set to that, or keep the {settings.partitions} partitions"
        )
    return settings


def _check_driver(origin: Origin, journal: Journal, view: View, *, stopped: bool) -> None:
    assert view.latest is not None  # `Origin.current` has checked it
    live = read_live(origin.journal_files, journal.path, place=journal.place).live
    status = driver_status(view.latest, live, time.time())
    if status.liveness is Liveness.ALIVE:
        raise Refused(
            f"{origin.path}: its driver ({status.name}) is alive. State can be rescaled only while no query uses it. "
            "Nothing was changed. Stop the query first"
        )
    if status.liveness not in NOT_RUNNING and not stopped:
        raise Refused(f"{origin.path}: its driver was {status.name}; {MAY_RUN}. Nothing was changed")


def check_command(latest: GenerationStarted) -> None:
    """Refuse while a command that has begun a rescale still runs; two at once would spoil the state."""
    process = latest.driver.process
    if latest.driver.rescaling is None or process.is_same_as(this_process()):
        return
    found = running(process)
    if found is Running.YES:
        raise Refused(f"the rescale that was begun still runs ({process.name}). Wait for its end, or stop it")
    if found is Running.UNKNOWN:
        raise Refused(f"a rescale was begun by {process.name}; {MAY_RUN}. Nothing was changed")
