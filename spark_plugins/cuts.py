"""One cut across stores: every sink of a stream as it was after the same epoch, while the stream goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from epochal.sinks.config.kinds import class_of
from epochal.sinks.storage.journals import resolve_journal
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.cuts import Watermark, watermark
from epochal.txn.errors import CutGone, Refused
from epochal.txn.files import join
from epochal.txn.incarnations import all_journals, incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Json, OpenRows, lineage_of
from epochal.txn.participant import Participant, faults_of
from epochal.txn.past import HasPast, NoPast, SinkAt
from epochal.txn.recovery import check_belongs
from epochal.txn.state.versions import SinkState
from epochal.txn.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 5  # of a cut that is overtaken while it is read


@dataclass(frozen=True, slots=True)
class CutSink:
    """One sink in a cut, and what pins its state there.

    `pin` is by kind: ``{"version": 17}`` of a Delta table; of a file target the number of its ``files``, their
    ``bytes`` and the ``streams`` whose rows they hold. It also has ``others`` if other streams write to the target.
    """

    name: str
    kind: str
    target: str
    pin: Mapping[str, Json]
    open_rows: int | None = 0  # rows of the cut's epochs in parts that are still open; None if they were not counted
    open_parts: int = 0
    notes: tuple[str, ...] = ()  # what the sink lacks of the epochs up to the cut
    at: SinkAt | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """The last epoch that every sink of a stream shows.

    `epoch` is -1 before the first. `at` is when it was done, in UTC. `left_out` names the other sinks of the stream,
    and why they cannot be read at that epoch.
    """

    lineage: str
    epoch: int
    at: str
    sinks: Mapping[str, CutSink] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


class NoSuchSink(KeyError):
    """A KeyError that prints its message as it is."""

    def __str__(self) -> str:
        return str(self.args[0])


class CutFrames(Mapping[str, "DataFrame"]):
    """The rows of each sink at one epoch, by the sink's name."""

    def __init__(self, cut: Cut, frames: Mapping[str, DataFrame]) -> None:
        self.cut = cut
        self._frames = frames

    @property
    def epoch(self) -> int:
        return self.cut.epoch

    @property
    def left_out(self) -> Mapping[str, str]:
        return self.cut.left_out

    def __getitem__(self, name: str) -> DataFrame:
        if name in self.left_out:
            raise NoSuchSink(f"sink {name!r} is not in the cut of epoch {self.epoch}: {self.left_out[name]}")
        if name not in self._frames:
            near = get_close_matches(str(name), self._frames, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            there = ", ".join(map(repr, self._frames)) or "none"
            raise NoSuchSink(f"the stream has no sink {name!r}.{meant} In the cut of epoch {self.epoch}: {there}")
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        left_out = f", without {', '.join(self.left_out)}" if self.left_out else ""
        return f"CutFrames(epoch={self.epoch}: {', '.join(self._frames)}{left_out})"


def cut(checkpoint: str, journal: str | None = None) -> Cut:
    """The last epoch that every sink of a stream shows, and what pins each sink at it::

        cut = epochal.cut("checkpoints/orders")
        cut.epoch                           # 41
        cut.sinks["lake"].pin["version"]    # 57: the version of the Delta table that epoch 41 made

    It needs no Spark for local paths. `journal` is EpochWriter's `journal`, if it has one. Refused if epochal has not
    run on the checkpoint.
    """
    return _cut(checkpoint, journal)


def read_cut(spark: SparkSession, checkpoint: str | Cut, journal: str | None = None) -> CutFrames:
    """Every sink of a stream as it was after the same epoch, while the stream goes on::

        frames = epochal.read_cut(spark, "checkpoints/orders")
        frames.epoch                                              # 41
        frames["lake"].count() == frames["archive"].count()       # the rows of epochs 0 to 41, in both

    Delta tables are read by time travel, file targets by their manifest. Stores without a past, such as Cassandra, are
    in `left_out` with the reason. Given a `Cut`, it reads that one. Raises CutGone if a store has removed what the cut
    needs.
    """
    if isinstance(checkpoint, Cut):
        return _frames(spark, checkpoint)
    for tries_left in reversed(range(TRIES)):
        found = _cut(checkpoint, journal, spark)
        try:
            return _frames(spark, found)
        except CutGone:
            # A compaction may have passed the cut while it was read. It helps to try again if the cut moves on.
            if not tries_left or _cut(checkpoint, journal, spark).epoch == found.epoch:
                raise
    raise AssertionError


def _frames(spark: SparkSession, found: Cut) -> CutFrames:
    frames = {}
    for name, sink in found.sinks.items():
        assert sink.at is not None  # as `_cut` makes them
        frames[name] = _past_of(_built(sink.at), sink.at).read_at(spark, sink.at, sink.pin)
    return CutFrames(found, frames)


def _cut(checkpoint: str, given: str | None, spark: SparkSession | None = None) -> Cut:
    files, path = resolve_checkpoint(checkpoint, spark)
    query = SparkCheckpoint(files, path).query_id()
    journal_files, journal_path = resolve_journal(given, spark) if given else (files, join(path, "epochal"))

    def journal_of(incarnation: int) -> Journal:
        return Journal(journal_files, incarnation_path(journal_path, incarnation))

    journals = list(all_journals(journal_of))
    check_belongs(journals[0][1], query)
    for _, journal in reversed(journals):  # a stream that goes on as a new one has the old cut until its first epoch
        mark = watermark(journal.view)
        if mark is not None:
            return _pinned(mark, journal)
    incarnation, newest = journals[-1]
    latest = newest.view.latest
    names = latest.sinks if latest is not None else {}
    why = "no epoch is done yet"
    return Cut(lineage_of(query, incarnation), NO_EPOCH, "", left_out=dict.fromkeys(names, why))


def _pinned(mark: Watermark, journal: Journal) -> Cut:
    sinks, left_out = {}, dict(mark.absent)
    for name, at in mark.sinks.items():
        try:
            participant = _built(at)
            pin = _past_of(participant, at).pin(at)
        except NoPast as why:
            left_out[name] = str(why)
            continue
        opened = _opened(participant, journal.view, name)
        rows = [one.rows for one in opened]
        sinks[name] = CutSink(
            name,
            at.description.kind,
            at.description.target,
            pin,
            open_rows=None if None in rows else sum(row for row in rows if row is not None),
            open_parts=len(opened),
            notes=(*at.notes, *_notes(pin, is_open=bool(opened))),
            at=at,
        )
    return Cut(mark.lineage, mark.epoch, journal.done_at(mark.epoch), sinks, left_out)


def _built(at: SinkAt) -> Participant[Any]:
    """The sink that a journal describes."""
    kind = at.description.kind
    try:
        found = class_of(kind)
    except ModuleNotFoundError as missing:
        raise NoPast(f"a sink of type {kind!r} cannot be loaded here: {missing}") from None
    if found is None:
        raise NoPast(f"no sink of type {kind!r} is installed here")
    sink = found.from_description(at.description.settings)
    if unfit := faults_of(sink):
        raise Refused(f"sink {at.name!r}: type {kind!r} is not fit for this epochal: {'; '.join(unfit)}")
    return sink


def _past_of(sink: Participant[Any], at: SinkAt) -> HasPast:
    past = sink.past
    if past is None:
        kind = at.description.kind
        raise NoPast(f"a {kind} store shows its newest state only: it cannot be read as it was after an epoch")
    return past


def _opened(participant: Participant[Any], view: View, name: str) -> list[OpenRows]:
    """The rows of done epochs that are still open; those of a roll that is not carried out yet count as open."""
    if participant.rolls is None:
        return []
    if view.pending_rolls():
        state = view.settled_states.states.get(name, SinkState())
    else:
        state = view.sink_state(name, through=view.done_through)
    return participant.rolls.open_rows(state)


def _notes(pin: Mapping[str, Json], *, is_open: bool) -> Iterator[str]:
    if others := pin.get("others"):
        streams = ", ".join(map(str, others)) if isinstance(others, list) else str(others)
        yield (
            f"other streams write to the table too ({streams}): what they had committed before this epoch is in the cut"
            if "version" in pin
            else f"other streams write to the target too ({streams}): their rows are not in the cut"
        )
    if is_open:
        yield "parts that are still open at the epoch are not in the cut, though other sinks show their rows"
