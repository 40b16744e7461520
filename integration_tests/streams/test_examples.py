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


def run_settings(command: list[str], folder: Path, code: int = 0) -> tuple[str, str]:
    """What it printed to stdout, and to stderr."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


def check_both_have_every_order(folder: Path) -> None:
    targets = (str(folder / name) for name in ("archive", "by-customer"))
    assert [sum(epoch.rows for epoch in epochal.published(target)) for target in targets] == [300, 300]


def test_a_stream_by_a_settings_file_alone(folder: Path) -> None:
    epochal_command = [sys.executable, "-m", "epochal.cli"]
    said, answer = run_settings([*epochal_command, "run", str(ROOT / "examples" / "orders.toml")], folder)

    assert answer == ""  # nothing of Spark's
    assert [line.partition(":")[0].partition(";")[0] for line in said.splitlines()] == [
        "stream 'orders' started",
        "stream 'orders' ended",
    ]
    assert "stream 'orders' ended; everything that it has checkpointed is visible" in said
    check_both_have_every_order(folder / "toml")


@pytest.mark.matrix
def test_a_check_of_a_settings_file_writes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    command = [sys.executable, "-m", "epochal.cli", "check", "--json", str(ROOT / "examples" / "orders.toml")]
    report = json.loads(run_settings(command, folder)[0])

    assert report["exit_code"] == 0
    assert report["streams"][0]["columns"] == [
        "order_id bigint",
        "customer string",
        "amount decimal(10,2)",
        "day date",
    ]
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.matrix
def test_a_stream_that_fails_is_told_with_the_last_lines_of_spark(folder: Path) -> None:
    (folder / "broken.toml").write_text(
        '[streams.broken]\ncheckpoint = "c"\ntrigger = "available_now"\n'
        "sql = \"SELECT raise_error('boom') AS amount FROM source\"\n"
        '[streams.broken.source]\nformat = "json"\npath = "incoming"\nschema = "order_id BIGINT"\n'
        '[streams.broken.sinks.out]\ntype = "files"\npath = "t"\n'
    )
    command = [sys.executable, "-m", "epochal.cli", "run", "broken.toml"]
    _, answer = run_settings(command, folder, code=1)
    failed, where = answer.splitlines()
    kept = Path(where.rpartition(" ")[2])

    try:
        assert failed.startswith("epochal: stream 'broken' failed: ")
        assert "boom" in failed
        assert where.startswith("epochal: the last that Spark itself printed is in ")
        assert "boom" in kept.read_text()
    finally:
        kept.unlink()
    assert "ERROR" in run_settings([*command, "--verbose"], folder, code=1)[1]


@pytest.mark.matrix
def test_the_same_stream_by_spark_submit_with_a_properties_file(folder: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    settings = ["--properties-file", str(ROOT / "examples" / "orders.properties")]
    said, _ = run_settings([submit, *settings, str(ROOT / "epochal" / "run.py")], folder)

    assert "stream 'orders' ended; everything that it has checkpointed is visible" in said
    check_both_have_every_order(folder / "properties")
