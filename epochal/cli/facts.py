"""Everything `epochal status` tells, gathered in one pass. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from epochal.cli.streams import Stream
from epochal.txn.checkpoint import sample_of_offsets
from epochal.txn.errors import EpochalError, Refused
from epochal.txn.files import TEMPORARY
from epochal.txn.guard import Choices, Evidence, check_start
from epochal.txn.model import NO_EPOCH, Memory, OpenRows
from epochal.txn.offsets import why_not_provable
from epochal.txn.plan import held
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.recovery import Leftover, Place, Sinks, leftovers, open_rows
from epochal.txn.view import View


@dataclass(frozen=True, slots=True)
class Held:
    """An epoch that is decided and not done. `generation` is None until the decision is recorded."""

    epoch: int
    generation: int | None
    sinks: dict[str, str]  # sink -> visible, waiting or unknown


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """One sink, as the newest generation that has it describes it."""

    place: Place
    current: bool  # the newest generation writes to it
    last: int | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Where a stream stands."""

    stream: Stream
    view: View
    latest: GenerationStarted
    committed: int
    in_doubt: list[Prepared]
    held: list[Held]
    sinks: list[SinkFacts]
    leftovers: list[Leftover]
    open: list[tuple[str, OpenRows]]
    records: int
    size: int
    temporary: int
    refusal: str  # what a start would say now, or nothing
    unprovable: dict[int, str]  # epochs that a restored checkpoint could bring back with other rows unseen, and why

    @property
    def settled(self) -> bool:
        return not self.held


@dataclass
class _Stores:
    """What the stores answered, and which of them did not."""

    memories: dict[Place, Memory] = field(default_factory=dict)
    errors: dict[Place, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


def gather(stream: Stream) -> Facts:
    """Ask the journal, the stores and the checkpoint, in the order that the guard needs."""
    before = stream.journal.read()
    sinks = stream.sinks()
    stores = _ask(sinks, stream.lineage)
    committed = stream.checkpoint.committed()
    view = stream.journal.read()
    assert view.latest is not None  # open_stream has seen it
    left: list[Leftover] = []
    for place in stores.memories:
        try:
            left.extend(leftovers(view, sinks, place, stream.lineage, newest=view.generation))
        except (EpochalError, OSError) as fault:
            stores.errors[place] = str(fault)
    entries = [e for e in stream.files.list(stream.journal.path) if not e.is_folder]
    temporary = sum(1 for e in entries if e.name.startswith(TEMPORARY))
    return Facts(
        stream=stream,
        view=view,
        latest=view.latest,
        committed=committed,
        in_doubt=list(in_doubt(view, committed)),
        held=[_held(view, sinks, stores, epoch) for epoch in held(view, committed)],
        sinks=[_sink(place, sinks, stores) for place in sinks.places()],
        leftovers=left,
        open=_open(view, sinks),
        records=len(entries) - temporary,
        size=sum(e.length for e in entries),
        temporary=temporary,
        refusal=_refusal(stream, sinks, stores, before, committed, view),
        unprovable=_unprovable(stream, view),
    )


def _open(view: View, sinks: Sinks) -> list[tuple[str, OpenRows]]:
    try:
        return open_rows(view, sinks)
    except OSError:
        return []  # a store is away, which its own line says


def _ask(sinks: Sinks, lineage: str) -> _Stores:
    stores = _Stores()
    for place in sinks.places():
        try:
            stores.memories[place] = sinks.at(place).open(lineage)
        except Refused as fault:
            stores.refused.append(str(fault))
            stores.errors[place] = str(fault)
        except Exception as fault:  # noqa: BLE001  # whatever a store's driver raises: it is away, the rest is still told
            stores.errors[place] = str(fault) or type(fault).__name__
    return stores


def in_doubt(view: View, committed: int) -> Iterator[Prepared]:
    """Attempts that are prepared and wait for Spark's word. A sealed attempt waits for nothing."""
    for epoch in view.waiting():
        if epoch > committed and epoch not in view.decided:
            yield from (record for _, record in sorted(view.prepared(epoch).items()))


def _held(view: View, sinks: Sinks, stores: _Stores, epoch: int) -> Held:
    winner = view.winner(epoch)
    attempts = [winner] if winner else list(view.prepared(epoch).values())
    states: dict[str, str] = {}
    for attempt in attempts:
        for sink in attempt.sinks:
            answers = [stores.memories[p] for p in sinks.of(attempt.generation, sink) if p in stores.memories]
            shown = any(memory.last >= epoch for memory in answers)
            states[sink] = "visible" if shown else "waiting" if answers else "unknown"
    return Held(epoch, winner.generation if winner else None, states)


def _sink(place: Place, sinks: Sinks, stores: _Stores) -> SinkFacts:
    memory = stores.memories.get(place)
    last = memory.last if memory is not None and memory.last > NO_EPOCH else None
    return SinkFacts(place, place in sinks.current().values(), last, stores.errors.get(place, ""))


def _unprovable(stream: Stream, view: View) -> dict[int, str]:
    won = {epoch: record.offsets for epoch in sorted(view.decided) if (record := view.winner(epoch)) is not None}
    sample = sample_of_offsets(stream.checkpoint) if won else None
    return {epoch: why for epoch, recorded in won.items() if (why := why_not_provable(recorded, sample)) is not None}


def _refusal(stream: Stream, sinks: Sinks, stores: _Stores, before: View, committed: int, after: View) -> str:
    """What a start with the newest generation's sinks, and without adopt= or new=, would refuse."""
    memories = {p.sink: stores.memories[p] for p in sinks.current().values() if p in stores.memories}
    evidence = Evidence(
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
        check_start(evidence, Choices())
    except Refused as fault:
        return str(fault)
    return stores.refused[0] if stores.refused else ""
