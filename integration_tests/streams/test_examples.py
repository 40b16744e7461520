"""The examples without code: a stream by a settings file alone."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import epochal

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the orders of the quickstart."""
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"))["put_sample_orders"](tmp_path / "incoming")
    return tmp_path


def run_settings(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check_both_have_every_order(folder: Path) -> None:
    targets = (str(folder / name) for name in ("archive", "by-customer"))
    assert [sum(epoch.rows for epoch in epochal.published(target)) for target in targets] == [300, 300]


def test_a_stream_by_a_settings_file_alone(folder: Path) -> None:
    epochal_command = [sys.executable, "-m", "epochal.cli"]
    said = run_settings([*epochal_command, "run", str(ROOT / "examples" / "orders.toml")], folder)

    assert "stream 'orders' ended; everything that it has checkpointed is visible" in said
    check_both_have_every_order(folder / "toml")


@pytest.mark.matrix
def test_a_check_of_a_settings_file_writes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    command = [sys.executable, "-m", "epochal.cli", "check", "--json", str(ROOT / "examples" / "orders.toml")]
    report = json.loads(run_settings(command, folder))

    assert report["exit_code"] == 0
    assert report["streams"][0]["columns"] == [
        "order_id bigint",
        "customer string",
        "amount decimal(10,2)",
        "day date",
    ]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.matrix
def test_the_same_stream_by_spark_submit_with_a_properties_file(folder: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    settings = ["--properties-file", str(ROOT / "examples" / "orders.properties")]
    said = run_settings([submit, *settings, str(ROOT / "epochal" / "run.py")], folder)

    assert "stream 'orders' ended; everything that it has checkpointed is visible" in said
    check_both_have_every_order(folder / "properties")
