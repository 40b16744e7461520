"""The examples that are settings files, run as their readers would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import epochal

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ENDED = "stream 'orders' ended; everything that it has checkpointed is visible"

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with orders, of which one in ten is free."""
    (tmp_path / "incoming").mkdir()
    for day in (16, 17, 18):
        orders = [
            {"order_id": day * 100 + n, "customer": f"c{n % 5}", "amount": n % 10, "day": f"2026-11-{day}"}
            for n in range(100)
        ]
        (tmp_path / "incoming" / f"{day}.json").write_text("\n".join(map(json.dumps, orders)))
    return tmp_path


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def rows_of(target: Path) -> int:
    return sum(epoch.rows for epoch in epochal.published(str(target)))


def test_a_stream_by_a_toml_file_alone(folder: Path) -> None:
    said = run(folder, sys.executable, "-m", "epochal.cli", "run", str(EXAMPLES / "orders.toml"))

    assert ENDED in said
    assert rows_of(folder / "toml" / "archive") == rows_of(folder / "toml" / "by-customer") == 270


@pytest.mark.matrix
def test_a_check_of_a_toml_file_writes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
    report = json.loads(
        run(folder, sys.executable, "-m", "epochal.cli", "check", "--json", str(EXAMPLES / "orders.toml"))
    )

    assert report["exit_code"] == 0
    columns = ["order_id bigint", "customer string", "amount decimal(10,2)", "day date"]
    assert report["streams"][0]["columns"] == columns
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == before


@pytest.mark.matrix
def test_the_same_stream_by_spark_submit_and_a_properties_file(folder: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    settings = str(EXAMPLES / "orders.properties")
    said = run(folder, submit, "--properties-file", settings, str(ROOT / "epochal" / "run.py"))

    assert ENDED in said
    assert rows_of(folder / "properties" / "archive") == rows_of(folder / "properties" / "by-customer") == 270
