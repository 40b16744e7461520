from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import pytest

from epochal.testing.processes import in_processes, in_threads
from epochal.txn.errors import DataLost

Run = Callable[[Sequence[Callable[[], object]]], list[object]]


def fail() -> object:
    raise DataLost("gone")


@pytest.mark.parametrize("run", [in_threads, in_processes])
def test_answers_and_errors_come_back_in_the_order_of_the_calls(run: Run) -> None:
    first, second, third = run([lambda: 1, fail, lambda: [2]])

    assert (first, third) == (1, [2])
    assert isinstance(second, DataLost)
    assert str(second) == "gone"


def test_processes_are_processes_of_their_own() -> None:
    answers = in_processes([os.getpid, os.getpid])

    assert len({os.getpid(), *answers}) == 3


def test_a_process_that_is_killed_is_reported() -> None:
    (answer,) = in_processes([lambda: os.kill(os.getpid(), signal.SIGKILL)])

    assert isinstance(answer, RuntimeError)
    assert "-9" in str(answer)


def test_an_answer_that_cannot_travel_is_reported() -> None:
    (answer,) = in_processes([lambda: lambda: None])

    assert isinstance(answer, RuntimeError)
    assert "cannot be pickled" in str(answer)
