"""Two real processes that commit to one table at the same time."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

from epochal.sinks.delta.table.native import NativeTable
from integration_tests.delta.committer import SCHEMA, put_staged
from integration_tests.delta.tables import LINEAGE, OTHER
from integration_tests.spark.children import Child, Children, children
from integration_tests.spark.waiting import wait_until

EPOCHS = 40


def race(tmp_path: Path, lineages: tuple[str, str]) -> tuple[Path, list[list[str]]]:
    """Two processes start on the same signal. The table, and what each says of its commits."""
    table, gate = tmp_path / "table", tmp_path / "gate"
    NativeTable(str(table)).create(SCHEMA, (), {})
    for number, lineage in enumerate(dict.fromkeys(lineages)):
        for epoch in range(EPOCHS):
            put_staged(table, lineage, epoch, number * 1000 + epoch, tmp_path / lineage)
    gate.touch()
    with children("") as started:
        running = [_start(started, table, lineage, tmp_path, gate) for lineage in lineages]
        wait_until(lambda: len(list(tmp_path.glob("gate.*"))) == len(running), "both to be ready")
        gate.unlink()
        ended = [child.wait() for child in running]
    assert [e.code for e in ended] == [0, 0], ended
    return table, [json.loads(e.output.splitlines()[-1]) for e in ended]


def _start(started: Children, table: Path, lineage: str, tmp_path: Path, gate: Path) -> Child:
    arguments = (str(table), lineage, str(tmp_path / lineage), str(gate))
    return started.run_module("integration_tests.delta.committer", *arguments)


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


def test_of_two_that_commit_the_same_epochs_each_epoch_is_committed_by_one(tmp_path: Path) -> None:
    table, outcomes = race(tmp_path, (LINEAGE, LINEAGE))
    committed = [sum(one[epoch] == "COMMITTED" for one in outcomes) for epoch in range(EPOCHS)]

    assert ids(table) == list(range(EPOCHS))
    assert committed == [1] * EPOCHS
    assert DeltaTable(table).version() == EPOCHS
    assert list((table / "_epochal" / "staged" / LINEAGE).iterdir()) == []


def test_two_streams_that_commit_at_the_same_time_both_land(tmp_path: Path) -> None:
    table, outcomes = race(tmp_path, (LINEAGE, OTHER))

    assert ids(table) == [*range(EPOCHS), *range(1000, 1000 + EPOCHS)]
    assert outcomes == [["COMMITTED"] * EPOCHS] * 2
    assert DeltaTable(table).version() == 2 * EPOCHS
