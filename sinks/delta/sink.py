"""Delta: data files are staged by Spark's own writer and named in the table's log when the epoch is decided."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from epochal.sinks.config.options import nearest
from epochal.sinks.delta.handle import StagedEpoch
from epochal.sinks.delta.layout import LOG, Layout
from epochal.sinks.delta.options import DeltaOptions
from epochal.sinks.delta.stage import frames
from epochal.sinks.delta.stage.checking import option_faults
from epochal.sinks.delta.stage.writing import Stager
from epochal.sinks.delta.table import places
from epochal.sinks.delta.table.commit_notes import committed_epochs
from epochal.sinks.delta.table.gate import TableState, creatable, why_not_native
from epochal.sinks.delta.table.jvm import DELETED
from epochal.sinks.delta.table.schema import creation_faults, fit, nullable
from epochal.sinks.storage.register import Register
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.targets import check_writable, resolve_target
from epochal.txn import failpoints
from epochal.txn.audit import Scope, StoreReport
from epochal.txn.errors import BadRows, Refused
from epochal.txn.files import Files, identity_of, is_local
from epochal.txn.model import NO_EPOCH, Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged
from epochal.txn.past import SinkAt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from epochal.sinks.delta.commit import Committer

log = logging.getLogger("epochal")

RECENT = 50


class DeltaSink(DeltaOptions):
    """A Delta table that gets each epoch in one commit.

    >>> DeltaSink("lake/orders", mode="upsert", keys=["order_id"], order_by=["updated_at"])
    DeltaSink('lake/orders', mode='upsert', name='delta')

    ``"append"`` adds the epoch's rows, ``"complete"`` puts them in place of all there are, ``"upsert"`` updates and
    inserts by `keys`. A missing table is created with `partition_by` and `properties`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bound: tuple[SinkFiles, Layout, Committer] | None = None

    @property
    def audits(self) -> DeltaSink:
        return self

    @property
    def past(self) -> DeltaSink:
        return self

    @property
    def connect(self) -> DeltaSink:
        return self

    def describe(self, rows: DataFrame | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "target": self._place()[1].target}

    def open(self, lineage: str) -> Memory:
        from epochal.sinks.delta.commit import HISTORY, last_epoch

        files, layout, committer = self._place()
        register = self._register.read()
        memory = Memory(
            layout.target,
            enrolled=lineage in register.claims,
            others=dict.fromkeys(register.others(lineage), NO_EPOCH),
            adopted_by=register.adopted_by(lineage),
            holder=register.claims.get(lineage) if register.holder(lineage) else None,
            version=register.version,
            identity=identity_of(layout.target),
        )
        if not files.names(layout.log):
            self._check_empty(files, layout)
            return memory
        table, state = committer.table()
        if state is None:
            return memory
        recent: dict[int, str] = {}
        others = dict.fromkeys(memory.others)
        for epoch in committed_epochs(table.commits(HISTORY)):
            if epoch.lineage == lineage and len(recent) < RECENT:
                recent.setdefault(epoch.epoch, epoch.offsets)
            elif epoch.lineage != lineage:
                others.setdefault(epoch.lineage)  # even if its claim was removed
        return replace(
            memory,
            enrolled=memory.enrolled or bool(recent),
            last=last_epoch(table, state, lineage),
            recent=recent,
            others={other: last_epoch(table, state, other) for other in others},
        )

    def claim(self, claim: Claim, *, version: int, rows: DataFrame | None = None) -> bool:  # noqa: ARG002  # its log has the columns
        return self._register.claim(claim, version=version)

    def withdraw(self, claim: Claim) -> None:
        self._register.withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        return self._register.read().holder(lineage)

    def connect_faults(self) -> list[str]:
        faults = []
        if self.mode == "upsert":
            faults.append("mode='upsert': Delta's MERGE runs in Spark's JVM")
        if self.evolve is not None:
            faults.append(f"evolve={self.evolve!r}: columns are added by Delta's own code, in Spark's JVM")
        if places.is_on_store(self.path):
            faults.append(f"{self.path}: tables on object stores have not been tried on Spark Connect")
        elif not is_local(self.path):
            faults.append(f"{self.path}: tables that are not on local disks are committed to in Spark's JVM")
        return faults

    def check_output_mode(self, mode: str) -> None:
        if mode == "complete" and self.mode == "append":
            log.warning(
                "sink %r keeps the rows of every epoch, and the output mode complete gives all again: "
                "mode='complete' would replace them",
                self.name,
            )
        elif mode != "complete" and self.mode == "complete":
            log.warning("sink %r keeps the last epoch's rows only, and the output mode is %s", self.name, mode)

    def check_frame(self, rows: DataFrame) -> list[str]:
        _, layout, committer = self._place()
        check_writable(self.name, layout.target, rows.sparkSession)
        schema = json.loads((rows.drop(*self.drop) if self.drop else rows).schema.json())
        _, state = committer.table(rows.sparkSession)
        faults = option_faults(
            rows, keys=self.keys, order_by=self.order_by, drop=self.drop, delete_when=self.delete_when
        )
        if state is None:
            faults += creation_faults(nullable(schema), self.partition_by)
            why = self._why_not_here() or self._why_not_created_natively(schema)
        else:
            misfits, new = self._misfits(state, schema)
            faults += [fault for fault in misfits if fault not in faults]
            why = self._why_not_native(state, new)
        if why is not None:
            committer.spark_writer(why, rows.sparkSession)  # which refuses a session without Delta's own code
        return faults

    def stage(self, batch: Batch[DataFrame]) -> Staged:
        attempt, rows = batch.attempt, batch.rows
        _, layout, _ = self._place()
        written = rows.drop(*self.drop) if self.drop else rows
        schema = json.loads(written.schema.json())
        state = self._table_for(attempt, rows, schema)
        new = self._check_columns(state, schema)
        why = self._why_not_native(state, new)
        native = why is None
        if why is not None:
            self._place()[2].spark_writer(why, rows.sparkSession)  # refuse now: after the decision it would be too late
        frame = rows
        if self.mode == "upsert":
            frame = frames.last_row_per_key(frame, self.keys, self.order_by, self.delete_when)
        if not native:
            frame = frames.checked(frame, state)
        staged_schema = nullable(schema)
        if self.delete_when:
            deleted = {"name": DELETED, "type": "boolean", "nullable": True, "metadata": {}}
            staged_schema["fields"].append(deleted)
        if self.drop:
            frame = frame.drop(*self.drop)
        stager = Stager(self.name, *self._place()[:2])
        staged = stager.write(attempt, frame, state, native=native, digest=self.digest)
        epoch = StagedEpoch(
            target=layout.target,
            mode=self.mode,
            native=native,
            schema=staged_schema,
            files=tuple(staged.files),
            offsets=batch.offsets,
            add_columns=bool(new),
            keys=tuple(self.keys),
            deletes=self.delete_when is not None,
            settings=frames.settings_of(rows.sparkSession),
        )
        size = sum(file.new.size for file in staged.files)
        digest = staged.digest
        return Staged(epoch.handle(), digest.rows, seen=staged.received, digest=digest.digest, bytes=size)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        files, layout, committer = self._place()
        epoch = StagedEpoch.read(handle)
        if epoch.target != layout.target:
            raise Refused(
                f"sink {self.name!r}: a decided epoch was staged in {epoch.target}, this sink writes to "
                f"{layout.target}. Run `epochal recover CHECKPOINT` before the path is changed"
            )
        outcome = committer.commit(attempt, epoch)
        failpoints.hit("before-cleanup")
        files.delete(layout.attempt(attempt))
        failpoints.hit("after-cleanup")
        return outcome

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:  # noqa: ARG002  # the folder says it all
        # Only the staging folder: files that a log entry could name are no longer in it.
        files, layout, _ = self._place()
        files.delete(layout.attempt(attempt))

    def audit(self, scope: Scope) -> StoreReport:
        from epochal.sinks.delta.audit.auditor import Auditor

        files, layout, committer = self._place()
        return Auditor(files, layout, committer, self.mode).audit(scope)

    def pin(self, at: SinkAt) -> dict[str, Json]:
        from epochal.sinks.delta.past import version_at

        _, layout, committer = self._place()
        version, others = version_at(committer, layout.target, at.lineage, at.epoch)
        return {"version": version, **({"others": list(others)} if others else {})}

    def read_at(self, spark: SparkSession, at: SinkAt, pin: Mapping[str, Json]) -> DataFrame:  # noqa: ARG002  # the pin says it all
        from epochal.sinks.delta.past import read_version

        files, layout, _ = self._place()
        return read_version(spark, files, layout.target, int(str(pin["version"])))

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:  # noqa: ARG002  # it has a folder
        files, layout, _ = self._place()
        found = (Attempt.from_key(lineage, name) for name in files.names(layout.staged(lineage)))
        return [attempt for attempt in found if attempt is not None]

    def _place(self) -> tuple[SinkFiles, Layout, Committer]:
        """The file system, the paths and the committer, made when first needed: only then is there a session."""
        from epochal.sinks.delta.commit import Committer

        if self._bound is None:
            files, target = resolve_target(self.path)
            layout = Layout(target)
            self._bound = files, layout, Committer(self.name, files, layout)
        return self._bound

    @cached_property
    def _register(self) -> Register:
        files, layout, _ = self._place()
        return Register(files, layout.lineages)

    def _check_empty(self, files: Files, layout: Layout) -> None:
        others = [name for name in files.names(layout.target) if not name.startswith(("_", "."))]
        if others:
            raise Refused(
                f"sink {self.name!r}: {layout.target} is not a Delta table, and not empty ({others[0]} is in it). "
                "Nothing was written. Name a table or an empty folder"
            )

    def _table_for(self, attempt: Attempt, rows: DataFrame, schema: Mapping[str, Any]) -> TableState:
        """The table as it is now, which must have the epochs before this one; created if it is missing."""
        _, layout, committer = self._place()
        table, state = committer.table(rows.sparkSession)
        committer.check_predecessor(attempt, table, state)
        if state is not None:
            return state
        wanted = nullable(schema)
        faults = creation_faults(wanted, self.partition_by)
        if faults:
            lines = "".join(f"\n  - {fault}" for fault in faults)
            raise BadRows(
                f"sink {self.name!r}: no table can be created in {layout.target}:{lines}\nNothing was written"
            )
        if (why := self._why_not_here()) is not None:
            committer.spark_writer(why, rows.sparkSession)  # refused before there is a table
        why = self._why_not_created_natively(schema)
        # Delta's own code leaves an empty file that no log entry names.
        maker = table if why is None else committer.spark_writer(why, rows.sparkSession)
        failpoints.hit("before-table")
        maker.create(wanted, self.partition_by, self.table_properties)
        failpoints.hit("after-table")
        _, state = committer.table(rows.sparkSession)
        assert state is not None, f"{layout.target}/{LOG} was created and is missing"
        return state

    def _why_not_native(self, state: TableState, new: Sequence[str]) -> str | None:
        """Why delta-rs cannot commit the epoch; None if it does."""
        if new:
            return f"the epoch adds the column {new[0]}, which only Delta's own code does"
        if why := self._why_not_here():
            return why
        if why := why_not_native(state, self.mode):
            return f"the table needs Delta's own code: {why}"
        _, layout, committer = self._place()
        if self.mode == "complete" and places.is_on_store(layout.target) and not committer.can_replace():
            # Elsewhere Delta's own code does it, if it comes to that when the epoch is committed.
            return "a file of the table has a name that delta-rs cannot remove"
        return None

    def _why_not_created_natively(self, schema: Mapping[str, Any]) -> str | None:
        """Why delta-rs cannot create the missing table; None if it does."""
        if why := self._why_not_there():
            return why
        if not creatable(nullable(schema), self.table_properties):
            return "only Delta's own code creates a table with these properties and types"
        return None

    def _why_not_here(self) -> str | None:
        """Why delta-rs commits nothing of this sink; None if it does."""
        if self.mode == "upsert":
            return "mode='upsert' needs Delta's own code, which merges"
        return self._why_not_there()

    def _why_not_there(self) -> str | None:
        """Why delta-rs cannot work where the table is; None if it can."""
        if not places.by_delta_rs(self._place()[1].target):
            return "the table is where delta-rs does not reach it"
        return None

    def _check_columns(self, state: TableState, schema: Mapping[str, Any]) -> tuple[str, ...]:
        """Refuse a frame that does not fit; else the names of the columns that the epoch adds to the table."""
        faults, new = self._misfits(state, schema)
        if faults:
            lines = "".join(f"\n  - {fault}" for fault in faults)
            raise BadRows(
                f"sink {self.name!r}: the frame does not fit the table {self._place()[1].target}:{lines}\nNothing of "
                "the epoch was written"
            )
        return new

    def _misfits(self, state: TableState, schema: Mapping[str, Any]) -> tuple[list[str], tuple[str, ...]]:
        """What is wrong with a frame's columns, and the columns that the epoch adds to the table."""
        found = fit(state.schema, schema, add_columns=self.evolve is not None)
        faults = list(found.faults)
        names = {field["name"] for field in schema["fields"]}
        listed = ", ".join(field["name"] for field in schema["fields"])
        faults += [
            f"keys: {key!r} is not in the frame, which has {listed}{nearest(key, names)}"
            for key in self.keys
            if key not in names
        ]
        if self.partition_by and tuple(self.partition_by) != state.partition_by:
            faults.append(
                f"partition_by: {', '.join(self.partition_by)}, but the table is partitioned by "
                f"{', '.join(state.partition_by) or 'nothing'}"
            )
        if self.mode != "append" and state.flag("delta.appendOnly"):
            faults.append(f"mode={self.mode!r}: the table is append-only")
        return faults, found.new
