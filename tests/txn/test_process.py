from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from epochal.testing.processes import fork
from epochal.txn import process
from epochal.txn.process import Process, Running, running, this_process

SHOW = """
import json, dataclasses, epochal.txn.process as p
print(json.dumps(dataclasses.asdict(p.this_process())), flush=True)
input()
"""


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], Process]]:
    """Another process, which says who it is and then waits."""
    started = subprocess.Popen([sys.executable, "-c", SHOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    answer = Process(**json.loads(started.stdout.readline()))
    yield started, answer
    started.kill()
    started.communicate()


def test_a_process_that_runs_is_recognised_by_another(child: tuple[subprocess.Popen[str], Process]) -> None:
    started, answer = child

    assert answer.pid == started.pid
    assert running(answer) is Running.YES
    assert abs((answer.started or 0) - time.time()) < 60


def test_a_forked_process_is_another_one() -> None:
    this_process()
    ours, theirs = os.pipe()
    pid = fork()
    if pid == 0:
        os.write(theirs, json.dumps(asdict(this_process())).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        answer = Process(**json.load(pipe))
    os.waitpid(pid, 0)

    assert answer.pid == pid
    assert answer != this_process()


def test_a_killed_process_is_dead_at_once_even_if_its_parent_has_not_noticed(
    child: tuple[subprocess.Popen[str], Process],
) -> None:
    started, answer = child
    os.kill(started.pid, signal.SIGKILL)
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped

    assert running(answer) is Running.NO
    started.wait()
    assert running(answer) is Running.NO


def test_a_suspended_process_still_runs(child: tuple[subprocess.Popen[str], Process]) -> None:
    started, answer = child
    os.kill(started.pid, signal.SIGSTOP)

    assert running(answer) is Running.YES


def test_another_process_with_the_same_pid_is_not_taken_for_it() -> None:
    me = this_process()
    assert me.ticks is not None

    assert running(me) is Running.YES
    assert running(replace(me, ticks=me.ticks - 1)) is Running.NO


@pytest.mark.parametrize("machine", ["another-boot pid:[4026531836]", "another-namespace"])
def test_nothing_is_said_about_a_process_of_another_machine_or_container(machine: str) -> None:
    assert running(replace(this_process(), machine=machine)) is Running.UNKNOWN


def test_a_record_with_host_and_pid_alone_proves_death_but_not_life() -> None:
    me = this_process()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    assert running(Process(host=me.host, pid=me.pid)) is Running.UNKNOWN  # the pid may have been used again
    assert running(Process(host=me.host, pid=gone.pid)) is Running.NO
    assert running(Process(host="elsewhere", pid=gone.pid)) is Running.UNKNOWN
    assert running(Process()) is Running.UNKNOWN


def test_without_proc_a_pid_is_looked_up_by_a_signal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "PROC", str(tmp_path))
    me = this_process()

    assert (me.started, me.ticks, me.machine) == (None, None, None)
    assert running(me) is Running.UNKNOWN
    assert running(replace(me, pid=2**22 + 1)) is Running.NO
