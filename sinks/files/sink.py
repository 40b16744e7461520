"""Rolling files: an epoch's files are staged by Spark's own writer and published by rename.

Stage writes below ``_epochal/``, which readers ignore (`stage`), and records each file's length; commit renames
(`commit`). With a rolling policy an epoch writes pieces of parts that stay open. Which parts close is decided while
the epoch is staged (`rolling`) and recorded with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from epochal.sinks.files import manifest, past
from epochal.sinks.files.audit.auditor import Auditor
from epochal.sinks.files.columns import TargetColumns
from epochal.sinks.files.commit import Publisher, check_lengths, check_predecessor
from epochal.sinks.files.formats import joining
from epochal.sinks.files.handle import Rename, StagedEpoch
from epochal.sinks.files.layout import DATA, Layout, part_name
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.files.opened import Opened
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies import completion, rolling
from epochal.sinks.files.policies.completion import Complete, Marks
from epochal.sinks.files.policies.rolling import Piece, RollPlan
from epochal.sinks.files.stage import checking, connecting, delta_tables
from epochal.sinks.files.stage.announcing import Announcer
from epochal.sinks.files.stage.closing import Closer
from epochal.sinks.files.stage.writing import Stager
from epochal.sinks.files.untouched import versions_of
from epochal.sinks.storage.hadoop import session_for
from epochal.sinks.storage.register import Register
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.targets import check_writable, resolve_target
from epochal.txn.audit import Scope, StoreReport
from epochal.txn.errors import Refused
from epochal.txn.model import (
    NO_EPOCH,
    Attempt,
    Batch,
    Claim,
    Handle,
    Json,
    Memory,
    OpenRows,
    Outcome,
    RollRequest,
    Staged,
)
from epochal.txn.past import SinkAt
from epochal.txn.state.typed import Edit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("epochal")

HANDLE_VERSION = 3


@dataclass(frozen=True, slots=True)
class Looked:
    """The open pieces that an epoch or a roll has looked at, and what becomes of them and of its own."""

    at: Sequence[Piece] = ()
    plan: RollPlan = field(default_factory=lambda: RollPlan((), ()))
    fresh: frozenset[Piece] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)  # of its own, by their staged names


class RollingFileSink(FileOptions):
    """Files of any format that Spark writes, in buckets, each epoch all or nothing.

    >>> RollingFileSink("archive/orders", format="json", bucket_by=["day"], compression="gzip")
    RollingFileSink('archive/orders', format='json', name='files')

    The rows in the files keep the bucket columns, unless `drop_bucket_columns` is set (Hive's way; always so for text,
    which has one column). With `rolling` a bucket's part stays open over epochs and appears when a limit is reached.
    With `digest` ``epochal audit`` can prove not only how many rows there are but which.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._spreads = self.rolling is not None  # a file may hold rows of several epochs
        self._bound: tuple[SinkFiles, Layout] | None = None
        self._checked_open = False
        self._fits = ""  # the start whose columns need no further look; a cache
        self._warned_of_watermark = False
        self._index = Opened()  # a cache: the last state, indexed

    @property
    def rolls(self) -> RollingFileSink:
        return self

    @property
    def opens(self) -> bool:
        return self.rolling is not None or isinstance(self.marker, Complete)

    @property
    def audits(self) -> RollingFileSink:
        return self

    @property
    def past(self) -> RollingFileSink:
        return self

    @property
    def connect(self) -> RollingFileSink:
        return self

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        description = {**super().describe(rows), "target": self._place()[1].target}
        if not self.opens:
            description.pop("compression", None)  # it is for parts that are still to be joined
        if self.has_header:
            description["header"] = True
        if rows is not None:
            description[past.KEY] = past.reading_of(self, rows.schema).to_json()
        return description

    @classmethod
    def from_description(cls, description: Mapping[str, Json]) -> Self:
        sink = super().from_description(description)
        sink._spreads = bool(description.get("keeps_open"))
        return sink

    @classmethod
    def arguments_of(cls, description: Mapping[str, Json]) -> dict[str, Any]:
        header = {"options": {"header": "true"}} if description.get("header") else {}
        return {**super().arguments_of(description), **header}

    def open(self, lineage: str) -> Memory:
        files, layout = self._place()
        if files.names(layout.spark_metadata):
            raise Refused(
                f"sink {self.name!r}: {layout.target} was written by Spark's own file sink; Spark's readers see only "
                "what its log in _spark_metadata lists, so rows added here would not be read. Nothing was written. "
                "Use another folder, or move _spark_metadata away"
            )
        delta_tables.check_no_delta_table(self.name, files, layout)
        return manifest.remember(files, layout, self._register.read(), lineage)

    def check_frame(self, rows: DataFrame) -> list[str]:
        check_writable(self.name, self._place()[1].target, rows.sparkSession)
        return [*checking.faults(rows, self), *self._target_columns(rows).faults(self._register)]

    def connect_faults(self) -> list[str]:
        return connecting.faults(self)

    def check_output_mode(self, mode: str) -> None:
        if mode == "complete":
            log.warning(
                "sink %r keeps the rows of every epoch, and the output mode complete gives all again", self.name
            )

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:
        files, layout = self._place()
        for other in claim.replaces:
            if files.names(layout.open(other)):
                raise Refused(
                    f"sink {self.name!r}: the stream whose place this one takes has parts open in "
                    f"{layout.open(other)}, whose rows would never be published. Publish them first: `epochal roll` "
                    "with that stream's checkpoint"
                )
        # A command that claims it has no frame, and leaves the columns as they are.
        noted = None if rows is None else partial(self._target_columns(rows).noted, claim)
        return self._register.claim(claim, version=version, notes=noted)

    def withdraw(self, claim: Claim) -> None:
        self._register.withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        return self._register.read().holder(lineage)

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        attempt, rows = batch.attempt, batch.rows
        check_predecessor(self.name, *self._place(), attempt)
        self._check_columns(attempt, rows)
        opened = self._opened(batch.state)
        self._check_open(attempt.lineage, opened)
        self._warn_of_watermark(batch)
        written = self._stager.write(attempt, rows)
        facts = EpochFacts(written.rows, batch.offsets, written.digest, written.header)
        clock = _first_clock(batch.earlier)
        buckets = {bucket for bucket, _ in written.files}
        marks = self._marks(opened, buckets, batch.watermark, clock)
        policy = self.rolling
        if policy is None and not opened.pieces:
            renames: list[Rename] = []
            for bucket, entry in written.files:
                target = f"{bucket}{part_name(attempt, len(renames), entry.name)}"
                renames.append((f"{DATA}/{entry.name}", target, entry.length))
            epoch = StagedEpoch(facts, files=tuple(renames), versions=tuple(e.version for _, e in written.files))
            self._stager.sync(attempt, [name for name, _, _ in renames])
            return self._staged(attempt, epoch, opened, batch.edit(), Looked(), marks, clock, opened.headers)
        fresh = self._stager.pieces(rows.sparkSession, attempt, written, clock)
        if policy is None:  # every written file is published by itself, and parts that are still open are closed
            looked_at = opened.candidates(None, clock)
            plan = rolling.roll_plan(looked_at, None, clock)
            plan = RollPlan((*plan.closed, *((piece,) for piece in fresh)), plan.open)
        else:
            looked_at = opened.candidates(policy, clock, fresh=fresh, complete=marks.complete, shape=written.shape)
            pieces = [*looked_at, *fresh]
            plan = rolling.roll_plan(pieces, policy, clock, shape=written.shape, complete=marks.complete)
        versions = {f"{DATA}/{entry.name}": entry.version for _, entry in written.files}
        looked = Looked(looked_at, plan, frozenset(fresh), versions)
        headers = {**opened.headers, **written.part_headers}
        staged = self._roll(attempt, opened, batch.edit(), looked, marks, clock, rows.sparkSession, facts, headers)
        return replace(staged, bytes=sum(entry.length for _, entry in written.files))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        files, layout = self._place()
        body = self._checked_body(handle, layout)
        return Publisher(self.name, files, layout, attempt).publish(StagedEpoch.from_json(body))

    def check_state(self, state: Mapping[str, Json]) -> None:
        self._opened(state)

    def due(self, state: Mapping[str, Json]) -> float | None:
        opened = self._index.follow(state)
        earliest = rolling.NEVER if self.rolling is None else opened.due(self.rolling)
        if isinstance(self.marker, Complete):
            earliest = min(earliest, self.marker.due(opened.first_end()))
        return None if earliest == rolling.NEVER else earliest

    def roll(self, request: RollRequest) -> Staged | None:
        clock = time.time()
        opened = self._opened(request.state)
        marks = self._marks(opened, (), None, clock) if self._awaits("clock") else Marks()
        policy = None if request.every else self.rolling
        looked_at = opened.candidates(policy, clock, complete=marks.complete)
        plan = rolling.roll_plan(looked_at, policy, clock, complete=marks.complete)
        if not plan.closed and not marks.complete:
            return None
        needs_spark = any(joining.format_of(shape) not in joining.BY_BYTES for shape in opened.shapes())
        session = session_for(self._place()[1].target) if needs_spark else None
        looked = Looked(looked_at, plan)
        edit, headers = request.edit(), opened.headers
        return self._roll(request.attempt, opened, edit, looked, marks, clock, session, EpochFacts(), headers)

    def open_rows(self, state: Mapping[str, Json]) -> list[OpenRows]:
        return [
            OpenRows(
                group=part[0].bucket.rstrip("/"),
                bytes=sum(piece.bytes for piece in part),
                rows=rolling.rows_of(part),
                chunks=len(part),
                first=min(piece.at for piece in part),
                last=max(piece.at for piece in part),
            )
            for part in self._index.follow(state).parts()
        ]

    def open_size(self, state: Mapping[str, Json]) -> tuple[int, int]:
        return self._index.follow(state).size()

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        files, layout = self._place()
        files.delete(layout.attempt(attempt))

    def audit(self, scope: Scope) -> StoreReport:
        files, layout = self._place()
        return Auditor(files, layout, spreads=self._spreads, has_header=self.has_header).audit(scope)

    def pin(self, at: SinkAt) -> dict[str, Json]:
        return past.Past(*self._place(), at).pin()

    def read_at(self, spark: SparkSession, at: SinkAt, pin: Mapping[str, Json]) -> DataFrame:  # noqa: ARG002  # the epoch says it all
        return past.Past(*self._place(), at).read(spark)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:  # noqa: ARG002  # it has a folder
        files, layout = self._place()
        found = (Attempt.from_key(lineage, name) for name in files.names(layout.staged(lineage)))
        return [attempt for attempt in found if attempt is not None]

    def _roll(
        self,
        attempt: Attempt,
        opened: Opened,
        edit: Edit,
        looked: Looked,
        marks: Marks,
        clock: float,
        spark: SparkSession | None,
        facts: EpochFacts,
        headers: Mapping[str, bytes],
    ) -> Staged:
        """Close the parts that the plan closes, and record those that stay open."""
        files, layout = self._place()
        stager = self._stager
        closer = Closer(
            self.name,
            files,
            layout,
            attempt,
            stager.writer,
            headers,
            stager.schemas,
            opened,
        )
        if self.rolling is not None:
            closer.merge_below = self.rolling.merge_limit
        closed = closer.close(looked.plan, looked.fresh, spark)
        opening = [f"{DATA}/{piece.name}" for piece in looked.plan.open if piece in looked.fresh]
        stager.sync(attempt, [*closed.staged, *opening])  # all at once: of thousands of files it is the longest step
        epoch = StagedEpoch(
            facts,
            files=closed.renames,
            joins=closed.joins,
            has_open_pieces=bool(opening),
            obsolete=closed.obsolete,
            versions=versions_of(files, layout, attempt, closed.renames, looked.versions),
        )
        return self._staged(attempt, epoch, opened, edit, looked, marks, clock, headers)

    def _staged(
        self,
        attempt: Attempt,
        epoch: StagedEpoch,
        opened: Opened,
        edit: Edit,
        looked: Looked,
        marks: Marks,
        clock: float,
        headers: Mapping[str, bytes],
    ) -> Staged:
        files, layout = self._place()
        check_lengths(self.name, files, epoch)
        whole = Announcer(files, layout, attempt, self.marker).announce(epoch, marks)
        body: dict[str, Json] = {"target": layout.target, **whole.to_json(), "clock": clock}
        opened.change(
            edit,
            layout.target,
            looked_at=looked.at,
            left=looked.plan.open,
            headers=headers,
            awaited=marks.awaited,
            over=marks.complete if attempt.roll or isinstance(self.marker, Complete) else tuple(opened.awaited),
        )
        return Staged(
            Handle(HANDLE_VERSION, body),
            epoch.facts.rows,
            changes=edit.changes,
            digest=epoch.facts.digest,
            bytes=sum(length for _, _, length in epoch.files) + sum(join.length for join in epoch.joins),
        )

    def _opened(self, state: Mapping[str, Json]) -> Opened:
        """The open parts, which must be in this sink's target."""
        opened, target = self._index.follow(state), self._place()[1].target
        if opened.target not in (None, target):
            raise Refused(
                f"sink {self.name!r}: parts are open in {opened.target}, this sink writes to {target}. Nothing was "
                "written. Publish them first: `epochal roll CHECKPOINT`"
            )
        return opened

    def _awaits(self, what: str) -> bool:
        return isinstance(self.marker, Complete) and self.marker.by == what

    def _marks(self, opened: Opened, touched: Iterable[str], watermark: float | None, clock: float) -> Marks:
        """Which buckets await their marker from now on and which get it now, those of this epoch's rows included."""
        if not isinstance(self.marker, Complete):
            return Marks()
        ends = {bucket: completion.ends_at(bucket, self.buckets) for bucket in touched}
        now = clock if self.marker.by == "clock" else watermark
        ended = {} if now is None else opened.awaited_until(now - self.marker.seconds)
        awaited = {**ended, **{bucket: end for bucket, end in ends.items() if end is not None}}
        return self.marker.divide(awaited, watermark=watermark, clock=clock)

    def _warn_of_watermark(self, batch: Batch[DataFrame]) -> None:
        """Warn once per start if the query has no watermark; before its first rows no query has one."""
        lacks = self._awaits("watermark") and batch.watermark is None and batch.attempt.epoch > 0
        if lacks and not self._warned_of_watermark:
            log.warning("sink %r marks buckets by the watermark, and the query has none: use withWatermark", self.name)
            self._warned_of_watermark = True

    def _check_open(self, lineage: str, opened: Opened) -> None:
        """Once per start: refuse pieces that the journal does not know, whose rows would never be published."""
        files, layout = self._place()
        if not self._checked_open and not opened.pieces and files.names(layout.open(lineage)):
            raise Refused(
                f"sink {self.name!r}: {layout.open(lineage)} holds rows of parts that the journal does not know: it "
                "was lost or replaced. Nothing was written. Restore the journal from a copy; or publish those files "
                "yourself, then remove that folder"
            )
        self._checked_open = True

    def _check_columns(self, attempt: Attempt, rows: DataFrame) -> None:
        """Refuse columns that no longer fit, until an epoch of this start is published: no older attempt wins then."""
        if self._fits == attempt.start:
            return
        if attempt.after is not None and attempt.after > NO_EPOCH:
            before = manifest.read(*self._place(), attempt.lineage, attempt.after)
            if before.start == attempt.start and before.generation == attempt.generation:
                self._fits = attempt.start
                return
        self._target_columns(rows).check_own(attempt, self._register)

    def _place(self) -> tuple[SinkFiles, Layout]:
        """The file system and the paths, resolved when first needed: only then is there a session."""
        if self._bound is None:
            files, target = resolve_target(self.path)
            self._bound = files, Layout(target)
        return self._bound

    @cached_property
    def _register(self) -> Register:
        files, layout = self._place()
        return Register(files, layout.lineages)

    def _target_columns(self, rows: DataFrame) -> TargetColumns:
        return TargetColumns(self, *self._place(), rows.schema, _capitals_count(rows))

    @cached_property
    def _stager(self) -> Stager:
        return Stager(self, *self._place())

    def _checked_body(self, handle: Handle, layout: Layout) -> dict[str, Json]:
        body = handle.checked_body(HANDLE_VERSION)
        if body.get("target") != layout.target:
            raise Refused(
                f"sink {self.name!r}: a decided epoch was staged in {body.get('target')}, this sink writes to "
                f"{layout.target}. Run `epochal recover CHECKPOINT` before the path is changed"
            )
        return body


def _capitals_count(rows: DataFrame) -> bool:
    """Whether the session takes `a` and `A` for two columns."""
    return str(rows.sparkSession.conf.get("spark.sql.caseSensitive")).strip().lower() == "true"


def _first_clock(earlier: Sequence[Handle]) -> float:
    """The time at which the epoch was first staged: a replay uses it too, so that it closes the same parts."""
    clocks = [handle.body.get("clock") for handle in earlier]
    return min((clock for clock in clocks if isinstance(clock, float)), default=time.time())
