"""Servers end with whoever asked for them. Real processes, of `sleep` instead of a server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from epochal.testing.processes import fork
from epochal.testing.servers import ServerFailed
from epochal.testing.servers.supervisor import Supervisor

# Starts two processes, prints their pids, and waits to be killed.
STARTER = """
import json, os, signal, sys, time
from pathlib import Path
from epochal.testing.servers.supervisor import Supervisor
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run with it ignored
forking = "--fork" in sys.argv
supervisor = Supervisor(Path(sys.argv[1]) if len(sys.argv) > 1 and not forking else None)
pids = [
    supervisor.start(["sleep", "600"], folder=supervisor.folder, log=supervisor.folder / "log", environment={})
    for _ in range(2)
]
forked = os.fork() if forking else -1
if forked:
    folder, pid = str(supervisor.folder), supervisor.pid
    print(json.dumps({"folder": folder, "supervisor": pid, "pids": pids, "forked": forked}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    started = Supervisor()
    yield started
    started.end()


def sleep(supervisor: Supervisor) -> int:
    return run(supervisor, "sleep", "600")


def run(supervisor: Supervisor, *command: str) -> int:
    environment = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    return supervisor.start(command, folder=supervisor.folder, log=supervisor.folder / "log", environment=environment)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet waited for does not."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_is_started_watched_and_ended(supervisor: Supervisor) -> None:
    pid = sleep(supervisor)
    assert is_there(pid)
    assert supervisor.code(pid) is None

    supervisor.signal(pid, signal.SIGKILL)
    wait_until(lambda: supervisor.code(pid) is not None)

    assert supervisor.code(pid) == -signal.SIGKILL
    supervisor.signal(pid, signal.SIGKILL)  # nobody is hit


def test_the_log_has_the_output_of_a_process_and_it_runs_with_the_environment_given(supervisor: Supervisor) -> None:
    pid = run(supervisor, "sh", "-c", "echo $GREETING; echo to stderr >&2; exit 3")
    wait_until(lambda: supervisor.code(pid) == 3)

    assert (supervisor.folder / "log").read_text() == "hello\nto stderr\n"


def test_the_end_takes_the_processes_and_the_temporary_folder(supervisor: Supervisor) -> None:
    pids = [sleep(supervisor), sleep(supervisor)]
    supervisor.signal(pids[1], signal.SIGSTOP)  # one that stands still must go too

    supervisor.end()

    assert not any(is_there(pid) for pid in (*pids, supervisor.pid))
    assert not supervisor.folder.exists()
    with pytest.raises(ServerFailed, match="the cluster was stopped"):
        supervisor.code(pids[0])
    supervisor.end()  # a second time does nothing


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whoever_asked_is_killed_and_nothing_is_left(number: signal.Signals) -> None:
    starter = _starter()
    printed = _printed(starter)
    assert all(is_there(pid) for pid in (printed["supervisor"], *printed["pids"]))
    assert Path(printed["folder"]).exists()

    starter.send_signal(number)
    starter.communicate()

    wait_until(lambda: not any(is_there(pid) for pid in (printed["supervisor"], *printed["pids"])))
    assert not Path(printed["folder"]).exists()


def test_a_process_that_the_starter_forked_keeps_nothing_alive() -> None:
    starter = _starter("--fork")
    printed = _printed(starter)
    assert is_there(printed["forked"])

    starter.kill()
    starter.wait()

    wait_until(lambda: not any(is_there(pid) for pid in (printed["supervisor"], *printed["pids"])))
    assert is_there(printed["forked"])  # it holds the starter's end of the pipe
    os.kill(printed["forked"], signal.SIGKILL)
    starter.communicate()


def test_the_end_does_not_wait_for_a_process_that_was_forked(supervisor: Supervisor) -> None:
    forked = fork()
    if not forked:
        signal.pause()  # it holds this process's end of the pipe

    supervisor.end()

    assert not supervisor.folder.exists()
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)


def test_a_killed_supervisor_takes_its_processes_along_and_raises(supervisor: Supervisor) -> None:
    pid = sleep(supervisor)

    os.kill(supervisor.pid, signal.SIGKILL)

    wait_until(lambda: not is_there(pid))
    with pytest.raises(ServerFailed, match="supervisor process was killed"):
        supervisor.code(pid)
    (supervisor.folder / "log").unlink()
    (supervisor.folder / "server.lock").unlink()
    supervisor.folder.rmdir()


def test_a_given_folder_stays_and_holds_one_at_a_time(tmp_path: Path) -> None:
    first = Supervisor(tmp_path / "data")
    (first.folder / "rows").write_text("kept")
    with pytest.raises(ServerFailed, match="a server already runs in"):
        Supervisor(tmp_path / "data")
    first.end()

    again = Supervisor(tmp_path / "data")
    assert (again.folder / "rows").read_text() == "kept"
    again.end()


def test_a_given_folder_stays_when_its_user_is_killed(tmp_path: Path) -> None:
    starter = _starter(str(tmp_path / "data"))
    printed = _printed(starter)

    starter.kill()
    starter.communicate()

    wait_until(lambda: not is_there(printed["supervisor"]))
    assert (tmp_path / "data").exists()
    assert not any(is_there(pid) for pid in printed["pids"])


def test_a_command_registered_for_the_end_runs_at_the_end(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.at_end(["touch", str(tmp_path / "done")])
    assert not (tmp_path / "done").exists()

    supervisor.end()

    assert (tmp_path / "done").exists()


def test_a_missing_command_raises_and_the_supervisor_goes_on(supervisor: Supervisor) -> None:
    with pytest.raises(ServerFailed, match="FileNotFoundError"):
        run(supervisor, "no-such-command")

    assert supervisor.code(sleep(supervisor)) is None


def _starter(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STARTER, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _printed(starter: subprocess.Popen[str]) -> Any:
    assert starter.stdout is not None
    return json.loads(starter.stdout.readline())
