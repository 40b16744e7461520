"""Everything that `epochal status` shows, read in one pass. Reads only."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from epochal.cli.state import Restorable
from epochal.cli.state import read as read_spark_state
from epochal.cli.streams import Stream
from epochal.cli.verdict import Facts, Verdict, judge
from epochal.spark_plugins.recovery.reading import has_state
from epochal.spark_plugins.standby.notices import Notice, read_notices
from epochal.txn.checkpoint import sample_of_offsets
from epochal.txn.choices import Choices
from epochal.txn.driver_facts import Retirement
from epochal.txn.errors import EpochalError, Refused, SinkUnavailable
from epochal.txn.files import TEMPORARY
from epochal.txn.guard import Observed, check_start
from epochal.txn.live import LiveState, read_live
from epochal.txn.liveness import DriverStatus, driver_status
from epochal.txn.model import NO_EPOCH, Memory, OpenRows
from epochal.txn.offsets import why_not_provable
from epochal.txn.plan import decided_not_done
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.recovery import Leftover, SinkPlace, Sinks, leftovers, open_rows_of
from epochal.txn.rescaling import refuse_unfinished
from epochal.txn.restoration import origin_text
from epochal.txn.retirement import retirement_of
from epochal.txn.state.policy import Extent
from epochal.txn.states import State
from epochal.txn.unpublished import Unpublished
from epochal.txn.view import View

log = logging.getLogger("epochal")


@dataclass(frozen=True, slots=True)
class HeldEpoch:
    """An epoch that is decided and not done. `generation` is None until the decision is recorded."""

    epoch: int
    generation: int | None
    sinks: dict[str, str]  # sink -> visible, waiting or unknown


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """One sink, as described by the newest generation that has it."""

    place: SinkPlace
    current: bool  # the newest generation writes to it
    last: int | None = None
    error: str = ""
    available: bool = True  # False: this process cannot ask it, whatever the store says


@dataclass(frozen=True)
class StateStatus:
    """What sinks keep over epochs, and what a start would take to restore it."""

    extent: Extent
    predicted: float  # seconds that a recovery would take now
    restored: float | None  # seconds that this process took; None if all of it was in records


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """The status of a stream and its sinks."""

    stream: Stream
    view: View
    latest: GenerationStarted
    committed: int
    in_doubt: list[Prepared]
    held: list[HeldEpoch]
    sinks: list[SinkStatus]
    leftovers: list[Leftover]
    open: list[tuple[str, OpenRows]]
    uncounted: tuple[str, ...]  # sinks that may have more open parts, which could not be looked up here
    records: int
    size: int
    temporary: int
    refusal: str  # why a start would be refused now; empty if it would not
    unprovable: dict[int, str]  # epoch -> why a restored checkpoint could bring it back with other rows
    driver: DriverStatus
    under_way: int | None  # the epoch that Spark has begun and nobody has prepared
    now: float
    notes: tuple[str, ...]  # what was ignored
    state: StateStatus | None = None  # None if the sinks keep nothing over epochs
    standbys: tuple[Notice, ...] = ()  # who waits to take over
    spark_state: Restorable | None = None  # None if the query keeps no state, or if it could not be read

    @property
    def settled(self) -> bool:
        return not self.held

    @property
    def retired(self) -> Retirement | None:
        return retirement_of(self.latest)

    @property
    def unpublished(self) -> Unpublished | None:
        """Committed rows that nobody can read yet."""
        return Unpublished.of(self.open)

    @property
    def staging(self) -> bool:
        """Whether the newest driver has begun to stage the epoch that is under way."""
        live = self.driver.live
        seen = live is not None and live.epoch == self.under_way and live.state is LiveState.STAGING
        return seen or any(
            left.state is State.STAGING
            and (left.attempt.epoch, left.attempt.generation) == (self.under_way, self.latest.generation)
            for left in self.leftovers
        )

    @cached_property
    def verdict(self) -> Verdict:
        """How the stream stands, in a sentence."""
        current = [sink for sink in self.sinks if sink.current and sink.error]
        missing = {sink: None for held in self.held for sink, state in held.sinks.items() if state != "visible"}
        return judge(
            Facts(
                driver=self.driver,
                now=self.now,
                recover=self.stream.command("recover"),
                roll=self.stream.command("roll"),
                unpublished=self.unpublished,
                uncounted=self.uncounted,
                done=self.view.done_through,
                committed=self.committed,
                unsettled=tuple(held.epoch for held in self.held),
                missing_in=tuple(missing),
                in_doubt=tuple(sorted({p.epoch for p in self.in_doubt})),
                under_way=self.under_way,
                staging=self.staging,
                refusal=self.refusal,
                retired=self.retired,
                origin=origin_text(self.latest),
                unreachable={sink.place.sink: sink.error for sink in current if sink.available},
                not_here={sink.place.sink: sink.error for sink in current if not sink.available},
            )
        )


@dataclass
class _Stores:
    """The answers of the stores, and the errors of those that did not answer."""

    memories: dict[SinkPlace, Memory] = field(default_factory=dict)
    errors: dict[SinkPlace, str] = field(default_factory=dict)
    unavailable: set[SinkPlace] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


def read_status(stream: Stream, *, clock: Callable[[], float] = time.time) -> StreamStatus:
    """Read the journal, the stores and the checkpoint, in the order that the guard needs."""
    before = stream.journal.read()
    sinks = stream.sinks()
    stores = _ask(sinks, stream.lineage)
    committed = stream.checkpoint.committed()
    view = stream.journal.read()
    assert view.latest is not None  # open_stream has checked it
    left: list[Leftover] = []
    for place in stores.memories:
        try:
            left.extend(leftovers(view, sinks, place, stream.lineage, newest=view.generation))
        except (EpochalError, OSError) as fault:
            stores.errors[place] = str(fault)
    planned = stream.checkpoint.planned()
    live = read_live(stream.files, stream.journal.path, place=stream.journal.place)
    now = clock()
    spark_state, notes = _spark_state(stream)
    opened, uncounted = _open(view, sinks)
    entries = [e for e in stream.files.list(stream.journal.path) if not e.is_folder]
    temporary = sum(1 for e in entries if e.name.startswith(TEMPORARY))
    return StreamStatus(
        stream=stream,
        view=view,
        latest=view.latest,
        committed=committed,
        in_doubt=list(attempts_in_doubt(view, committed)),
        held=[_held(view, sinks, stores, epoch) for epoch in decided_not_done(view, committed)],
        sinks=[_sink(place, sinks, stores) for place in sinks.places()],
        leftovers=left,
        open=opened,
        uncounted=uncounted,
        records=len(entries) - temporary,
        size=sum(e.length for e in entries),
        temporary=temporary,
        refusal=_refusal(stream, sinks, stores, before, committed, view),
        unprovable=_unprovable(stream, view),
        driver=driver_status(view.latest, live.live, now),
        under_way=planned if planned > committed and not (view.prepared(planned) or view.is_decided(planned)) else None,
        now=now,
        notes=(*live.notes, *notes),
        state=_state(stream),
        standbys=tuple(read_notices(stream.files, stream.journal.path, now)),
        spark_state=spark_state,
    )


def _spark_state(stream: Stream) -> tuple[Restorable | None, tuple[str, ...]]:
    """What Spark's operators keep. Rows to replay are estimated, from one file of each store."""
    checkpoint = stream.checkpoint
    try:
        if not has_state(checkpoint.files, checkpoint.path):
            return None, ()
        found = read_spark_state(checkpoint.files, checkpoint.path, counted_bytes=0)
    except (Refused, OSError) as fault:
        return None, (f"the state of Spark's operators could not be read: {fault}",)
    return found, found.state.notes


def _state(stream: Stream) -> StateStatus | None:
    journal = stream.journal
    extent = journal.extent()
    if not (extent.live or extent.segments):
        return None
    return StateStatus(extent, extent.predicted(journal.measured), journal.recovery)


def _open(view: View, sinks: Sinks) -> tuple[list[tuple[str, OpenRows]], tuple[str, ...]]:
    """The open parts, and the sinks that may have some which could not be looked up here."""
    found: list[tuple[str, OpenRows]] = []
    uncounted = []
    for name in sinks.names():
        try:
            found += [(name, rows) for rows in open_rows_of(view, sinks, name)]
        except Exception as fault:  # noqa: BLE001  # of building the sink: its own line shows it
            log.debug("open parts not read", extra={"sink": name, "error": repr(fault)})
            if view.has_opened(name):
                uncounted.append(name)
    return found, tuple(uncounted)


def _ask(sinks: Sinks, lineage: str) -> _Stores:
    stores = _Stores()
    for place in sinks.places():
        try:
            stores.memories[place] = sinks.at(place).open(lineage)
        except SinkUnavailable as fault:
            stores.unavailable.add(place)
            stores.errors[place] = str(fault)
        except Refused as fault:
            stores.refused.append(str(fault))
            stores.errors[place] = str(fault)
        except Exception as fault:  # noqa: BLE001  # any error of a store's driver: show it, and go on with the other sinks
            stores.errors[place] = str(fault) or type(fault).__name__
    return stores


def attempts_in_doubt(view: View, committed: int) -> Iterator[Prepared]:
    """Prepared attempts that wait for Spark's commits/N. A sealed attempt waits for nothing."""
    for epoch in view.waiting():
        if epoch > committed and epoch not in view.decided:
            yield from (record for _, record in sorted(view.prepared(epoch).items()))


def _held(view: View, sinks: Sinks, stores: _Stores, epoch: int) -> HeldEpoch:
    winner = view.winner(epoch)
    attempts = [winner] if winner else list(view.prepared(epoch).values())
    states: dict[str, str] = {}
    for attempt in attempts:
        for sink in attempt.sinks:
            answers = [stores.memories[p] for p in sinks.of(attempt.generation, sink) if p in stores.memories]
            shown = any(memory.last >= epoch for memory in answers)
            states[sink] = "visible" if shown else "waiting" if answers else "unknown"
    return HeldEpoch(epoch, winner.generation if winner else None, states)


def _sink(place: SinkPlace, sinks: Sinks, stores: _Stores) -> SinkStatus:
    memory = stores.memories.get(place)
    last = memory.last if memory is not None and memory.last > NO_EPOCH else None
    is_current = place in sinks.current().values()
    return SinkStatus(place, is_current, last, stores.errors.get(place, ""), place not in stores.unavailable)


def _unprovable(stream: Stream, view: View) -> dict[int, str]:
    won = {epoch: record.offsets for epoch in sorted(view.decided) if (record := view.winner(epoch)) is not None}
    sample = sample_of_offsets(stream.checkpoint) if won else None
    return {epoch: why for epoch, recorded in won.items() if (why := why_not_provable(recorded, sample)) is not None}


def _refusal(stream: Stream, sinks: Sinks, stores: _Stores, before: View, committed: int, after: View) -> str:
    """Why a start with the newest sinks, without adopt= or new=, would be refused; empty if it would not."""
    memories = {p.sink: stores.memories[p] for p in sinks.current().values() if p in stores.memories}
    observed = Observed(
        lineage=stream.lineage,
        before=before,
        memories=memories,
        committed=committed,
        after=after,
        eager=False,
        journal=stream.journal.place,
        sample=lambda: sample_of_offsets(stream.checkpoint),
    )
    try:
        refuse_unfinished(after, "this query cannot start")
        check_start(observed, Choices())
    except Refused as fault:
        return str(fault)
    return stores.refused[0] if stores.refused else ""
