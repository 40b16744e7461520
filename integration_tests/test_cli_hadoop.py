"""The command line on a checkpoint that only Hadoop can reach.

viewfs is a Hadoop file system in every respect that matters here: not local, reached through the JVM,
renamed by FileContext. It needs no server, only a mount in Spark's settings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles, join
from epochal.txn.journal import Journal
from epochal.txn.model import Json

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options"), pytest.mark.timeout(600)]


def decide_one_epoch(checkpoint: str, target: DirectoryParticipant) -> None:
    """Leave an epoch that Spark has checkpointed and no sink has shown."""
    files = LocalFiles(sync=False)
    coordinator: Coordinator[Sequence[Json]] = Coordinator(
        journals=lambda _: Journal(files, join(checkpoint, "epochal")),
        checkpoint=SparkCheckpoint(files, checkpoint),
        participants=[target],
    )
    coordinator.begin()
    StandInQuery[Sequence[Json]](files, checkpoint).run(1, lambda _: ["a", "b"], coordinator.run, lambda: None)


def test_recover_reaches_a_hadoop_checkpoint_by_starting_spark(tmp_path: Path) -> None:
    target = DirectoryParticipant(str(tmp_path / "target"))
    StandInQuery[Sequence[Json]](LocalFiles(), str(tmp_path / "data" / "checkpoint"))
    decide_one_epoch(str(tmp_path / "data" / "checkpoint"), target)
    mount = f"spark.hadoop.fs.viewfs.mounttable.shop.link./data {(tmp_path / 'data').as_uri()}\n"
    (tmp_path / "spark-defaults.conf").write_text(mount)

    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", "recover", "viewfs://shop/data/checkpoint"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("epochal: starting Spark to reach")]
    assert said == []  # not a word of Spark's
    assert "settled: 1 epoch finished" in done.stdout
    assert target.rows() == ["a", "b"]
    assert (tmp_path / "data" / "checkpoint" / "epochal" / "e000000000000.done.json").exists()
