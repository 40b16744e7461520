"""A table through delta-rs: no JVM, a commit in milliseconds.

Used for tables on local disks and object stores that `why_not_native` allows. A commit is one new file in the log,
written by create-if-absent; of two commits with the same transaction id, one is refused.

On an object store an answer may be lost: then a commit fails as if another writer had come first. The table's
transaction id says whether it landed, so whoever is told of a conflict reads the table again. Errors of the store are
never quoted, because they may hold a signature.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from epochal.sinks.delta.handle import NewFile
from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.delta.table.log import newest_commits
from epochal.sinks.delta.table.places import storage_options
from epochal.sinks.storage.objects import ObjectFiles
from epochal.sinks.storage.objects.faults import reason
from epochal.txn.errors import Refused
from epochal.txn.files import Files, LocalFiles, join

log = logging.getLogger("epochal")

CHECKPOINT_INTERVAL = 10  # Delta's own default; that of delta-rs is 100
RETRIES = 15
CHECKPOINT_TRIES = 5  # on an object store
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=-]+")


# How delta-rs spells a fault of the store, in small letters.
STORE_SIGNS = (
    "generic s3 error",
    "error performing",
    "error sending request",
    "status code",
    "timed out",
    "lacked the necessary privileges",
    "credential",
)


class StoreFault(OSError):
    """The store did not answer, or refused. What was asked of it may have been carried out."""


class CommitConflict(Exception):
    """Another commit came first and conflicts with this one: read the table again."""


class NativeTable:
    """One table on a local disk or an object store."""

    def __init__(self, path: str, files: Files | None = None) -> None:
        self._path, self._files = path, files or LocalFiles()
        options = storage_options(path)
        self._options = None if options is None else dict(options)
        self._table: DeltaTable | None = None

    def state(self) -> TableState | None:
        """The table as it is now; None if there is none. Unreadable if delta-rs cannot read it."""
        try:
            with self._without_quotes():
                table = self._refresh()
        except TableNotFoundError:
            return None
        except StoreFault:
            raise
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
        with self._without_quotes():
            return self._table.transaction_version(lineage)

    def commits(self, limit: int | None = None) -> Iterator[tuple[int, str | None]]:
        """(version, userMetadata), the newest first, as of the state that was read."""
        assert self._table is not None
        if self._options is not None:
            # delta-rs would keep Python's lock while it reads entry by entry: nothing else of the process would run.
            yield from newest_commits(self._files, join(self._path, "_delta_log"), self._table.version(), limit)
            return
        for entry in self._table.history(limit):
            yield int(entry["version"]), entry.get("userMetadata")

    def live(self) -> list[tuple[str, int]]:
        """(path, bytes) of every file that readers see, as of the state that was read."""
        assert self._table is not None
        found = self._adds(self._table)
        return list(zip(found.column("path").to_pylist(), found.column("size_bytes").to_pylist(), strict=True))

    def create(self, schema: Mapping[str, Any], partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Create the table, empty. No error if another driver was first."""
        self._prove()
        try:
            with self._without_quotes():
                DeltaTable.create(
                    self._path,
                    Schema.from_json(json.dumps(schema)),
                    mode="error",
                    partition_by=list(partition_by),
                    configuration=dict(properties),
                    storage_options=self._options,
                )
        except (DeltaError, StoreFault):
            with self._without_quotes():
                if not DeltaTable.is_deltatable(self._path, self._options):
                    raise

    def commit(self, files: Sequence[NewFile], *, replace: bool, lineage: str, epoch: int, note: str) -> range:
        """Add one log entry to the state that was read; the versions since. CommitConflict if it has changed."""
        table = self._table
        assert table is not None
        self._prove()
        before = table.version()
        now = time.time_ns() // 1_000_000
        removes = self._removes(table, now) if replace else []
        adds = [AddAction(f.name, f.size, f.partition, now, True, f.stats) for f in files]
        try:
            with self._without_quotes():
                table.create_write_transaction(
                    [*adds, *removes],
                    "append",
                    table.schema(),
                    list(table.metadata().partition_columns),
                    commit_properties=CommitProperties(
                        custom_metadata={"userMetadata": note, "isBlindAppend": not replace},
                        app_transactions=[Transaction(lineage, epoch)],
                        # The files to replace were listed from the state that was read: commit to no other.
                        max_commit_retries=0 if replace else RETRIES,
                    ),
                    post_commithook_properties=PostCommitHookProperties(
                        create_checkpoint=False,
                        # On a store it would list the whole log after each commit; `_checkpoint` does it.
                        cleanup_expired_logs=None if self._options is None else False,
                    ),
                )
        except CommitFailedError as fault:
            if self._options is not None:
                raise CommitConflict("another commit came first, or the store's answer was lost") from None
            raise CommitConflict(str(fault)) from fault
        with self._without_quotes():
            table.update_incremental()
        self._checkpoint(table, before)
        return range(before + 1, table.version() + 1)

    def can_replace(self) -> bool:
        """Whether every file can be removed by name: delta-rs encodes some names differently from the log."""
        assert self._table is not None
        paths = self._adds(self._table).column("path").to_pylist()
        return all(PLAIN_PATH.fullmatch(path) for path in paths)

    def _refresh(self) -> DeltaTable:
        """The table at its latest version; read from scratch if it was replaced by another of the same name."""
        table = self._table
        if table is not None and self._has(table.version()):
            table.update_incremental()
        else:
            self._table = table = DeltaTable(self._path, storage_options=self._options)
        return table

    def _prove(self) -> None:
        """Refuse an object store that does not keep the condition under which a log entry is created."""
        if isinstance(self._files, ObjectFiles):
            self._files.prove()

    def _has(self, version: int) -> bool:
        """Whether the log still has the entry of a version."""
        return self._files.length(_entry(self._path, version)) is not None

    @contextmanager
    def _without_quotes(self) -> Iterator[None]:
        """A fault of the store is raised as `StoreFault`, in words of ours: its own may hold a signature."""
        try:
            yield
        except (CommitFailedError, TableNotFoundError):
            raise
        except (DeltaError, OSError, ValueError) as fault:
            if self._options is None or not _is_of_store(fault):
                raise
            raise StoreFault(f"{self._path}: {_in_our_words(str(fault))}") from None

    def _adds(self, table: DeltaTable) -> Any:
        """The files that readers see, as a table of Arrow's."""
        with self._without_quotes():
            return table.get_add_actions(flatten=False)

    def _removes(self, table: DeltaTable, now: int) -> list[RemoveAction]:
        found = self._adds(table)
        rows = zip(*(found.column(name).to_pylist() for name in ("path", "size_bytes")), strict=True)
        partition = (
            found.column("partition").to_pylist() if "partition" in found.schema.names else [None] * found.num_rows
        )
        return [
            RemoveAction(path, True, now, size, _texts(values))
            for (path, size), values in zip(rows, partition, strict=True)
        ]

    def _checkpoint(self, table: DeltaTable, before: int) -> None:
        """Write a checkpoint of the log at Delta's own interval: without, reading it takes longer with each epoch."""
        given = table.metadata().configuration.get("delta.checkpointInterval")
        interval = int(given) if given else CHECKPOINT_INTERVAL
        if table.version() // interval == before // interval:
            return
        # The table in memory starts at the log entry it was read at, and each commit reads all entries since: a hundred
        # cost 15 ms. Read from scratch, it starts at the checkpoint.
        self._table = None
        tries = 1 if self._options is None else CHECKPOINT_TRIES
        for number in range(1, tries + 1):
            try:
                table.create_checkpoint()
                if self._options is not None and cleans_up(table.metadata().configuration):
                    table.cleanup_metadata()
            except (DeltaError, OSError) as fault:
                # The epoch is committed. A log without this checkpoint is only slower to read.
                error = str(fault) if self._options is None else _in_our_words(str(fault))
                if number == tries:
                    log.warning("log checkpoint not written", extra={"table": self._path, "error": error})
            else:
                return


def cleans_up(properties: Mapping[str, Any]) -> bool:
    """Whether entries of the log that are older than the table wants are removed."""
    return str(properties.get("delta.enableExpiredLogCleanup", "true")).lower() != "false"


class Unreadable(Refused):
    """delta-rs cannot read this table; Delta's own code may."""


def _is_of_store(fault: Exception) -> bool:
    """Whether it is a fault of the object store, not of the table in it."""
    return isinstance(fault, OSError) or any(sign in str(fault).lower() for sign in STORE_SIGNS)


def _in_our_words(text: str) -> str:
    """What can be said of a store's fault without quoting it.

    >>> _in_our_words("Generic S3 error ... 409 Conflict <Error>key=SECRET</Error>")
    'the store answered 409'
    """
    answer = re.search(r"\b([45]\d\d) [A-Z]", text)
    return f"the store answered {answer[1]}" if answer and "status code" not in text else reason(text)


def _entry(path: str, version: int) -> str:
    return join(path, "_delta_log", f"{version:020d}.json")


def _texts(values: Mapping[str, Any] | None) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in (values or {}).items()}
