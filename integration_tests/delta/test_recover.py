"""The command line finishes what a killed driver left of a Delta table, without the query."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from integration_tests.spark.checks import leftovers
from integration_tests.spark.children import REPOSITORY, Children
from integration_tests.spark.driver import Ending
from integration_tests.spark.world import World, all_rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


DEAD = 5  # what `status` returns: the driver was killed


def epochal(world: World, command: str, *, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", command, str(world.checkpoint), "--json"],
        cwd=world.root,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_recover_commits_a_decided_epoch_to_the_table(drivers: Children, world: World) -> None:
    world.feed(4)
    ended = drivers.run(world.root, "--sinks", "delta", points="before-log=kill@2")
    before = epochal(world, "status", code=DEAD)
    recovered = epochal(world, "recover")
    ids = DeltaTable(world.table).to_pyarrow_table()["id"].to_pylist()

    assert ended.ending is Ending.KILLED, ended.output
    assert before["held"] == [{"epoch": 1, "generation": 1, "sinks": {"table": "waiting"}}]
    assert [commit["epoch"] for commit in recovered["commits"]] == [1]
    assert sorted(ids) == sorted(row[0] for row in all_rows(2))
    assert epochal(world, "status", code=DEAD)["settled"]
    assert leftovers(world.table) == []


def test_recover_merges_a_decided_epoch_with_a_spark_of_its_own(tmp_path: Path) -> None:
    example = [sys.executable, str(REPOSITORY / "examples" / "change_feed_to_upserts.py"), str(tmp_path)]
    killed = subprocess.run(
        example,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "EPOCHAL_FAILPOINTS": "before-log=kill@2"},
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    world = World(tmp_path)
    world.checkpoint.symlink_to(tmp_path / "delta-checkpoint")  # moved, it would be taken for a copy
    before = DeltaTable(tmp_path / "lake").to_pyarrow_table()["status"].to_pylist()
    recovered = epochal(world, "recover")
    after = DeltaTable(tmp_path / "lake").to_pyarrow_table()["status"].to_pylist()

    assert killed.returncode == -9
    assert (before.count("placed"), before.count("shipped")) == (100, 0)
    assert {commit["sink"] for commit in recovered["commits"]} >= {"delta"}
    assert (after.count("placed"), after.count("shipped")) == (50, 50)
