"""Who stands by, for people: a small file for each standby, beside the journal. No decision depends on it.

It lies in ``<journal>-standby/``, as JSON, ``spark-7-4711-1f0c9a2e.000017.json``: host, pid, a random part, and a
number that grows. A standby writes the next one every few seconds and removes the one before.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from epochal.txn.claims import same_place
from epochal.txn.files import Files, LocalFiles, check_own, is_local, join
from epochal.txn.live import HEARTBEAT, SILENT
from epochal.txn.process import Process, Running, running, this_process

log = logging.getLogger("epochal")

FORMAT = 1
_NAME = re.compile(r"([A-Za-z0-9._-]{1,120}-[0-9a-f]{8})\.([0-9]{6,18})\.json")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One standby, at a moment."""

    process: Process
    at: float  # when this was written, seconds since 1970
    since: float  # when it began to wait
    ready: bool  # it has run its throw-away query
    lease: float  # seconds
    kept: str  # where the lease is kept: "checkpoint" or "zookeeper"
    journal: str  # where its journal is: a copy of the checkpoint has another


def standby_beside(journal: str) -> str:
    """The folder of notices beside a journal."""
    return f"{journal.rstrip('/')}-standby"


class Notices:
    """Writes those of one standby. What fails is logged, and the standby goes on."""

    def __init__(
        self,
        files: Callable[[], tuple[Files, str]],
        *,
        lease: float,
        kept: str = "checkpoint",
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """`files` returns the journal's file operations and its path, which may change while it waits."""
        self._files, self._lease, self._kept = files, lease, kept
        self._clock, self._ticks = clock, ticks
        self._me = this_process()
        host = _UNSAFE.sub("-", self._me.host or "host")[:60]
        self._name = f"{host}-{self._me.pid}-{uuid.uuid4().hex[:8]}"
        self._since = clock()
        self._number, self._written = 0, -HEARTBEAT
        self._last: tuple[Files, str] | None = None  # the file that is there now
        self._was_ready = False

    def renew(self, *, ready: bool) -> None:
        """Write the next one, if it is time."""
        now = self._ticks()
        if now - self._written < HEARTBEAT and ready == self._was_ready:
            return
        self._written, self._was_ready = now, ready
        try:
            self._write(ready)
        except OSError as fault:
            log.debug("the notice of a standby was not written", extra={"error": repr(fault)})

    def remove(self) -> None:
        """This process waits no longer."""
        last, self._last = self._last, None
        self._written = -HEARTBEAT
        if last is None:
            return
        try:
            last[0].delete(last[1])
        except OSError as fault:
            log.debug("the notice of a standby was not removed", extra={"error": repr(fault)})

    def _write(self, ready: bool) -> None:
        files, journal = self._files()
        if not files.names(journal):
            return  # a checkpoint that is new, or was removed: Spark refuses one in which it finds a stray folder
        folder = standby_beside(journal)
        if is_local(journal):
            files = LocalFiles(sync=False)
        if self._number == 0:
            check_own(files, folder, lambda name: _NAME.fullmatch(name) is not None)
            _sweep(files, folder)
        self._number += 1
        path = join(folder, f"{self._name}.{self._number:06d}.json")
        notice = Notice(
            process=self._me,
            at=self._clock(),
            since=self._since,
            ready=ready,
            lease=self._lease,
            kept=self._kept,
            journal=journal,
        )
        files.create(path, encode(notice), durable=False)
        before, self._last = self._last, (files, path)
        if before is not None:
            before[0].delete(before[1])


def _sweep(files: Files, folder: str) -> None:
    """Remove the notices of standbys that were killed."""
    for name, notice in _read(files, folder):
        if running(notice.process) is Running.NO:
            files.delete(join(folder, name))


def read_notices(files: Files, journal: str, now: float) -> list[Notice]:
    """The standbys that wait for a stream. One that is known to be gone, or was not heard of for long, is left out."""
    found: dict[str, Notice] = {}
    try:
        for name, notice in _read(files, standby_beside(journal)):
            state = running(notice.process)
            if not same_place(notice.journal, journal):
                continue  # it came with a copy of the checkpoint
            if state is Running.YES or (state is Running.UNKNOWN and now - notice.at <= SILENT):
                found[name.rpartition(".json")[0].rpartition(".")[0]] = notice
    except OSError as fault:
        log.debug("notices of standbys were not read", extra={"error": repr(fault)})
    return sorted(found.values(), key=lambda notice: notice.since)


def _read(files: Files, folder: str) -> list[tuple[str, Notice]]:
    found = []
    for name in files.names(folder):
        if _NAME.fullmatch(name) is None:
            continue
        try:
            found.append((name, decode(files.read(join(folder, name)))))
        except FileNotFoundError:
            continue  # its standby has written the next one
        except ValueError as fault:
            log.debug("the notice of a standby was ignored", extra={"notice": name, "error": repr(fault)})
    return found


def encode(notice: Notice) -> bytes:
    """The content of the file."""
    value: dict[str, Any] = {"format": FORMAT, **asdict(notice)}
    value.update(value.pop("process"))
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(data: bytes) -> Notice:
    """A notice; ValueError if it is torn, foreign or of another format."""
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}; this epochal reads format {FORMAT}")
        return Notice(
            process=Process(
                host=_of(value["host"], str),
                pid=_of(value["pid"], int),
                started=_of(value["started"], float),
                ticks=_of(value["ticks"], int),
                machine=_of(value["machine"], str),
            ),
            at=float(value["at"]),
            since=float(value["since"]),
            ready=bool(value["ready"]),
            lease=float(value["lease"]),
            kept=str(value["kept"]),
            journal=str(value["journal"]),
        )
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError) as fault:
        raise ValueError(f"not the notice of a standby: {fault!r}") from None


def _of(value: Any, kind: type) -> Any:
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
