"""A Delta table on an object store, without Spark: epochs are staged as Spark's writer leaves them.

    python -m integration_tests.objects.lake TABLE LINEAGE GATE HANDLES...

Commits the epochs of the handles, JSON in a file each, in order. It begins when GATE is gone, and says what came of it.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from epochal import DeltaSink
from epochal.sinks.delta.handle import NewFile, StagedEpoch, StagedFile
from epochal.sinks.delta.layout import Layout, part_name
from epochal.sinks.delta.table.native import NativeTable
from epochal.sinks.delta.table.places import storage_options
from epochal.sinks.storage.targets import resolve_target
from epochal.txn.files import Files, join
from epochal.txn.model import Attempt, Handle, Outcome
from integration_tests.spark.waiting import wait_until

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
LINEAGE = "7a1f1c9e-0000-4000-8000-000000000001"
OTHER = "c0ffee00-0000-4000-8000-000000000002"
START = "5tart"  # each attempt has the random name of its start


def attempt(epoch: int, *, generation: int = 1, lineage: str = LINEAGE) -> Attempt:
    return Attempt(lineage, epoch, generation, start=START)


def make(table: str) -> None:
    """The table, empty."""
    NativeTable(table, resolve_target(table)[0]).create(SCHEMA, (), {})


def put_staged(table: str, of: Attempt, numbers: Sequence[int], *, mode: str = "append", files: int = 1) -> Handle:
    """Stage rows."""
    store, target = resolve_target(table)
    layout = Layout(target)
    found = []
    for part in range(files):
        own = list(numbers)[part::files]
        data = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(own, pa.int64())}), data)
        staged = f"data/part-{part:05d}-c000.snappy.parquet"
        assert store.create(join(layout.attempt(of), staged), data.getvalue())
        new = NewFile(part_name(of, part, staged), len(data.getvalue()), {}, json.dumps({"numRecords": len(own)}))
        found.append(StagedFile(staged, new))
    epoch = StagedEpoch(
        target=target, mode=mode, native=True, schema=SCHEMA, files=tuple(found), offsets=f"offsets {of.epoch}"
    )
    return epoch.handle()


def committed(sink: DeltaSink, of: Attempt, handle: Handle, *, tries: int = 50) -> tuple[Outcome, int]:
    """Commit as the settler does: as long as it takes. What came of it, and after how many errors of the store."""
    said = []
    for number in range(tries):
        try:
            return sink.commit(of, handle), number
        except OSError as fault:
            said.append(repr(fault))
    raise AssertionError(f"epoch {of.epoch} was not committed in {tries} tries: {Counter(said)}")


def options_of(table: str) -> dict[str, str]:
    """How delta-rs is told of the store."""
    return dict(storage_options(table) or {})


def opened(table: str) -> DeltaTable:
    """The table, by delta-rs."""
    return DeltaTable(table, storage_options=options_of(table))


def rows(table: str) -> list[int]:
    """All rows, as delta-rs reads them."""
    return sorted(opened(table).to_pyarrow_table()["id"].to_pylist())


def left_over(files: Files, table: str) -> list[str]:
    """What is staged, or in the table's folder without that the log names it."""
    layout = Layout(table)
    named = set(opened(table).get_add_actions().column("path").to_pylist())
    there = [entry.name for entry in files.walk(layout.target)]
    return [
        name
        for name in there
        if name.startswith("_epochal/staged/") or (name.endswith(".parquet") and "/" not in name and name not in named)
    ]


def main(table: str, lineage: str, gate: Path, handles: Sequence[Path]) -> None:
    sink = DeltaSink(table)
    sink.open(lineage)
    Path(f"{gate}.{os.getpid()}").touch()
    wait_until(lambda: not gate.exists(), f"{gate} to be opened")
    outcomes = []
    for path in handles:
        handle = Handle.from_json(json.loads(path.read_text()))
        outcomes.append(committed(sink, attempt(int(path.stem), lineage=lineage), handle)[0].name)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), [Path(name) for name in sys.argv[4:]])
