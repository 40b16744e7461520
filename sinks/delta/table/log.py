"""A table's log as an audit reads it: entry by entry, from the JSON files themselves.

Spark and delta-rs show only the state that the log adds up to. An audit needs the entries themselves: no epoch may be
in the log twice, and each file belongs to the entry that added it. Old entries may have been cleaned up; the version of
the first entry shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from epochal.sinks.delta.table.commit_notes import CommittedEpoch, committed_epochs
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import Files, join

RESTORE = "RESTORE"
AT_ONCE = 16  # entries that are read from an object store side by side
_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(slots=True)
class LogEntry:
    """One version of a table. Files are identified by the last part of their path, which is unique."""

    version: int
    operation: str = ""
    restored: int | None = None  # the version that RESTORE has brought back
    epoch: CommittedEpoch | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    changes: bool = False  # whether it changes what readers see
    schema: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        return f"version {self.version}" + (f" ({self.operation})" if self.operation else "")


def read(files: Files, folder: str) -> list[LogEntry]:
    """The entries that have not been cleaned up, in order."""
    names = [name for name in files.names(folder) if _ENTRY.fullmatch(name)]
    return [_entry(int(name[:20]), join(folder, name), files.read(join(folder, name))) for name in sorted(names)]


def newest_commits(files: Files, folder: str, last: int, limit: int | None = None) -> Iterator[tuple[int, str | None]]:
    """(version, userMetadata) of the entries up to a version, the newest first. A few are read at a time."""
    names = [name for name in files.names(folder) if _ENTRY.fullmatch(name) and int(name[:20]) <= last]
    names = sorted(names, reverse=True)[:limit]
    with ThreadPoolExecutor(AT_ONCE, "epochal-log") as pool:
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            for name, data in zip(some, pool.map(lambda name: files.read(join(folder, name)), some), strict=True):
                yield int(name[:20]), _user_metadata(join(folder, name), data)


def _user_metadata(path: str, data: bytes) -> str | None:
    try:
        for line in filter(None, data.split(b"\n")):
            if (info := json.loads(line).get("commitInfo")) is not None:
                found = info.get("userMetadata")
                return None if found is None else str(found)
    except (ValueError, AttributeError):
        raise JournalCorrupt(f"{path}: an entry of the table's log that cannot be read") from None
    return None


def last_part(path: str) -> str:
    """The last part of a path, which identifies a file of a table.

    >>> last_part("day=a%20b/part-00000-5a.snappy.parquet")
    'part-00000-5a.snappy.parquet'
    """
    return unquote(path).rpartition("/")[2]


def _entry(version: int, path: str, data: bytes) -> LogEntry:
    entry = LogEntry(version)
    try:
        for line in filter(None, data.split(b"\n")):  # splitlines() would also split at characters inside JSON
            for action, body in json.loads(line).items():
                _take(entry, action, body)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise JournalCorrupt(f"{path}: an entry of the table's log that cannot be read") from None
    return entry


def _take(entry: LogEntry, action: str, body: Mapping[str, Any]) -> None:
    match action:
        case "commitInfo":
            entry.operation = str(body.get("operation") or "")
            if entry.operation == RESTORE:
                version = (body.get("operationParameters") or {}).get("version")
                entry.restored = None if version is None else int(version)
            entry.epoch = next(committed_epochs([(entry.version, body.get("userMetadata"))]), None)
        case "txn":
            entry.transactions[str(body["appId"])] = int(body["version"])
        case "metaData":
            entry.schema = json.loads(body["schemaString"])
        case "add":
            entry.added.add(last_part(body["path"]))
            entry.changes |= bool(body.get("dataChange", True))
        case "remove":
            entry.removed.add(last_part(body["path"]))
            entry.changes |= bool(body.get("dataChange", True))
