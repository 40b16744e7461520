"""A table through delta-rs: no JVM, a commit in milliseconds.

Used for local tables that the gate lets pass. A commit is one new file in the log, made by
create-if-absent; of two commits with the same transaction id, one is refused.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from epochal.sinks.delta.handle import NewFile
from epochal.sinks.delta.table.gate import TableState
from epochal.txn.errors import Refused

log = logging.getLogger("epochal")

CHECKPOINT_INTERVAL = 10  # Delta's own default; that of delta-rs is 100
RETRIES = 15
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=-]+")


class Outrun(Exception):
    """Another commit came first and the two do not go together: look at the table again."""


class NativeTable:
    """One local table."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._table: DeltaTable | None = None

    def state(self) -> TableState | None:
        """The table as it is now; None if there is none. Refused if delta-rs cannot read it."""
        try:
            table = self._refresh()
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError, NotImplementedError) as fault:
            raise Unreadable(str(fault)) from fault
        protocol, metadata = table.protocol(), table.metadata()
        return TableState(
            version=table.version(),
            reader=protocol.min_reader_version,
            writer=protocol.min_writer_version,
            reader_features=frozenset(protocol.reader_features or ()),
            writer_features=frozenset(protocol.writer_features or ()),
            schema=json.loads(table.schema().to_json()),
            partition_by=tuple(metadata.partition_columns),
            properties={key: str(value) for key, value in metadata.configuration.items()},
        )

    def last(self, lineage: str) -> int | None:
        """The last epoch of a lineage, as of the state that was read."""
        assert self._table is not None
        return self._table.transaction_version(lineage)

    def commits(self, limit: int | None = None) -> Iterator[tuple[int, str | None]]:
        """(version, userMetadata), the newest first, as of the state that was read."""
        assert self._table is not None
        for entry in self._table.history(limit):
            yield int(entry["version"]), entry.get("userMetadata")

    def live(self) -> list[tuple[str, int]]:
        """(path, bytes) of every file that readers see, as of the state that was read."""
        assert self._table is not None
        found = self._table.get_add_actions(flatten=False)
        return list(zip(found.column("path").to_pylist(), found.column("size_bytes").to_pylist(), strict=True))

    def create(self, schema: Mapping[str, Any], partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Make the table, empty. No error if another driver was first."""
        try:
            DeltaTable.create(
                self._path,
                Schema.from_json(json.dumps(schema)),
                mode="error",
                partition_by=list(partition_by),
                configuration=dict(properties),
            )
        except DeltaError:
            if not DeltaTable.is_deltatable(self._path):
                raise

    def commit(self, files: Sequence[NewFile], *, replace: bool, lineage: str, epoch: int, note: str) -> range:
        """One log entry on the state that was read; the versions since. Outrun if that has changed."""
        table = self._table
        assert table is not None
        before = table.version()
        now = time.time_ns() // 1_000_000
        removes = self._removes(table, now) if replace else []
        adds = [AddAction(f.name, f.size, f.partition, now, True, f.stats) for f in files]
        try:
            table.create_write_transaction(
                [*adds, *removes],
                "append",
                table.schema(),
                list(table.metadata().partition_columns),
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": note, "isBlindAppend": not replace},
                    app_transactions=[Transaction(lineage, epoch)],
                    # What is to be replaced was listed on the state that was read: on no other may it be committed.
                    max_commit_retries=0 if replace else RETRIES,
                ),
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
            )
        except CommitFailedError as fault:
            raise Outrun(str(fault)) from fault
        table.update_incremental()
        self._checkpoint(table, before)
        return range(before + 1, table.version() + 1)

    def can_replace(self) -> bool:
        """Whether every file can be removed by name: delta-rs spells some names otherwise than the log does."""
        assert self._table is not None
        paths = self._table.get_add_actions(flatten=False).column("path").to_pylist()
        return all(PLAIN_PATH.fullmatch(path) for path in paths)

    def _refresh(self) -> DeltaTable:
        """The table at its latest version; read anew if it was replaced by another of the same name."""
        table = self._table
        if table is not None and os.path.exists(_entry(self._path, table.version())):
            table.update_incremental()
        else:
            self._table = table = DeltaTable(self._path)
        return table

    def _removes(self, table: DeltaTable, now: int) -> list[RemoveAction]:
        found = table.get_add_actions(flatten=False)
        rows = zip(*(found.column(name).to_pylist() for name in ("path", "size_bytes")), strict=True)
        partition = (
            found.column("partition").to_pylist() if "partition" in found.schema.names else [None] * found.num_rows
        )
        return [
            RemoveAction(path, True, now, size, _texts(values))
            for (path, size), values in zip(rows, partition, strict=True)
        ]

    def _checkpoint(self, table: DeltaTable, before: int) -> None:
        """Fold the log on Delta's own interval, or reading it would take longer with each epoch."""
        given = table.metadata().configuration.get("delta.checkpointInterval")
        interval = int(given) if given else CHECKPOINT_INTERVAL
        if table.version() // interval == before // interval:
            return
        # What is in memory goes on from the log entry it was read at, and each commit looks at all since: a hundred
        # entries cost 15 ms. Read anew it begins at the checkpoint.
        self._table = None
        try:
            table.create_checkpoint()
        except (DeltaError, OSError) as fault:
            # The epoch is in. A log without this checkpoint is slower to read, and otherwise the same.
            log.warning("log checkpoint not written", extra={"table": self._path, "error": str(fault)})


class Unreadable(Refused):
    """delta-rs cannot read this table; Delta's own code may."""


def _entry(path: str, version: int) -> str:
    return os.path.join(path, "_delta_log", f"{version:020d}.json")


def _texts(values: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in (values or {}).items()}
