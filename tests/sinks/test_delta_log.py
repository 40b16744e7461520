"""A Delta table's log, read entry by entry."""

from __future__ import annotations

import json
from typing import Any

from epochal.sinks.delta.table.log import read
from tests.txn.memory import MemoryFiles


def written(*entries: list[dict[str, Any]]) -> MemoryFiles:
    files = MemoryFiles()
    for version, actions in enumerate(entries):
        lines = (json.dumps(action, ensure_ascii=False) for action in actions)
        files.create(f"log/{version:020d}.json", "\n".join(lines).encode())
    return files


def test_characters_that_end_lines_elsewhere_are_part_of_a_value() -> None:
    values = "\u2028 \u0085 \x1c"
    files = written([{"add": {"path": "part-0", "partitionValues": {"word": values}}}, {"add": {"path": "part-1"}}])
    (entry,) = read(files, "log")

    assert entry.added == {"part-0", "part-1"}


def test_a_restore_says_which_version_came_back_unless_it_went_by_time() -> None:
    restore = {"operation": "RESTORE", "operationParameters": {"version": 4, "timestamp": None}}
    by_time = {"operation": "RESTORE", "operationParameters": {"version": None, "timestamp": "2026-11-18"}}
    entries = read(written([{"commitInfo": restore}], [{"commitInfo": by_time}]), "log")

    assert [entry.restored for entry in entries] == [4, None]
