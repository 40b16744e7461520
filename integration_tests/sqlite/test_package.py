"""A sink of another package, as `epochal new-sink` writes it: its wheel is built and installed as by a user.

It is found by its entry point, passes the contract suite, recovers from a kill, and a wrong one fails the suite. But
for its name it is `examples/sqlite-sink`: tests/cli/test_new_sink.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hatchling.builders.wheel import WheelBuilder

from epochal.cli.new_sink import renamed

ROOT = Path(__file__).parent.parent.parent
NAME = "order-book"

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_options")]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package."""
    folder = tmp_path_factory.mktemp("new") / f"epochal-{NAME}"
    new_sink = [sys.executable, "-m", "epochal.cli", "new-sink", NAME, "--folder", str(folder)]
    subprocess.run(new_sink, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    return folder


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process that has the package installed beside epochal."""
    home = tmp_path_factory.mktemp("package")
    (wheel,) = WheelBuilder(str(package)).build(directory=str(home), versions=["standard"])
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(home / "site"), wheel], check=True)
    return {**os.environ, "PYTHONPATH": f"{home / 'site'}{os.pathsep}{ROOT}"}


def run(installed: dict[str, str], folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**installed, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        start_new_session=True,  # so that a kill takes the JVM too
    )


def command(installed: dict[str, str], folder: Path, name: str) -> Any:
    done = run(installed, folder, "-m", "epochal.cli", name, str(folder / "out" / "checkpoint"), "--json")
    assert done.stdout, done.stderr[-3000:]
    return json.loads(done.stdout)


def orders_in(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "out" / "shop.db")) as db:
        return sorted(number for (number,) in db.execute("SELECT order_id FROM orders"))


def test_a_stream_configured_by_settings_is_killed_and_recovered(
    package: Path, installed: dict[str, str], tmp_path: Path
) -> None:
    script = str(package / "orders_to_order_book.py")
    killed = run(installed, tmp_path, script, "out", EPOCHAL_FAILPOINTS="before-insert=kill@2")

    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    before = command(installed, tmp_path, "status")
    assert [(sink["name"], sink["type"], sink["last"]) for sink in before["sinks"]] == [("shop", NAME, 0)]
    assert [(held["epoch"], held["sinks"]) for held in before["held"]] == [(1, {"shop": "waiting"})]
    first = orders_in(tmp_path)
    assert len({*first}) == len(first) == 100  # of files of the same age, any may come first

    recovered = command(installed, tmp_path, "recover")
    assert [(commit["epoch"], commit["outcome"]) for commit in recovered["commits"]] == [(1, "committed")]
    both = orders_in(tmp_path)
    assert len({*both}) == len(both) == 200
    assert {*first} < {*both} < {*range(300)}
    assert command(installed, tmp_path, "status")["leftovers"] == []


def failed_tests(report: Path) -> dict[str, set[str]]:
    """The tests that failed, by their class; an empty set for a class of which all passed."""
    failed: dict[str, set[str]] = defaultdict(set)
    for case in ElementTree.parse(report).iter("testcase"):
        found = failed[case.attrib["classname"].rpartition(".")[2]]
        if case.find("failure") is not None or case.find("error") is not None:
            found.add(re.sub(r"\[.*", "", case.attrib["name"]))
    return failed


def test_what_new_sink_writes_passes_the_contract_and_a_wrong_sink_fails_it_in_the_right_test(
    package: Path, installed: dict[str, str], tmp_path: Path
) -> None:
    """In one process: the good sink bare and behind a wrapper, the wrong ones bare."""
    written = "test_epochal_order_book.py"
    (tmp_path / written).write_text((package / written).read_text())
    (tmp_path / "wrong_sinks.py").write_text(renamed(Path(__file__).with_name("wrong_sinks.py").read_text(), NAME))
    (tmp_path / "pyproject.toml").write_text("[tool.pytest]\n")
    options = ["--junitxml=report.xml", "-q", "-p", "no:cacheprovider", "-k", "TestOrderBookSink or bare"]
    done = run(installed, tmp_path, "-m", "pytest", *options, written, "wrong_sinks.py")
    failed = failed_tests(tmp_path / "report.xml")

    assert failed.pop("TestOrderBookSink") == set(), done.stdout[-3000:]
    assert failed.pop("TestOrderBookSinkOnConnect") == set(), done.stdout[-3000:]
    assert failed.pop("TestTrustsTheStore") == {"test_staged_data_that_is_lost_is_an_error_and_not_a_commit"}
    assert failed["TestCommitsAtStage"] >= {
        "test_staged_rows_are_invisible",
        "test_staging_and_aborting_are_not_remembered_as_epochs",
    }
    assert failed["TestForgetsTheEpoch"] >= {
        "test_commit_repeated_shows_the_rows_once_and_says_so",
        "test_the_last_epoch_and_the_offsets_of_recent_ones_are_remembered",
    }
    assert "test_staged_rows_are_invisible" not in failed["TestForgetsTheEpoch"]
    assert "test_of_several_that_claim_at_once_one_succeeds" not in set.union(*failed.values())
