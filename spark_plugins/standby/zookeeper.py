"""A lease in ZooKeeper, as an ephemeral node: it vanishes a few seconds after its holder has died or hangs.

::

    /epochal/3f1c9a2e.../         its data: the id of the start that had the lease last
    /epochal/3f1c9a2e.../holder   ephemeral; its session is that of the driver, its data names the process

The name is a digest of the checkpoint's path. A driver that loses its session stops its query. It stops before another
may have the lease: when the connection is lost it waits for a part of the session's time only. That it has stopped in
time is still not what rows depend on: the journal fences.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochal.spark_plugins.standby.judging import Held
from epochal.txn.errors import FencedOut, OptionError, Refused
from epochal.txn.process import Process, Running, running, this_process

if TYPE_CHECKING:
    from epochal.spark_plugins.run import Run

log = logging.getLogger("epochal")

ROOT = "/epochal"
SESSION = 4.0  # seconds after which ZooKeeper takes a client that it does not hear for dead
GRACE = SESSION / 4  # seconds without a connection after which a driver stops
LOOK = 0.25  # seconds between two looks at one's own session
PULSE = 1.0  # seconds between two questions to the JVM
HUNG = 10.0  # seconds without an answer of the JVM after which the lease is given back
CONNECT = 15.0  # seconds to wait for ZooKeeper at first
CALL = 2.0  # seconds to wait for an answer


@dataclass(frozen=True, slots=True)
class Seen:
    """What is in ZooKeeper."""

    held: Held
    last: str  # the start that had the lease last
    version: int  # of the node that says so
    is_dead: bool = False  # there is a holder, and its process is known to be gone


class ZooKeeperLease:
    """One standby's or driver's part in the lease of one stream."""

    def __init__(self, hosts: str, place: str) -> None:
        """Connect. `place` is the checkpoint's path. Refused if ZooKeeper does not answer."""
        self._hosts = hosts
        self._path = f"{ROOT}/{hashlib.sha256(place.encode()).hexdigest()[:32]}"
        self._holder = f"{self._path}/holder"
        self._session: int | None = None  # the one that took the lease
        self._lost: float | None = None  # since when there is no connection
        self._client = _client(hosts)
        with self._calls():
            self._client.ensure_path(self._path)

    def __str__(self) -> str:
        return f"the lease {self._holder} in ZooKeeper ({self._hosts})"

    def held(self) -> tuple[Held, str]:
        seen = self._see()
        return seen.held, seen.last

    def take(self) -> bool:
        from kazoo.exceptions import KazooException

        seen = self._see()
        if seen.held is Held.THEIRS:
            return False
        if seen.held is Held.FREE:
            me = this_process().to_json()
            # All or nothing, and only if nobody has taken it since: whoever does writes the first node too.
            taking = self._client.transaction()
            taking.set_data(self._path, seen.last.encode("ascii"), version=seen.version)
            if seen.is_dead:
                taking.delete(self._holder)
            taking.create(self._holder, json.dumps(me).encode("ascii"), ephemeral=True)
            with self._calls():
                results = taking.commit_async().get(timeout=CALL)
            if any(isinstance(result, KazooException) for result in results):
                return False
        self._session, self._lost = self._now(), None
        return self._session is not None

    def _see(self) -> Seen:
        from kazoo.exceptions import NoNodeError

        with self._calls():
            data, stat = self._client.get_async(self._path).get(timeout=CALL)
            last = data.decode("ascii", "replace")
            try:
                who, found = self._client.get_async(self._holder).get(timeout=CALL)
            except NoNodeError:
                return Seen(Held.FREE, last, stat.version)
        if found.owner_session_id == self._now():
            return Seen(Held.OURS, last, stat.version)
        # On this machine nobody has to wait for the end of the session of a process that is gone.
        is_dead = running(_process(who)) is Running.NO
        return Seen(Held.FREE if is_dead else Held.THEIRS, last, stat.version, is_dead)

    def give_back(self) -> None:
        from kazoo.exceptions import NoNodeError

        self._session = None
        try:
            if self.held()[0] is Held.OURS:
                with self._calls():
                    self._client.delete_async(self._holder).get(timeout=CALL)
        except (OSError, NoNodeError) as fault:
            log.debug("the lease was not given back", extra={"error": repr(fault)})

    def note(self, start: str) -> None:
        """Tell the next one which start had the lease. If that fails, it waits until that driver is silent."""
        try:
            with self._calls():
                self._client.set_async(self._path, start.encode("ascii")).get(timeout=CALL)
        except OSError as fault:
            log.debug("the lease has no note of its holder", extra={"error": repr(fault)})

    def is_ours(self) -> bool:
        """Whether this process still has the lease, as far as it can know without asking."""
        if self._client.connected and self._now() == self._session:
            self._lost = None
            return True
        from kazoo.client import KazooState

        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        is_lost = self._client.state == KazooState.LOST or (self._client.connected and self._now() != self._session)
        return not is_lost and now - self._lost < GRACE

    def close(self) -> None:
        """End the session: whoever waits may take the lease at once."""
        self._client.stop()
        self._client.close()

    def _now(self) -> int | None:
        """The id of the session of this process; None if it has none."""
        found = self._client.client_id
        return int(found[0]) if found is not None else None

    @contextmanager
    def _calls(self) -> Iterator[None]:
        """What keeps ZooKeeper from answering is an OSError, as for files."""
        from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, OperationTimeoutError, SessionExpiredError
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            yield
        except (
            ConnectionClosedError,
            ConnectionLoss,
            OperationTimeoutError,
            SessionExpiredError,
            KazooTimeoutError,
        ) as fault:
            raise OSError(f"{self}: no answer: {type(fault).__name__} {fault}") from fault


def keep(lease: ZooKeeperLease, run: Run) -> None:
    """Watch the lease of a driver in the background: stop its query when it is lost, and give it back at its end."""
    threading.Thread(target=_keep, args=(lease, run), name="epochal-lease", daemon=True).start()


def _keep(lease: ZooKeeperLease, run: Run) -> None:
    pulse = _Pulse(run)
    while not run.is_closed:
        if pulse.silence() > HUNG:  # Python's session would go on for ever
            lease.close()
            run.give_way(
                FencedOut(
                    f"Spark's JVM has not answered for {HUNG:.0f} s: {lease} was given back, so that another may go on"
                )
            )
            return
        if not lease.is_ours():
            run.give_way(
                FencedOut(
                    f"{lease} was lost: the connection is cut, or this process was suspended. This driver stops, so "
                    "that another may go on. Start it again when ZooKeeper can be reached"
                )
            )
            break
        time.sleep(LOOK)
    lease.close()


class _Pulse:
    """Asks the JVM of a run once a second, in a thread of its own."""

    def __init__(self, run: Run) -> None:
        self._run, self._answered = run, time.monotonic()
        threading.Thread(target=self._ask, name="epochal-pulse", daemon=True).start()

    def silence(self) -> float:
        """Seconds since it has answered."""
        return time.monotonic() - self._answered

    def _ask(self) -> None:
        while not self._run.is_closed:
            self._run.answer()
            self._answered = time.monotonic()
            time.sleep(PULSE)


def check_installed() -> None:
    """Refuse a lease in ZooKeeper where its client is missing."""
    try:
        import kazoo  # noqa: F401
    except ImportError:
        raise OptionError(
            "standby", ["a lease in ZooKeeper needs kazoo, which is not installed: pip install 'epochal[ha]'"]
        ) from None


def _process(data: bytes) -> Process:
    try:
        found = json.loads(data)
    except ValueError:
        return Process()
    return Process.from_json(found) if isinstance(found, dict) else Process()


def _client(hosts: str) -> Any:
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(hosts=hosts, timeout=SESSION)
    try:
        client.start(timeout=CONNECT)
    except KazooTimeoutError as fault:
        client.close()
        raise Refused(f"ZooKeeper does not answer at {hosts}: {fault}. Nothing was started") from fault
    return client
