"""Drivers of sinks that hold rows open are killed, for real, at every step of the protocol and again in the recovery;
or two run at once.

Those of rolls between epochs are among them, and of a journal that folds away what is open. Without Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from integration_tests.kill_matrix.rolling import POINTS
from integration_tests.kill_matrix.workers import ROOT

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("every", [pytest.param(4, id="sample"), pytest.param(1, id="whole", marks=pytest.mark.matrix)])
def test_a_kill_at_any_step_and_another_in_the_recovery_show_every_row_once_and_leave_nothing_open(every: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "integration_tests.kill_matrix.rolling", "--every", str(every)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)

    assert answer["faults"] == {}, done.stderr[-3000:]
    assert set(answer["kills"]) == set(POINTS), "one that is never killed at proves nothing"
    assert sum(answer["kills"].values()) > 600 // every
    assert sum(answer["races"].values()) == 100 // every
    assert answer["races"]["one was overtaken"] > 0
