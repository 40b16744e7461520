"""A table's log as an audit reads it: entry by entry, from the JSON files themselves.

Neither Spark nor delta-rs is asked, because both fold the log: what counts here is that no epoch is in it twice, and
which entry added or removed each file. Entries that were cleaned up are simply not there; the first that is says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from epochal.sinks.delta.table.landed import Landed, landed
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import Files, join

RESTORE = "RESTORE"
_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(slots=True)
class LogEntry:
    """One version of a table. Files are known by the last part of their path, which is unique."""

    version: int
    operation: str = ""
    restored: int | None = None  # the version that RESTORE has brought back
    epoch: Landed | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    changes: bool = False  # what readers see
    schema: Mapping[str, Any] | None = None

    @property
    def said(self) -> str:
        return f"version {self.version}" + (f" ({self.operation})" if self.operation else "")


def read(files: Files, folder: str) -> list[LogEntry]:
    """The entries that are still there, in order."""
    names = [name for name in files.names(folder) if _ENTRY.fullmatch(name)]
    return [_entry(int(name[:20]), join(folder, name), files.read(join(folder, name))) for name in sorted(names)]


def last_part(path: str) -> str:
    """What a file of a table is known by.

    >>> last_part("day=a%20b/part-00000-5a.snappy.parquet")
    'part-00000-5a.snappy.parquet'
    """
    return unquote(path).rpartition("/")[2]


def _entry(version: int, path: str, data: bytes) -> LogEntry:
    entry = LogEntry(version)
    try:
        for line in filter(None, data.split(b"\n")):  # JSON may hold what Python counts as ends of lines
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
            entry.epoch = next(landed([(entry.version, body.get("userMetadata"))]), None)
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
