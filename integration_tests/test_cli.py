"""The command line on a real stream: drivers killed at chosen steps, commands in between, the query goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options"), pytest.mark.timeout(900)]


def run_driver(folder: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """Run the first example, which archives 300 orders in three epochs."""
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py"), str(folder)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "EPOCHAL_FAILPOINTS": failpoint,
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",  # a killed JVM removes nothing
        },
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # so that the kill takes the JVM too
    )


def epochal(folder: Path, command: str, *options: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", command, str(folder / "checkpoint"), *options, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def archived(folder: Path) -> list[int]:
    files = sorted((folder / "archive").glob("day=*/*.json"))
    return [json.loads(line)["order_id"] for file in files for line in file.read_text().splitlines()]


def test_commands_between_killed_drivers_lose_and_double_nothing(tmp_path: Path) -> None:
    # Spark has checkpointed epoch 1 when the driver dies; its rows are staged.
    assert run_driver(tmp_path, "before-commit=kill@2").returncode == -signal.SIGKILL
    before = epochal(tmp_path, "status")
    assert (before["committed"], before["done"]) == (1, 0)
    assert before["held"] == [{"epoch": 1, "generation": 1, "sinks": {"files": "waiting"}}]
    assert len(archived(tmp_path)) == 100

    recovered = epochal(tmp_path, "recover")
    assert [commit["epoch"] for commit in recovered["commits"]] == [1]
    assert len(archived(tmp_path)) == 200
    assert epochal(tmp_path, "status")["settled"]

    # The next one dies with epoch 2 prepared: nobody may touch that but Spark.
    assert run_driver(tmp_path, "after-prepared=kill").returncode == -signal.SIGKILL
    assert epochal(tmp_path, "recover")["in_doubt"] == [2]
    collected = epochal(tmp_path, "gc", "--yes", "--fence")
    assert [(left["epoch"], left["state"]) for left in collected["kept"]] == [(2, "prepared")]
    assert len(archived(tmp_path)) == 200

    ended = run_driver(tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]

    after = epochal(tmp_path, "status")
    orders = archived(tmp_path)
    assert len(set(orders)) == len(orders) == 300
    assert after["settled"]
    assert after["leftovers"] == after["in_doubt"] == []
    assert after["generation"]["number"] == 4  # three drivers and a fence
