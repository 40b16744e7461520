"""The end of a process that leaves something unsettled."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, sys
atexit.register(print, "an older handler", end="")
from epochal.spark_plugins import exit_code
atexit.register(exit_code.report_at_exit)
exit_code.record_unsettled("checkpoints/orders", "epoch 4 waits for sink 'lake'")
"""


def run(ending: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT + ending], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "import threading; threading.Thread(target=print).start()"])
def test_a_process_that_leaves_an_epoch_unsettled_does_not_end_well(ending: str) -> None:
    ended = run(ending)

    assert ended.returncode == 1
    assert ended.stderr == (
        "epochal: the query ended with unsettled epochs: epoch 4 waits for sink 'lake'\n"
        "epochal: run `epochal recover checkpoints/orders`\n"
    )
    assert ended.stdout.endswith("an older handler"), "other handlers run, and what they print is not lost"


def test_an_exception_of_the_program_keeps_its_own_exit_code() -> None:
    ended = run("raise KeyboardInterrupt")

    assert ended.returncode not in (0, 1)
    assert "epochal recover checkpoints/orders" in ended.stderr


def test_what_was_settled_later_is_not_reported() -> None:
    ended = run("exit_code.clear('checkpoints/orders')")

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_process_whose_query_was_stopped_for_another_driver_does_not_end_well() -> None:
    fenced = "generation 1 was superseded: generation 2 has taken over"
    ended = run(f"exit_code.clear('checkpoints/orders'); exit_code.record_fenced('checkpoints/orders', {fenced!r})")
    again = run("exit_code.record_fenced('checkpoints/orders', ''); exit_code.clear('checkpoints/orders')")

    assert (ended.returncode, ended.stderr) == (1, f"epochal: the query was stopped: {fenced}\n")
    assert (again.returncode, again.stderr) == (0, "")
