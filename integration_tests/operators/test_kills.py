"""Operators of the user's own, killed, moved by a savepoint and rescaled: all ends as plain Python says."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from epochal.cli import main
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.spark_plugins.moving.store import SavepointStore
from examples import fraud, graph
from integration_tests.operators import reference
from integration_tests.operators.reference import Scored, millis, rows_in
from integration_tests.spark.checks import leftovers
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FILES, LATER = 4, 2
# Both streams run in the process that dies. Where the state of an epoch is stored already: after its record, and when
# Spark has committed it but not every sink shows it; in the matrix before its record too.
CHAIN = ("after-prepared@3", "before-log@2")
LONG_CHAIN = ("after-write@2", *CHAIN)
STREAMS = ("fraud", "graph")


@pytest.mark.parametrize("chain", [CHAIN, pytest.param(LONG_CHAIN, marks=pytest.mark.matrix)], ids=["short", "long"])
def test_fraud_and_graph_are_as_if_nothing_had_been_killed_moved_or_rescaled(
    drivers: Children, tmp_path: Path, chain: tuple[str, ...]
) -> None:
    fraud.put_sample_payments(tmp_path / "fraud" / "incoming", FILES + LATER)
    graph.put_sample_edges(tmp_path / "graph" / "incoming", FILES + LATER)
    held_back = [file for name in STREAMS for file in sorted((tmp_path / name / "incoming").iterdir())[FILES:]]
    for file in held_back:
        file.rename(file.parent.parent / file.name)
    for point in chain:
        name, _, hit = point.partition("@")
        killed = drivers.run_module("integration_tests.operators.driver", str(tmp_path), points=f"{name}=kill@{hit}")
        ended = killed.wait()
        assert ended.ending is Ending.KILLED, f"{point}: {ended.output[-5000:]}"
        check_nothing_twice(tmp_path)
    whole = drivers.run_module("integration_tests.operators.driver", str(tmp_path)).wait()
    assert whole.ending is Ending.DONE, whole.output[-5000:]
    check(tmp_path)

    for name in STREAMS:
        move(tmp_path / name)
    for file in held_back:
        (file.parent.parent / file.name).rename(file)
    last = drivers.run_module(
        "integration_tests.operators.driver", str(tmp_path), "--checkpoint", "moved", "--partitions", "3"
    ).wait()
    assert last.ending is Ending.DONE, last.output[-5000:]
    check(tmp_path)
    for name in STREAMS:
        assert {*partitions(tmp_path / name / "moved")} == {"1", "3"}
        assert main(["audit", str(tmp_path / name / "moved")]) == 0


def move(home: Path) -> None:
    """By a savepoint; then nothing of the original is left."""
    assert main(["savepoint", str(home / "checkpoint"), str(home / "backups")]) == 0
    (savepoint,) = SavepointStore(LocalSinkFiles(sync=False), str(home / "backups")).manifests()
    assert main(["restore", str(home / "backups" / savepoint.name), str(home / "moved")]) == 0
    shutil.rmtree(home / "checkpoint")


def partitions(checkpoint: Path) -> list[str]:
    """Of each epoch."""
    plans = (checkpoint / "offsets").glob("[0-9]*")
    return [json.loads(plan.read_text().splitlines()[1])["conf"]["spark.sql.shuffle.partitions"] for plan in plans]


def check(root: Path) -> None:
    check_payments(root / "fraud")
    check_vertices(root / "graph")
    for target in ("fraud/payments", "graph/changes"):
        assert leftovers(root / target) == []
    assert [*root.glob("*/*/_epochal/staged/*/*")] == []


def check_nothing_twice(root: Path) -> None:
    payments = Counter(row["id"] for row in rows_in(root / "fraud" / "payments"))

    assert max(payments.values(), default=1) == 1


def check_payments(home: Path) -> None:
    expected = reference.scored(rows_in(home / "incoming"))
    alerts = {row.id for row in expected if row.alert}
    found = [Scored(**{**row, "at": millis(row["at"])}) for row in with_buckets(home / "payments", "alert")]

    assert sorted(found, key=lambda row: (row.at, row.id)) == expected
    assert 1 < len(alerts) < len(expected) < 60 * (FILES + LATER)
    last = {row.card: row for row in expected}
    table = DeltaTable(home / "totals").to_pyarrow_table().to_pylist()
    assert {row["card"]: (row["id"], row["n"], row["spent"]) for row in table} == {
        card: (row.id, row.n, row.spent) for card, row in last.items()
    }
    assert len(table) == len(last)


def check_vertices(home: Path) -> None:
    expected = reference.vertices(rows_in(home / "incoming"))
    table = DeltaTable(home / "vertices").to_pyarrow_table().to_pylist()

    assert {(row["graph"], row["vertex"]): (row["component"], row["degree"]) for row in table} == expected
    assert len(table) == len(expected)
    sizes = Counter((graph, component) for (graph, _), (component, _) in expected.items())
    assert max(sizes.values()) > 6
    last = {}
    for row in with_buckets(home / "changes", "graph"):
        last[row["graph"], row["vertex"]] = (row["component"], row["degree"])  # files are in order of epoch
    assert last == expected


def with_buckets(folder: Path, bucket: str) -> list[dict[str, Any]]:
    """The rows of files, with the column that is in the name of their folder."""
    found = []
    for path in folder.glob(f"{bucket}=*"):
        value = path.name.partition("=")[2]
        found += [{bucket: value == "true" if bucket == "alert" else value, **row} for row in rows_in(path)]
    return found
