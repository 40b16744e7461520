"""The command line on a real stream: drivers killed at chosen steps, commands in between, the query goes on."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration_tests.spark.waiting import wait_until

ROOT = Path(__file__).parent.parent
DEAD = 5

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


def epochal(folder: Path, command: str, *options: str, code: int = 0) -> Any:
    """Run a command with --json, which must end with an exit code."""
    done = command_line(folder, command, *options, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def command_line(folder: Path, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "epochal.cli", command, str(folder / "checkpoint"), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def console(folder: Path) -> Any:
    """What `epochal top`, `ui` and `report` show of the stream."""
    (stream,) = epochal(folder, "top", "--once")["streams"]
    assert stream["error"] is None
    return stream["snapshot"]


@contextmanager
def watching(folder: Path) -> Iterator[Iterator[Any]]:
    """What the console shows, once a second, while the stream runs."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "epochal.cli", "top", str(folder / "checkpoint"), "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watcher.stdout is not None
        yield (json.loads(line)["streams"][0]["snapshot"] for line in watcher.stdout)
    finally:
        watcher.kill()
        watcher.communicate()


def is_staging(shot: Any, epoch: int) -> bool:
    last = shot["epochs"][-1]
    return bool(shot["driver"]["running"]) and (last["epoch"], last["phase"]) == (epoch, "staging")


def archived(folder: Path) -> list[int]:
    files = sorted((folder / "archive").glob("day=*/*.json"))
    return [json.loads(line)["order_id"] for file in files for line in file.read_text().splitlines()]


def test_commands_between_killed_drivers_lose_and_double_nothing(tmp_path: Path) -> None:
    # The driver dies while it stages epoch 1.
    assert run_driver(tmp_path, "after-stage=kill@2").returncode == -signal.SIGKILL
    said = command_line(tmp_path, "status")
    pid = epochal(tmp_path, "status", code=DEAD)["driver"]["pid"]
    assert said.returncode == DEAD
    assert said.stdout.splitlines()[0] == (
        f"driver dead (pid {pid} on {platform.node()}): epoch 1 was being staged; the next start replays it. Start the "
        "query again"
    )
    aborted = epochal(tmp_path, "resolve", "--abort", "1")
    assert aborted["removed"] == [{"sink": "files", "generation": 1}]
    assert not list((tmp_path / "archive" / "_epochal" / "staged").rglob("part-*"))
    assert epochal(tmp_path, "status")["under_way"] == {"epoch": 1, "staging": False}

    # Spark has checkpointed epoch 1 when the next one dies; its rows are staged.
    assert run_driver(tmp_path, "before-commit=kill").returncode == -signal.SIGKILL
    before = epochal(tmp_path, "status", code=DEAD)
    assert (before["committed"], before["done"]) == (1, 0)
    assert before["held"] == [{"epoch": 1, "generation": 3, "sinks": {"files": "waiting"}}]
    assert before["command"] == f"epochal recover {tmp_path / 'checkpoint'}"
    assert len(archived(tmp_path)) == 100
    shown = console(tmp_path)
    assert [(held["epoch"], held["advice"]["command"]) for held in shown["held"]] == [(1, before["command"])]
    assert [line["phase"] for line in shown["epochs"]] == ["visible", "held"]

    recovered = epochal(tmp_path, "recover")
    assert [commit["epoch"] for commit in recovered["commits"]] == [1]
    assert len(archived(tmp_path)) == 200
    assert epochal(tmp_path, "status", code=DEAD)["settled"]

    # The next one dies with epoch 2 prepared: nobody may touch that but Spark.
    assert run_driver(tmp_path, "after-prepared=kill").returncode == -signal.SIGKILL
    assert epochal(tmp_path, "recover")["in_doubt"] == [2]
    for choice in ("--commit", "--abort"):
        assert "commits/2" in epochal(tmp_path, "resolve", choice, "2", code=2)["error"]["message"]
    collected = epochal(tmp_path, "gc", "--yes", "--fence")
    assert [(left["epoch"], left["state"]) for left in collected["kept"]] == [(2, "prepared")]
    assert len(archived(tmp_path)) == 200

    # The last one is watched while it stages epoch 2, and does not notice.
    gate = tmp_path / "gate"
    with ThreadPoolExecutor() as pool, watching(tmp_path) as shots:
        running = pool.submit(run_driver, tmp_path, f"after-stage=pause:{gate}")
        wait_until(lambda: gate.exists() or running.done(), "the driver has staged epoch 2")
        try:
            shown = next(shot for shot in shots if is_staging(shot, epoch=2) or running.done())
        finally:
            gate.unlink(missing_ok=True)
        ended = running.result()
    assert shown["headline"]["standing"] == "running"
    assert (shown["epochs"][-1]["generation"], shown["in_doubt"][0]["epoch"]) == (6, 2)
    assert shown["epochs"][-1]["sinks"]["files"]["phase"] == "staging"
    assert ended.returncode == 0, ended.stderr[-3000:]

    after = epochal(tmp_path, "status")
    orders = archived(tmp_path)
    assert len(set(orders)) == len(orders) == 300
    assert after["settled"]
    assert (after["state"], after["driver"]["liveness"], after["driver"]["state"]) == ("stopped", "ended", "ended")
    assert after["leftovers"] == after["in_doubt"] == []
    assert after["generation"]["number"] == 6  # four drivers and two fences
    (live,) = (tmp_path / "checkpoint" / "epochal-live").iterdir()
    last = json.loads(live.read_text())["epochs"][-1]
    assert (last["epoch"], last["generation"], last["sinks"]["files"]["rows"]) == (2, 6, 100)
    assert last["begun"] <= last["prepared"] <= last["sinks"]["files"]["visible"] <= last["done"]
    shown = console(tmp_path)["epochs"][-1]
    own = shown["sinks"]["files"]
    steps = [shown["begun"], own["staged"], shown["prepared"], shown["checkpointed"], own["visible"], shown["done"]]
    assert steps == sorted(steps)
    assert (shown["phase"], own["rows"], own["bytes"]) == ("visible", 100, last["sinks"]["files"]["bytes"])
