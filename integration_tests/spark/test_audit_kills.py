"""Whatever kills a driver has met, an audit of what it left finds every row once; and the command says so.

The chains of ``test_kill_chain.py`` and ``test_rolling_kills.py`` end with an audit too: here are other formats, and
commits that wait for Spark's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from integration_tests.spark.audits import check_all_exact, never_differs
from integration_tests.spark.chains import killed_at_each, run_here
from integration_tests.spark.children import REPOSITORY, Children
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

CHAIN = ("after-write@2", "after-prepared", "before-rename@3", "after-manifest", "before-log", "before-done")
ROLLING_CHAIN = ("after-prepared@2", "before-keep@2", "before-manifest@3", "before-cleanup@2")


@pytest.mark.matrix
def test_every_sink_is_exact_after_a_chain_of_kills(spark: SparkSession, drivers: Children, world: World) -> None:
    arguments = ("--sinks", "all", "--digest", "--small-journal")
    files = killed_at_each(drivers, world, CHAIN, arguments, lambda: never_differs(world.checkpoint), ahead=3)

    check_all_exact(world.checkpoint, sinks=3, rows=files * ROWS)


@pytest.mark.matrix
def test_parts_that_stay_open_are_exact_after_a_chain_of_kills(
    spark: SparkSession, drivers: Children, world: World
) -> None:
    arguments = ("--sinks", "rolling-rows-csv,parquet", "--digest", "--small-journal")
    files = killed_at_each(drivers, world, ROLLING_CHAIN, arguments, lambda: never_differs(world.checkpoint), ahead=3)

    check_all_exact(world.checkpoint, sinks=2, rows=files * ROWS)


def test_the_command_starts_spark_and_says_so_by_its_exit_code(spark: SparkSession, world: World) -> None:
    world.feed(2)
    run_here(spark, world, "--sinks", "json", "--digest")
    clean = command(world)
    next(world.first.glob("part-*-00000-*")).unlink()
    (world.first / "copy.json").write_text("{}\n")
    unproven = command(world, "--fast")
    part = next(world.first.glob("part-*"))
    part.with_name(part.name.replace("-00000-", "-00007-")).write_bytes(part.read_bytes())

    assert (clean.returncode, json.loads(clean.stdout)["verdict"]) == (0, "exact"), clean.stderr
    assert clean.stderr == ""  # not a line of Spark's
    assert (unproven.returncode, json.loads(unproven.stdout)["verdict"]) == (0, "not provable")
    assert command(world, "--fast").returncode == 3


def command(world: World, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "epochal.cli", "audit", str(world.checkpoint), "--json", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=900,  # where others keep the machine busy, Spark's start alone takes minutes
        check=False,
    )
