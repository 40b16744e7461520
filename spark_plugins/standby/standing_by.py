"""`epochal.standby`: waits for the turn of this process, then starts the query."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from epochal.sinks.config.options import Faults
from epochal.sinks.config.quantities import parse_duration
from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins import binding as bindings
from epochal.spark_plugins import causes
from epochal.spark_plugins.coordinators import open_journal
from epochal.spark_plugins.place import CheckpointPlace
from epochal.spark_plugins.query import EpochQuery
from epochal.spark_plugins.remote import started
from epochal.spark_plugins.standby.judging import Judgement, Rules, Turn, WhenEnded
from epochal.spark_plugins.standby.looking import Lookout
from epochal.spark_plugins.standby.notices import Notices
from epochal.spark_plugins.standby.sight import Sight
from epochal.spark_plugins.standby.waiting import FILES, LOOK, Watch
from epochal.spark_plugins.standby.zookeeper import ZooKeeperLease, check_installed, keep
from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.errors import Overtaken, Refused
from epochal.txn.events import StandbyEnded, StandbyWaits
from epochal.txn.files import is_local
from epochal.txn.live import HEARTBEAT, LEAST_LEASE
from epochal.txn.reporting import Reporter, reporter, stream_name

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("epochal")

ENDINGS = ("wait", "leave", "take-over")
WHY: Mapping[str, str] = {  # why there will be no turn
    "retired": "the stream was retired",
    "ended": "the query has ended in order, on another driver",
    "fenced": "a command has stopped the driver that ran it",
    "refused": "the query has ended by an error that any driver would meet",
}


def standby(
    writer: EpochWriter,
    stream: DataStreamWriter,
    *,
    lease: float | str = 10.0,
    when_ended: WhenEnded = "wait",
    zookeeper: str | None = None,
    warm: bool = True,
    stop: threading.Event | None = None,
) -> EpochQuery | None:
    """Wait until the driver that runs a stream dies or hangs; then take over and start the query.

    Returns the running query, as `EpochWriter.start` does, when it is the turn of this process: the driver is gone, or
    has not renewed its lease (its live file) for `lease` seconds, or nobody has run the stream yet. Of several standbys
    one takes over, and the others wait for it. Returns None if there will be no turn: the stream was retired, it has
    ended and `when_ended` is ``"leave"``, or `stop` was set.

    A query that has ended in order is not taken over, unless `when_ended` is ``"take-over"``. With `zookeeper`, hosts
    such as ``"zk1:2181,zk2:2181"``, the lease is kept there; all drivers of the stream are to be started like this
    then. With `warm`, a throw-away query runs first, so that the first epoch after a takeover is not the first of its
    JVM::

        query = epochal.standby(writer, orders.writeStream.option("checkpointLocation", "checkpoints/orders"))
        if query is not None:
            query.awaitTermination()
    """
    query, _ = waited(writer, stream, lease=lease, when_ended=when_ended, zookeeper=zookeeper, warm=warm, stop=stop)
    return query


def waited(
    writer: EpochWriter,
    stream: DataStreamWriter,
    *,
    lease: float | str,
    when_ended: WhenEnded,
    zookeeper: str | None,
    warm: bool,
    stop: threading.Event | None,
) -> tuple[EpochQuery | None, str]:
    """The same, with the reason if there will be no turn, for people."""
    seconds = _checked(lease, when_ended)
    if zookeeper is not None:
        check_installed()
    if started.is_remote(stream):
        raise Refused("a standby needs a session of its own, and this one is Spark Connect's. Nothing was started")
    location = bindings.location_of(stream)
    if location is None:
        raise Refused(
            "a standby finds its stream by the checkpoint: .option('checkpointLocation', 'checkpoints/orders'). "
            "Nothing was started"
        )
    place = CheckpointPlace(location, stream._spark)
    writer.check_before(stream, place)
    is_stopped = stop.is_set if stop is not None else lambda: False
    path = place.path
    lookout = Lookout(
        place.files, path, lambda incarnation: open_journal(spark_path(path), writer.journal, incarnation)
    )
    kept = "checkpoint" if zookeeper is None else "zookeeper"
    notices = Notices(lambda: (lookout.journal.files, lookout.journal.path), lease=seconds, kept=kept)
    outside = None if zookeeper is None else ZooKeeperLease(zookeeper, path)
    query: EpochQuery | None = None
    try:
        notices.renew(ready=False)
        if warm and not is_stopped():
            from epochal.spark_plugins.standby.warming import warm_up

            took = warm_up(stream._df, writer.sinks)
            log.info("standby is warm", extra={"seconds": round(took, 1)})
        telling = _Telling(writer, stream_name(path, writer.stream or bindings.name_of(stream)), seconds)
        watch = Watch(
            lookout=lookout,
            rules=Rules(lease=seconds, when_ended=when_ended),
            notices=notices,
            lease=outside,
            is_stopped=is_stopped,
            on_judgement=telling.judgement,
            between=LOOK if is_local(path) else FILES,
        )

        def take_over(sight: Sight) -> EpochQuery:
            taken = _take_over(writer, stream, sight)
            telling.took_over()
            return taken

        query = watch.stand_by(take_over)
        if query is None:
            telling.stopped()
        elif outside is not None and query.run is not None:
            outside.note(query.run.start)
            keep(outside, query.run)
        return query, "" if query is not None else telling.why
    finally:
        notices.remove()
        if outside is not None and query is None:
            outside.close()


def _take_over(writer: EpochWriter, stream: DataStreamWriter, sight: Sight) -> EpochQuery:
    try:
        return writer.start_instead(stream, sight.start)
    except (Py4JJavaError, PySparkException) as fault:
        if sight.is_begun or not causes.is_conflict(str(fault)):
            raise
        raise Overtaken("another driver has started the stream for the first time") from fault


def _checked(lease: float | str, when_ended: str) -> float:
    faults = Faults("standby")
    seconds = LEAST_LEASE
    try:
        seconds = parse_duration(lease)
        faults.check(
            seconds >= LEAST_LEASE,
            f"lease={lease!r}: {LEAST_LEASE:.0f} seconds or more; a driver renews it every {HEARTBEAT:.0f} s",
        )
    except ValueError as fault:
        faults.add(f"lease={lease!r}: {fault}")
    faults.check(when_ended in ENDINGS, f"when_ended={when_ended!r}: {', '.join(map(repr, ENDINGS))}")
    faults.done()
    return seconds


class _Telling:
    """Makes events of what a standby sees."""

    def __init__(self, writer: EpochWriter, stream: str, lease: float) -> None:
        self._reporter: Reporter = reporter(writer.observers, stream=stream)
        self._lease, self._began = lease, time.monotonic()
        self._last: Judgement | None = None

    @property
    def why(self) -> str:
        """Why it waits no longer, for people."""
        last = self._last
        return WHY.get(last.why, last.why) if last is not None and last.turn is Turn.LEAVE else "it was stopped"

    def judgement(self, judgement: Judgement) -> None:
        self._last = judgement
        if judgement.turn is Turn.WAIT:
            self._reporter.emit(StandbyWaits, "", lease=self._lease, how=judgement.why, **_facts(judgement))
        elif judgement.turn is Turn.LEAVE:
            self._ended(judgement, judgement.why, takes_over=False)

    def took_over(self) -> None:
        """Its turn has come, and no other driver was faster."""
        if self._last is not None:
            self._ended(self._last, self._last.why, takes_over=True)

    def stopped(self) -> None:
        """It waits no longer because somebody said so."""
        if self._last is None or self._last.turn is Turn.WAIT:
            self._ended(self._last, "stopped", takes_over=False)

    def _ended(self, judgement: Judgement | None, how: str, *, takes_over: bool) -> None:
        facts = _facts(judgement) if judgement is not None else {"generation": 0, "host": None, "pid": None}
        seconds = time.monotonic() - self._began
        self._reporter.emit(StandbyEnded, "", how=how, takes_over=takes_over, seconds=seconds, **facts)


def _facts(judgement: Judgement) -> dict[str, Any]:
    sight = judgement.sight
    return {"generation": sight.generation, "host": sight.process.host, "pid": sight.process.pid}
