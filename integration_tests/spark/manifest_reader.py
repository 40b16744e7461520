"""A reader by manifest in a process of its own, who looks for as long as compactions run and die.

    python -m integration_tests.spark.manifest_reader TARGET STOP-FILE

It lists, then opens every file that is listed. A file that is gone by then means to list again. At each look every row
of every epoch that is listed must be there exactly once; with a rolling policy, where an epoch's rows may appear later,
none twice, and none that was seen before may be missing. Its last line is JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import epochal
from epochal.sinks.storage.hadoop import resolve
from epochal.txn.files import Files, is_local, join
from integration_tests.spark.checks import rows_in
from integration_tests.spark.waiting import leisurely
from integration_tests.spark.world import Row, rows_of


def main(target: str, stop: Path, *, rolls: bool) -> None:
    """Look until the stop file is there, and once more."""
    looks = again = 0
    faults: list[str] = []
    lists: set[tuple[str, ...]] = set()
    before: set[Row] = set()
    known: dict[str, list[Row]] = {}
    is_last = False
    while not is_last:
        is_last = stop.exists()
        with leisurely():
            try:
                epochs = epochal.published(target)
            except epochal.Refused:
                if lists:
                    raise
                continue  # no driver has claimed the target yet
            names = tuple(name for epoch in epochs for name, _ in epoch.files)
            try:
                rows = Counter(row for name in names for row in _rows(target, name, known))
            except FileNotFoundError:
                again += 1
                continue
            expected = Counter(row for epoch in epochs for row in rows_of(epoch.epoch))
            lost = before - set(rows) if rolls else set((expected - rows).elements())
            twice = [row for row, count in rows.items() if count > 1]
            if lost or twice:
                faults.append(f"look {looks}: {len(lost)} rows lost, {len(twice)} twice")
            before |= set(rows)
            lists.add(names)
            looks += 1
    print(json.dumps({"looks": looks, "again": again, "lists": len(lists), "faults": faults, "rows": len(before)}))


def _rows(target: str, name: str, known: dict[str, list[Row]]) -> list[Row]:
    """The rows of a file, read once for each name; but it must still be there."""
    files, place = resolve(target)
    if files.length(join(place, name)) is None:
        raise FileNotFoundError(name)
    if name not in known:
        known[name] = _read(files, join(place, name))
    return known[name]


def _read(files: Files, path: str) -> list[Row]:
    if is_local(path):
        return rows_in(Path(path))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.rpartition("/")[2])
        copy.write_bytes(files.read(path))
        return rows_in(copy)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), rolls="--rolls" in sys.argv)
