"""spark-submit on a standalone cluster with a settings file and the installed wheel, and no code: three kinds of sinks,
the driver and the executor killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from hatchling.builders.wheel import WheelBuilder

from epochal.txn import failpoints
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.spark import checks
from integration_tests.spark.children import REPOSITORY
from integration_tests.spark.cluster import Cluster, cluster
from integration_tests.spark.jvm import CHEAP, LOOPBACK, SHORT_LIVED, environment
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import SCHEMA, World, all_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="finds executors in /proc"),
]

SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


class Submitted:
    """A spark-submit that runs, and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    @property
    def pid(self) -> int:
        """The JVM's: the scripts before it become it."""
        return self._process.pid

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, condition: object, what: str) -> None:
        assert callable(condition)
        wait_until(lambda: condition() or self._process.poll() is not None, what)
        assert condition(), f"it ended before: {what}\n{self.said}"

    def kill(self) -> None:
        """The JVM and Python."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def terminate(self) -> int:
        """Ask the JVM alone to stop, as Kubernetes does; its exit code."""
        os.kill(self._process.pid, signal.SIGTERM)
        wait_until(lambda: self._process.poll() is not None, "spark-submit to stop")
        return self._process.returncode


class Installed:
    """The wheel, installed into a folder of its own, and settings in a file."""

    def __init__(self, home: Path, java_options: str) -> None:
        (wheel,) = WheelBuilder(str(REPOSITORY)).build(directory=str(home), versions=["standard"])
        self._home, self._packages = home, home / "packages"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--no-index"]
        subprocess.run([*pip, "--target", str(self._packages), wheel], check=True)
        without = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
        self._environment = {**without, **environment(java_options), "PYTHONPATH": str(self._packages)}
        self._started: list[Submitted] = []

    def submit(self, settings: Path, master: str, *more: str, points: str = "") -> Submitted:
        """What the docs say, with this file."""
        epochal = [sys.executable, "-m", "epochal.cli", "run", "--path"]
        path = subprocess.run(
            epochal, cwd=self._home, env=self._environment, check=True, capture_output=True, text=True
        ).stdout.strip()
        assert path.startswith(str(self._packages)), path  # the wheel, not the repository
        log = self._home / f"submitted-{len(self._started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(SPARK_SUBMIT), "--master", master, "--properties-file", str(settings), *more, path],
                cwd=self._home,
                env={**self._environment, failpoints.VARIABLE: points},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(Submitted(process, log))
        return self._started[-1]

    @property
    def packages(self) -> Path:
        return self._packages

    def end(self) -> None:
        for submitted in self._started:
            submitted.kill()


@pytest.fixture
def installed(java_options: str, tmp_path: Path) -> Iterator[Installed]:
    home = tmp_path / "installed"
    home.mkdir()
    made = Installed(home, java_options)
    yield made
    made.end()


def settings_of(world: World, space: Keyspace, packages: Path) -> dict[str, str]:
    """Everything that the stream is."""
    stream = {
        "checkpoint": str(world.checkpoint),
        "sql": "SELECT id, file, kind, word FROM source WHERE id >= 0",
        "source.format": "parquet",
        "source.path": str(world.source),
        "source.schema": SCHEMA,
        "source.options.maxFilesPerTrigger": "1",
        "sinks": "archive, lake, serving",
        "archive.type": "files",
        "archive.path": str(world.first),
        "archive.bucket_by": "kind",
        "lake.type": "delta",
        "lake.path": str(world.table),
        "lake.partition_by": "kind",
        "serving.type": "cassandra",
        "serving.table": space.table("rows", streams.ROWS_TABLE),
        "serving.contact_points": ",".join(space.hosts),
        "serving.port": str(space.port),
    }
    spark = {
        **CHEAP,
        **SHORT_LIVED,
        **LOOPBACK,
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": str(packages),
    }
    return {**spark, **{f"spark.epochal.orders.{key}": value for key, value in stream.items()}}


def check_after_a_kill(world: World, space: Keyspace) -> None:
    rows = streams.visible(space)
    assert not checks.early(world, {row[1] for row in rows})
    checks.check_after_a_kill(world)


def visible_everywhere(world: World, space: Keyspace, files: int) -> bool:
    found = (checks.visible_rows(world.first), checks.visible_rows(world.table), streams.visible(space))
    return all(rows == all_rows(files) for rows in found)


def kill_an_executor_in_mid_commit(running: Cluster, submitted: Submitted, gate: Path) -> None:
    """While a worker of it waits at the gate, with rows of an epoch sent to one sink and not to another."""
    submitted.wait_until(gate.exists, "a worker to come to the gate")
    (victim,) = running.executors()
    os.kill(victim, signal.SIGKILL)
    submitted.wait_until(lambda: set(running.executors()) - {victim}, "another executor")


def test_three_sinks_are_exact_with_settings_alone_whatever_is_killed(
    installed: Installed, world: World, space: Keyspace
) -> None:
    settings = world.root / "orders.properties"
    lines = [f"{key} {value}" for key, value in settings_of(world, space, installed.packages).items()]
    settings.write_text("\n".join(lines))
    world.feed(2)
    with cluster(world.root / "cluster", workers=1) as running:
        # The driver, with epoch 0 visible and epoch 1 staged in all sinks.
        held = world.root / "held"
        first = installed.submit(settings, running.url, points=f"after-prepared=pause:{held}@2")
        first.wait_until(held.exists, "epoch 1 to be prepared")
        first.wait_until(lambda: visible_everywhere(world, space, 1), "epoch 0 to be visible, and nothing of epoch 1")
        first.kill()
        held.unlink()
        check_after_a_kill(world, space)

        # The executor.
        world.feed(4)
        gate = world.root / "gate"
        at_the_gate = f"spark.executorEnv.{failpoints.VARIABLE}=before-part=pause:{gate}"
        second = installed.submit(settings, running.url, "--conf", at_the_gate)
        kill_an_executor_in_mid_commit(running, second, gate)
        check_after_a_kill(world, space)

        def all_visible() -> bool:
            gate.unlink(missing_ok=True)  # each new worker waits there once
            return visible_everywhere(world, space, 4)

        second.wait_until(all_visible, "all rows")
        code = second.terminate()

    assert code == 0, second.said
    assert re.search(r"SIGTERM: stopping all streams\n.*stream 'orders' ended", second.said, re.DOTALL), second.said
    checks.check_at_the_end(world, files=4)
    assert streams.visible(space) == all_rows(4)
