"""The examples, run as a reader of the README would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import epochal

ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


def run_example(name: str, argument: Path, cwd: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), str(argument)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the first example has run once."""
    folder = tmp_path_factory.mktemp("example")
    assert run_example("orders_to_files.py", folder, folder)[-1] == "300 orders in 3 epochs"
    return folder


def test_orders_to_files_run_again_writes_only_what_is_new(folder: Path) -> None:
    more = [{"order_id": n, "customer": "c", "amount": "1.00", "day": "2026-11-19"} for n in range(10)]
    (folder / "incoming" / "19.json").write_text("".join(json.dumps(order) + "\n" for order in more))

    said = run_example("orders_to_files.py", folder, folder)

    assert said[-1] == "310 orders in 4 epochs"
    lines = [line for file in (folder / "archive").glob("day=*/*.json") for line in file.read_text().splitlines()]
    assert len({json.loads(line)["order_id"] for line in lines}) == len(lines) == 310


def test_reader_by_manifest_finds_what_was_promised(folder: Path) -> None:
    said = run_example("exactly_once_reader.py", folder / "archive", folder)

    assert said[0] == "epoch 0: 100 orders in 1 files"
    read, promised = (int(word) for word in said[-1].split() if word.isdecimal())
    assert read == promised >= 300


def test_sinks_from_settings_alone_both_get_every_order(folder: Path) -> None:
    said = run_example("from_conf.py", folder, folder)

    counts = {line.partition(":")[0]: int(line.split()[1]) for line in said if line.startswith("conf-")}
    assert counts["conf-archive"] == counts["conf-by-customer"] >= 300


def run_settings(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check_both_have_every_order(folder: Path) -> None:
    counts = {path.name: sum(epoch.rows for epoch in epochal.published(str(path))) for path in folder.iterdir()}
    assert counts["archive"] == counts["by-customer"] >= 300


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


def test_changes_merged_into_delta_leave_each_order_as_it_was_last(tmp_path: Path) -> None:
    said = run_example("orders_to_delta.py", tmp_path, tmp_path)

    assert said[-2:] == ["placed: 40 orders", "shipped: 50 orders"]
    assert sum(epoch.rows for epoch in epochal.published(str(tmp_path / "archive-of-changes"))) == 160
