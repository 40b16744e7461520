"""Tasks move their own files while an epoch is staged. One that dies, or hangs and goes on, amid that does no harm."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from integration_tests.spark.checks import visible_files
from integration_tests.spark.children import Child, Children
from integration_tests.spark.cluster import Cluster, cluster
from integration_tests.spark.driver import Ending
from integration_tests.spark.many_files import BUCKETS, ROWS, TASKS
from integration_tests.spark.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="finds executors in /proc"),
]


def moved(root: Path) -> list[Path]:
    """The files that tasks have moved to where the driver looks for them when all are done."""
    return [*root.glob("target/_epochal/staged/*/*/written/*=*/part-*")]


def in_task_folders(root: Path) -> list[Path]:
    """The files that tasks have written and not moved."""
    return [*root.glob("target/_epochal/staged/*/*/written/_temporary/0/_temporary/*/*=*/part-*")]


def some_moved(root: Path) -> bool:
    """Whether a task has begun to move. A look must be quick: a task moves a thousand files in a second."""
    folders = root.glob("target/_epochal/staged/*/*/written")
    return any("=" in name for folder in folders for name in os.listdir(folder))


def halt_amid_moving(root: Path, running: Cluster, driver: Child) -> dict[int, int]:
    """Stop every executor while a task has moved some of its files and not all; each with its worker."""
    wait_until(running.executors, "executors to start")
    driver.wait_until(lambda: some_moved(root), "a task to move its first file")
    executors = running.executors()
    for pid in executors:
        os.kill(pid, signal.SIGSTOP)
    assert in_task_folders(root), "all files were moved before the executors could be stopped"
    return executors


def mover(root: Path, executors: dict[int, int]) -> int:
    """An executor whose task has moved some of its files and not all."""
    begun = {int(path.name.split("-")[1]) for path in moved(root)}
    attempts = {tuple(path.parts[-3].split("_")) for path in in_task_folders(root)}
    task = next(attempt[-1] for attempt in attempts if int(attempt[-2]) in begun)
    logs = {pid: Path(os.readlink(f"/proc/{pid}/cwd"), "stderr").read_text(errors="replace") for pid in executors}
    return next(pid for pid, log in logs.items() if f"(TID {task})" in log)


@pytest.mark.parametrize("dies", [False, pytest.param(True, marks=pytest.mark.matrix)], ids=["hangs", "dies"])
def test_an_executor_that_ends_amid_moving_its_files_loses_and_doubles_nothing(
    drivers: Children, tmp_path: Path, *, dies: bool
) -> None:
    """It hangs with its whole machine, so that nobody ends it, and goes on when the epoch is shown."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "0.json").write_text(json.dumps({"rows": ROWS}) + "\n")
    with cluster(tmp_path / "cluster", workers=TASKS) as running:
        driver = drivers.run_module("integration_tests.spark.many_files", str(tmp_path), running.url)
        executors = halt_amid_moving(tmp_path, running, driver)
        victim = mover(tmp_path, executors)
        partly = len(moved(tmp_path))
        if dies:
            os.kill(victim, signal.SIGKILL)
        else:
            os.kill(executors[victim], signal.SIGSTOP)
        for pid in executors.keys() - {victim}:
            os.kill(pid, signal.SIGCONT)
        ended = driver.wait()
        if not dies:
            os.kill(victim, signal.SIGCONT)
            wait_until(lambda: victim not in running.executors(), "the executor to notice that its driver is gone")

    rows = Counter(
        json.loads(line)["id"] for file in visible_files(tmp_path / "target") for line in file.read_text().splitlines()
    )
    assert ended.code == Ending.DONE, ended.output
    assert 0 < partly < BUCKETS * TASKS
    assert rows == Counter(range(ROWS))
    assert not list(tmp_path.glob("target/_epochal/staged/*/*/data"))
