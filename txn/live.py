"""The live file: what a driver is doing now, for people and dashboards. No decision of the protocol depends on it.

It lies beside the journal, in ``<journal>-live/``, as one JSON file ``g000003.000017.json``: generation and sequence.
A driver writes the next one, create-if-absent, and removes the older ones; readers take the highest. A file that cannot
be read is ignored, with a note.

This module has the format and the reader. `live_fold` makes the state from events, `live_writer` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, TypeVar

from epochal.txn.claims import same_place
from epochal.txn.files import Files, join
from epochal.txn.process import Process

FORMAT = 1
HEARTBEAT = 5.0  # seconds between two files of an idle driver
LEAST_LEASE = 2 * HEARTBEAT  # seconds: a driver that is well writes its live file twice in that time
SILENT = 30.0  # seconds after which a driver that wrote no file is taken for dead, if nothing better is known
TRIES = 5
LAST = 1e11  # seconds since 1970: times beyond are of a file that somebody else wrote

_NAME = re.compile(r"g([0-9]{6,18})\.([0-9]{6,18})\.json")
T = TypeVar("T")


class LiveState(Enum):
    """What a driver does."""

    WAITING = "waiting"  # it has claimed its generation, and waits for an earlier driver to end
    IDLE = "idle"  # it waits for Spark's next batch, or for commits/N
    STAGING = "staging"
    HELD = "held"  # a store or the journal does not answer
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEpoch:
    """One epoch in one sink. Times are seconds since 1970; None: not yet, or not known."""

    staged: float | None = None
    visible: float | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEpoch:
    """One epoch. Times are seconds since 1970; None: not yet, or not known to this driver."""

    epoch: int
    generation: int
    begun: float | None = None
    prepared: float | None = None
    checkpointed: float | None = None
    done: float | None = None
    sinks: Mapping[str, SinkEpoch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHeld:
    """Why a stream is held."""

    sink: str  # "journal" for the journal itself
    step: str  # stage, commit, abort, roll or journal
    reason: str
    since: float
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRefusal:
    """Why a driver stopped."""

    error: str  # the class of the error
    reason: str
    at: float
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What one driver is doing, at a moment."""

    lineage: str
    stream: str = ""  # its name for people
    generation: int
    start: str  # the random id of the generation's start
    journal: str  # where its journal is: a copy of the checkpoint has another
    process: Process
    jvm: Process | None = None  # the one that runs the query for it; None if not known, as in files of older versions
    at: float  # when this was written
    state: LiveState = LiveState.IDLE
    epoch: int | None = None  # the last one that arrived
    sink: str | None = None  # the one that is being staged or waited for
    sinks: tuple[str, ...] = ()
    held: LiveHeld | None = None
    waits_for: str | None = None  # the earlier driver, for people
    refused: LiveRefusal | None = None
    settled: bool | None = None  # once it has ended: whether every decided epoch is visible
    epochs: tuple[LiveEpoch, ...] = ()  # the last ones, by number

    def last(self, epoch: int | None) -> LiveEpoch | None:
        """One of the epochs; None if the file does not have it."""
        return next((known for known in reversed(self.epochs) if known.epoch == epoch), None)


def encode(live: Live) -> bytes:
    """The content of a live file."""
    value: dict[str, Any] = {"format": FORMAT, **asdict(live), "state": live.state.value}
    value.update(value.pop("process"))
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def decode(data: bytes) -> Live:
    """The state in a live file; ValueError if it is torn, foreign or of another format."""
    try:
        value = json.loads(data)
        if value.get("format") != FORMAT:
            raise ValueError(f"format {value.get('format')!r}; this epochal reads format {FORMAT}")
        return _live(value)
    except (TypeError, KeyError, AttributeError, RecursionError) as fault:
        raise ValueError(f"not a live file: {fault!r}") from None


def _live(value: dict[str, Any]) -> Live:
    return Live(
        lineage=_checked(value["lineage"], str),
        stream=_checked(value["stream"], str),
        generation=_checked(value["generation"], int),
        start=_checked(value["start"], str),
        journal=_checked(value["journal"], str),
        process=_process(value),
        jvm=None if value.get("jvm") is None else _process(_checked(value["jvm"], dict)),
        at=_seconds(value["at"]),
        state=LiveState(value["state"]),
        epoch=_optional(value["epoch"], int),
        sink=_optional(value["sink"], str),
        sinks=tuple(_checked(sink, str) for sink in _checked(value["sinks"], list)),
        held=_held(value["held"]),
        waits_for=_optional(value.get("waits_for"), str),  # older versions do not write it
        refused=_refusal(value["refused"]),
        settled=_optional(value["settled"], bool),
        epochs=tuple(_epoch(epoch) for epoch in _checked(value["epochs"], list)),
    )


def _process(value: dict[str, Any]) -> Process:
    return Process(
        host=_optional(value["host"], str),
        pid=_optional(value["pid"], int),
        started=_time(value["started"]),
        ticks=_optional(value["ticks"], int),
        machine=_optional(value["machine"], str),
    )


def _epoch(value: dict[str, Any]) -> LiveEpoch:
    return LiveEpoch(
        epoch=_checked(value["epoch"], int),
        generation=_checked(value["generation"], int),
        begun=_time(value["begun"]),
        prepared=_time(value["prepared"]),
        checkpointed=_time(value["checkpointed"]),
        done=_time(value["done"]),
        sinks={
            sink: SinkEpoch(
                staged=_time(facts["staged"]),
                visible=_time(facts["visible"]),
                rows=_optional(facts["rows"], int),
                bytes=_optional(facts["bytes"], int),
            )
            for sink, facts in _checked(value["sinks"], dict).items()
        },
    )


def _held(value: dict[str, Any] | None) -> LiveHeld | None:
    if value is None:
        return None
    return LiveHeld(
        sink=_checked(value["sink"], str),
        step=_checked(value["step"], str),
        reason=_checked(value["reason"], str),
        since=_seconds(value["since"]),
        epoch=_optional(value["epoch"], int),
    )


def _refusal(value: dict[str, Any] | None) -> LiveRefusal | None:
    if value is None:
        return None
    return LiveRefusal(
        error=_checked(value["error"], str),
        reason=_checked(value["reason"], str),
        at=_seconds(value["at"]),
        epoch=_optional(value["epoch"], int),
    )


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r} is not of type {kind}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"a number of {value.bit_length()} bits")
    return value


def _optional(value: Any, kind: type[T]) -> T | None:
    return None if value is None else _checked(value, kind)


def _time(value: Any) -> float | None:
    return None if value is None else _seconds(value)


def _seconds(value: Any) -> float:
    if not 0 <= _checked(value, (int, float)) < LAST:  # also NaN and Infinity, which json.loads takes
        raise ValueError(f"{str(value)[:40]} is no time")
    return float(value)


def live_beside(journal: str) -> str:
    """The folder of live files beside a journal."""
    return f"{journal.rstrip('/')}-live"


def name_of(generation: int, sequence: int) -> str:
    """The name of a live file.

    >>> name_of(3, 17)
    'g000003.000017.json'
    """
    return f"g{generation:06d}.{sequence:06d}.json"


def number_of(name: str) -> tuple[int, int] | None:
    """Generation and sequence of a live file; None for another name."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class LiveReading:
    """The newest live file, if there is one that can be read, and why others were ignored."""

    live: Live | None = None
    notes: tuple[str, ...] = ()


def read_lives(files: Files, journal: str, *, place: str) -> dict[int, tuple[int, Live]]:
    """The newest live file of each generation, with its sequence. What cannot be read, or is of a copy, is left out."""
    folder = live_beside(journal)
    newest: dict[int, tuple[int, Live]] = {}
    numbered = {number: name for name in files.names(folder) if (number := number_of(name)) is not None}
    for number in sorted(numbered):
        try:
            live = decode(files.read(join(folder, numbered[number])))
        except (ValueError, FileNotFoundError):
            continue  # torn, or its driver has written the next one
        if same_place(live.journal, place):
            newest[number[0]] = number[1], live
    return newest


def read_live(files: Files, journal: str, *, place: str | None = None) -> LiveReading:
    """The newest live file beside a journal. Never fails: what cannot be read is noted.

    `place` is `Journal.place`. If it is given, a file that came with a copy of a checkpoint is ignored too.
    """
    folder = live_beside(journal)
    notes: dict[str, str] = {}
    for _ in range(TRIES):
        try:
            numbered = {n: number for n in files.names(folder) if (number := number_of(n)) is not None}
            for name in sorted(numbered, key=numbered.__getitem__, reverse=True):
                if name in notes:
                    continue
                path = join(folder, name)
                try:
                    live = decode(files.read(path))
                except ValueError as fault:
                    notes[name] = f"{path} was ignored: {fault}"
                    continue
                if place is not None and not same_place(live.journal, place):
                    notes[name] = f"{path} was ignored: it belongs to the journal in {live.journal}"
                    continue
                return LiveReading(live, tuple(notes.values()))
        except FileNotFoundError:
            continue  # its driver has written the next one: list again
        except OSError as fault:
            return LiveReading(None, (*notes.values(), f"{folder} cannot be read: {fault}"))
        break
    return LiveReading(None, tuple(notes.values()))
