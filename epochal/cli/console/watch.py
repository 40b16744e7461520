"""Reads streams again and again without disturbing them: one reading of a stream at a time, and never often.

A reading may take long, because a store that is down lets its clients wait. Whoever asks meanwhile gets the last result
with its time. The next reading begins a second after the last one, or later if that one was slow: reading takes at most
a tenth of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from epochal.cli.console.build import snapshot
from epochal.cli.console.model import JsonObject, StreamSnapshot, to_json
from epochal.cli.console.timeline import times_of
from epochal.cli.exit_codes import UNREACHABLE, WELL, code_of
from epochal.cli.stream_status import read_status
from epochal.cli.streams import Stream, open_stream
from epochal.txn.errors import Refused
from epochal.txn.files import is_local

INTERVAL = 1.0  # seconds between two readings, at least
SHARE = 10  # ... and this many times as long as a reading took
REOPEN = 60.0  # seconds: a checkpoint may be replaced by another one meanwhile
OPENING = threading.Lock()
READING = "still reading: a store takes long to answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The last result for one stream: a snapshot, or why there is none. `at` is the time of the last good one."""

    checkpoint: str
    snapshot: StreamSnapshot | None = None
    error: str = ""
    code: int = WELL  # the exit code of a command that fails so

    def to_json(self) -> JsonObject:
        """The reading as JSON; `error` is set if the newest reading failed."""
        found: JsonObject = {"checkpoint": self.checkpoint, "error": self.error or None}
        return found | {"snapshot": to_json(self.snapshot) if self.snapshot is not None else None}


@dataclass(slots=True)
class _State:
    reading: Reading
    next: float = 0.0  # of the monotonic clock
    busy: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)


class Watched:
    """One stream that is read again and again."""

    def __init__(self, checkpoint: str, read: Callable[[], StreamSnapshot]) -> None:
        self.checkpoint = checkpoint
        self._read = read
        self._state = _State(Reading(checkpoint=checkpoint))

    def latest(self, *, wait: float) -> Reading:
        """The newest result. Starts a reading if it is time for one, and waits for it that long at most."""
        state = self._state
        with state.changed:
            if not state.busy and time.monotonic() >= state.next:
                state.busy = True
                threading.Thread(target=self._run, name=f"reading {self.checkpoint}", daemon=True).start()
            state.changed.wait_for(lambda: not state.busy, timeout=wait)
            if state.busy and state.reading.snapshot is None:
                return Reading(checkpoint=self.checkpoint, error=READING, code=UNREACHABLE)
            return state.reading

    def _run(self) -> None:
        state = self._state
        began = time.monotonic()
        try:
            reading = Reading(checkpoint=self.checkpoint, snapshot=self._read())
        except Exception as fault:  # noqa: BLE001  # whatever it is, it belongs to this stream and is shown there
            # What was known stays on display, with its time.
            reading = Reading(
                checkpoint=self.checkpoint,
                snapshot=state.reading.snapshot,
                error=str(fault) or type(fault).__name__,
                code=code_of(fault),
            )
        with state.changed:
            took = time.monotonic() - began
            state.reading, state.busy = reading, False
            state.next = time.monotonic() + max(INTERVAL, SHARE * took)
            state.changed.notify_all()


def latest_of(streams: Sequence[Watched], *, wait: float) -> list[Reading]:
    """The newest result of each stream. They are read at the same time, so that a slow one delays no other."""
    deadline = time.monotonic() + wait
    for stream in streams:
        stream.latest(wait=0.0)
    return [stream.latest(wait=max(0.0, deadline - time.monotonic())) for stream in streams]


class Reader:
    """Reads one stream. Records of its journal are read once, as long as the stream stays open here."""

    def __init__(self, checkpoint: str, journal: str | None, *, clock: Callable[[], float] = time.time) -> None:
        self._checkpoint = checkpoint
        self._journal = journal
        self._clock = clock
        self._stream: Stream | None = None
        self._opened = 0.0

    def __call__(self) -> StreamSnapshot:
        """Read everything once."""
        if self._stream is not None and time.monotonic() - self._opened <= REOPEN:
            try:
                return self._read(self._stream)
            except Exception:  # noqa: BLE001  # the checkpoint may have been replaced since: the second try says what is wrong
                self._stream = None
        self._stream = self._open()
        return self._read(self._stream)

    def _read(self, stream: Stream) -> StreamSnapshot:
        status = read_status(stream, clock=self._clock)
        if status.latest.closed:  # the query has a new journal
            self._stream = None
        return snapshot(status, times_of(stream.journal.records))

    def _open(self) -> Stream:
        self._opened = time.monotonic()
        # Several streams on HDFS may need Spark: it is started once.
        with nullcontext() if is_local(self._checkpoint) else OPENING:
            return open_stream(self._checkpoint, self._journal)


def watch(checkpoints: Sequence[str], journal: str | None) -> list[Watched]:
    """Streams to watch, in the order given."""
    return [Watched(checkpoint, Reader(checkpoint, journal)) for checkpoint in chosen(checkpoints, journal)]


def chosen(checkpoints: Sequence[str], journal: str | None) -> list[str]:
    """The checkpoints in the order given, each once. Refused if one journal is named for several."""
    once = list(dict.fromkeys(checkpoints))
    if journal is not None and len(once) > 1:
        raise Refused("--journal names the journal of one stream: give one CHECKPOINT with it")
    return once
