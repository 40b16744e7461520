"""A process that commits staged epochs to a table, as a driver that has just come back would. No Spark.

    python -m integration_tests.delta.committer TABLE LINEAGE HANDLES GATE

HANDLES is a folder of handles as JSON, one an epoch. It begins when GATE is gone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from epochal import DeltaSink
from epochal.sinks.delta.handle import NewFile, StagedEpoch, StagedFile
from epochal.txn.model import Attempt, Handle
from integration_tests.spark.waiting import wait_until

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def put_staged(table: Path, lineage: str, epoch: int, number: int, handles: Path) -> None:
    """Stage one row, as Spark's writer would leave it."""
    home = table / "_epochal" / "staged" / lineage / Attempt(lineage, epoch, 1).key / "data"
    home.mkdir(parents=True)
    pq.write_table(pa.table({"id": [number]}), home / "part-c000.parquet")
    name = f"part-{epoch:012d}-00000-{lineage}-000001.parquet"
    new = NewFile(name, (home / "part-c000.parquet").stat().st_size, {}, '{"numRecords":1}')
    staged = StagedEpoch(
        target=str(table),
        mode="append",
        native=True,
        schema=SCHEMA,
        files=(StagedFile("data/part-c000.parquet", new),),
        offsets="",
    )
    handles.mkdir(parents=True, exist_ok=True)
    (handles / f"{epoch:06d}.json").write_text(json.dumps(staged.handle().to_json()))


def main(table: str, lineage: str, handles: Path, gate: Path) -> None:
    """Commit every epoch in order, and say what came of it."""
    sink = DeltaSink(table)
    sink.open(lineage)
    Path(f"{gate}.{os.getpid()}").touch()
    wait_until(lambda: not gate.exists(), f"{gate} to be opened")
    outcomes = []
    for path in sorted(handles.iterdir()):
        handle = Handle.from_json(json.loads(path.read_text()))
        outcomes.append(sink.commit(Attempt(lineage, int(path.stem), 1), handle).name)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
