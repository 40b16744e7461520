"""What is measured: the instruments, and the fold of events into their values. Pure: no clock, no exporter.

Each instrument has a name by the conventions of Prometheus (base units, ``_total``) and one by those of OpenTelemetry
(dots, the unit beside it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from epochal.txn.events import (
    AttemptAborted,
    EpochBegun,
    EpochCommitted,
    EpochDecided,
    EpochDone,
    EpochPrepared,
    EpochStaged,
    Event,
    PartsOpen,
    PartsRolled,
    RecoveryMeasured,
    StreamEnded,
    StreamHeld,
    StreamRefused,
    StreamResumed,
    StreamStarted,
)
from epochal.txn.reporting import JOURNAL

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]

STREAM: Labels = ("stream",)
SINK: Labels = ("stream", "sink")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)  # limits of buckets


@dataclass(frozen=True, slots=True)
class Instrument:
    """One measure of a stream, or of one of its sinks."""

    kind: Kind
    prometheus: str
    otel: str
    unit: str  # as OpenTelemetry spells it
    labels: Labels
    doc: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A new value: of a counter what is added, of a gauge what it is now, of a histogram one observation."""

    instrument: Instrument
    value: float
    labels: Labels  # the values of the instrument's labels


LAG = Instrument(
    "histogram",
    "epochal_visibility_lag_seconds",
    "epochal.visibility.lag",
    "s",
    SINK,
    "Time from Spark's checkpoint of an epoch until the sink shows it",
)
STAGE = Instrument(
    "histogram", "epochal_stage_duration_seconds", "epochal.stage.duration", "s", SINK, "Time to stage an epoch"
)
COMMIT = Instrument(
    "histogram", "epochal_commit_duration_seconds", "epochal.commit.duration", "s", SINK, "Time to commit an epoch"
)
SETTLE = Instrument(
    "histogram",
    "epochal_settle_duration_seconds",
    "epochal.settle.duration",
    "s",
    STREAM,
    "Time from the decision about an epoch until every sink shows it",
)
ROWS = Instrument("counter", "epochal_rows_total", "epochal.rows", "{row}", SINK, "Rows that were committed")
BYTES = Instrument(
    "counter", "epochal_committed_bytes_total", "epochal.committed.size", "By", SINK, "Bytes that were committed"
)
EPOCHS = Instrument("counter", "epochal_epochs_total", "epochal.epochs", "{epoch}", SINK, "Epochs that were committed")
RETRIES = Instrument(
    "counter", "epochal_retries_total", "epochal.retries", "{try}", SINK, "Failed tries that were, or will be, repeated"
)
ABORTED = Instrument(
    "counter",
    "epochal_aborted_attempts_total",
    "epochal.aborted_attempts",
    "{attempt}",
    SINK,
    "Staged attempts that were removed because they did not become the epoch",
)
ROLLS = Instrument(
    "counter", "epochal_rolls_total", "epochal.rolls", "{roll}", SINK, "Times that parts were closed between epochs"
)
REFUSALS = Instrument(
    "counter",
    "epochal_refusals_total",
    "epochal.refusals",
    "{refusal}",
    ("stream", "error"),
    "Times that the stream was stopped by an error",
)
IN_DOUBT = Instrument(
    "gauge",
    "epochal_epochs_in_doubt",
    "epochal.epochs.in_doubt",
    "{epoch}",
    STREAM,
    "Epochs that are prepared and that Spark has not checkpointed",
)
PENDING = Instrument(
    "gauge",
    "epochal_epochs_pending",
    "epochal.epochs.pending",
    "{epoch}",
    SINK,
    "Epochs that Spark has checkpointed and the sink does not show yet",
)
HELD = Instrument(
    "gauge",
    "epochal_held",
    "epochal.held",
    "1",
    SINK,
    "1 while a failing step of this sink holds the stream back; the sink 'journal' is the journal",
)
STAGED_BYTES = Instrument(
    "gauge", "epochal_staged_bytes", "epochal.staged.size", "By", SINK, "Bytes that are staged and not visible"
)
OPEN_PARTS = Instrument(
    "gauge", "epochal_open_parts", "epochal.open.parts", "{part}", SINK, "Parts that are open over epochs"
)
OPEN_BYTES = Instrument("gauge", "epochal_open_bytes", "epochal.open.size", "By", SINK, "Bytes in open parts")
LAST_EPOCH = Instrument(
    "gauge", "epochal_last_visible_epoch", "epochal.last_visible.epoch", "{epoch}", SINK, "The last epoch it shows"
)
LAST_TIME = Instrument(
    "gauge",
    "epochal_last_visible_timestamp_seconds",
    "epochal.last_visible.time",
    "s",
    SINK,
    "When it began to show its last epoch, in seconds since 1970",
)
GENERATION = Instrument(
    "gauge", "epochal_generation", "epochal.generation", "{start}", STREAM, "How often the stream has been started"
)
RUNNING = Instrument(
    "gauge", "epochal_running", "epochal.running", "1", STREAM, "1 while this process drives the stream"
)

RECOVERY = Instrument(
    "gauge",
    "epochal_recovery_seconds",
    "epochal.recovery.duration",
    "s",
    STREAM,
    "How long a recovery would take if the driver died now, if there is a recovery_objective",
)
RECOVERY_OBJECTIVE = Instrument(
    "gauge", "epochal_recovery_objective_seconds", "epochal.recovery.objective", "s", STREAM, "The objective for it"
)
STATE_EXTENT = Instrument(
    "gauge",
    "epochal_state_extent",
    "epochal.state.extent",
    "{version}",
    STREAM,
    "Versions of Spark's state that a recovery would replay",
)
STATE_ROWS = Instrument(
    "gauge", "epochal_state_rows", "epochal.state.rows", "{row}", STREAM, "Rows that Spark's operators keep"
)
STATE_BYTES = Instrument(
    "gauge",
    "epochal_state_bytes",
    "epochal.state.size",
    "By",
    STREAM,
    "Bytes of Spark's state that a recovery would read",
)

INSTRUMENTS: tuple[Instrument, ...] = (
    LAG,
    STAGE,
    COMMIT,
    SETTLE,
    ROWS,
    BYTES,
    EPOCHS,
    RETRIES,
    ABORTED,
    ROLLS,
    REFUSALS,
    IN_DOUBT,
    PENDING,
    HELD,
    STAGED_BYTES,
    OPEN_PARTS,
    OPEN_BYTES,
    LAST_EPOCH,
    LAST_TIME,
    GENERATION,
    RUNNING,
    RECOVERY,
    RECOVERY_OBJECTIVE,
    STATE_EXTENT,
    STATE_ROWS,
    STATE_BYTES,
)


@dataclass
class _Stream:
    """What is known of one stream."""

    sinks: tuple[str, ...] = ()
    in_doubt: set[int] = field(default_factory=set)
    pending: dict[int, set[str]] = field(default_factory=dict)  # epoch -> the sinks that do not show it yet
    staged: dict[tuple[str, int, int], int] = field(default_factory=dict)  # sink, epoch, generation -> bytes
    held: str = ""  # the sink that holds it

    def wait_for(self, epoch: int) -> None:
        """Spark has checkpointed an epoch."""
        self.in_doubt.discard(epoch)
        self.pending.setdefault(epoch, set(self.sinks))


class Fold:
    """Turns events into measurements. One for all streams of a process; not safe for concurrent use."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._labels: dict[str, str] = {}  # the label of each lineage that runs

    def _labelled(self, event: Event) -> Event:
        """The event with the stream's name as its label has it.

        Series of two streams that run at once must differ. If another one has the name, the beginning of the lineage
        follows it: not always, so that the labels of a stream with a name of its own never change.
        """
        label = self._labels.get(event.lineage, event.stream)
        if event.lineage and event.lineage not in self._labels and label in self._labels.values():
            label = f"{label}-{event.lineage[:8]}"
        if isinstance(event, StreamStarted):
            self._labels[event.lineage] = label
        elif isinstance(event, StreamEnded):
            self._labels.pop(event.lineage, None)
        return event if label == event.stream else replace(event, stream=label)

    def of(self, event: Event) -> Iterator[Measurement]:
        """The measurements that follow from an event."""
        event = self._labelled(event)
        stream = self._streams.setdefault(event.stream, _Stream())
        yield from self._counted(event)
        yield from self._folded(event, stream)

    def _counted(self, event: Event) -> Iterator[Measurement]:
        """Counters and histograms: each event counts for itself."""
        match event:
            case EpochStaged():
                yield Measurement(STAGE, event.seconds, (event.stream, event.sink))
            case EpochCommitted():
                own = (event.stream, event.sink)
                yield Measurement(COMMIT, event.seconds, own)
                yield Measurement(EPOCHS, 1, own)
                yield Measurement(ROWS, event.rows, own)
                yield Measurement(BYTES, event.bytes or 0, own)
                yield Measurement(LAST_EPOCH, event.epoch, own)
                yield Measurement(LAST_TIME, event.at, own)
                if event.lag is not None:
                    yield Measurement(LAG, event.lag, own)
            case EpochDone():
                yield Measurement(SETTLE, event.seconds, (event.stream,))
            case AttemptAborted():
                yield Measurement(ABORTED, 1, (event.stream, event.sink))
            case PartsRolled():
                yield Measurement(ROLLS, 1, (event.stream, event.sink))
            case PartsOpen():
                yield Measurement(OPEN_PARTS, event.parts, (event.stream, event.sink))
                yield Measurement(OPEN_BYTES, event.bytes, (event.stream, event.sink))
            case RecoveryMeasured():
                alone = (event.stream,)
                yield Measurement(RECOVERY, event.seconds, alone)
                yield Measurement(RECOVERY_OBJECTIVE, event.objective, alone)
                yield Measurement(STATE_EXTENT, event.extent, alone)
                yield Measurement(STATE_BYTES, event.bytes, alone)
                if event.rows is not None:
                    yield Measurement(STATE_ROWS, event.rows, alone)
            case StreamHeld():
                yield Measurement(RETRIES, 1, (event.stream, event.sink))
            case StreamRefused():
                yield Measurement(REFUSALS, 1, (event.stream, event.error))

    def _folded(self, event: Event, stream: _Stream) -> Iterator[Measurement]:
        """Gauges: what is so now, by this event and those before it."""
        match event:
            case StreamStarted():
                self._streams[event.stream] = stream = _Stream(event.sinks, set(event.in_doubt))
                yield Measurement(GENERATION, event.generation, (event.stream,))
                yield Measurement(RUNNING, 1, (event.stream,))
                for sink in (*event.sinks, JOURNAL):  # so that each is there before it first fails
                    yield Measurement(HELD, 0, (event.stream, sink))
                    yield Measurement(RETRIES, 0, (event.stream, sink))
                yield from self._epochs(event.stream, stream)
                yield from self._bytes(event.stream, stream, event.sinks)
            case EpochStaged():
                stream.staged[event.sink, event.epoch, event.generation] = event.bytes or 0
                yield from self._bytes(event.stream, stream, (event.sink,))
            case EpochPrepared():
                stream.in_doubt.add(event.epoch)
                yield from self._epochs(event.stream, stream)
            case EpochBegun():
                # Spark begins an epoch when it has checkpointed those before it.
                for epoch in sorted(e for e in stream.in_doubt if e < event.epoch):
                    stream.wait_for(epoch)
                yield from self._epochs(event.stream, stream)
            case EpochDecided():
                stream.wait_for(event.epoch)
                yield from self._epochs(event.stream, stream)
            case EpochCommitted():
                stream.pending.get(event.epoch, set()).discard(event.sink)
                stream.staged.pop((event.sink, event.epoch, event.generation), None)
                yield from self._epochs(event.stream, stream)
                yield from self._bytes(event.stream, stream, (event.sink,))
            case AttemptAborted():
                stream.staged.pop((event.sink, event.epoch, event.generation), None)
                yield from self._bytes(event.stream, stream, (event.sink,))
            case EpochDone():
                stream.pending = {e: sinks for e, sinks in stream.pending.items() if e > event.epoch}
                stream.in_doubt = {e for e in stream.in_doubt if e > event.epoch}
                stream.staged = {key: size for key, size in stream.staged.items() if key[1] > event.epoch}
                yield from self._epochs(event.stream, stream)
                yield from self._bytes(event.stream, stream, stream.sinks)
            case StreamHeld():
                if stream.held not in ("", event.sink):
                    yield Measurement(HELD, 0, (event.stream, stream.held))
                stream.held = event.sink
                yield Measurement(HELD, 1, (event.stream, event.sink))
            case StreamResumed():
                yield from self._released(event.stream, stream)
            case StreamEnded():
                yield from self._released(event.stream, stream)
                yield Measurement(RUNNING, 0, (event.stream,))

    @staticmethod
    def _released(name: str, stream: _Stream) -> Iterator[Measurement]:
        held, stream.held = stream.held, ""
        if held:
            yield Measurement(HELD, 0, (name, held))

    @staticmethod
    def _epochs(name: str, stream: _Stream) -> Iterator[Measurement]:
        yield Measurement(IN_DOUBT, len(stream.in_doubt), (name,))
        for sink in stream.sinks:
            waiting = sum(1 for sinks in stream.pending.values() if sink in sinks)
            yield Measurement(PENDING, waiting, (name, sink))

    @staticmethod
    def _bytes(name: str, stream: _Stream, sinks: tuple[str, ...]) -> Iterator[Measurement]:
        for sink in sinks:
            size = sum(size for key, size in stream.staged.items() if key[0] == sink)
            yield Measurement(STAGED_BYTES, size, (name, sink))
