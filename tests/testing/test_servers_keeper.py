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
from epochal.testing.servers.keeping import Keeper

# Starts two processes, tells about them, and waits to be killed.
STARTER = """
import json, os, signal, sys, time
from pathlib import Path
from epochal.testing.servers.keeping import Keeper
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run with it ignored
forking = "--fork" in sys.argv
keeper = Keeper(Path(sys.argv[1]) if len(sys.argv) > 1 and not forking else None)
pids = [
    keeper.start(["sleep", "600"], folder=keeper.folder, log=keeper.folder / "log", environment={})
    for _ in range(2)
]
forked = os.fork() if forking else -1
if forked:
    print(json.dumps({"folder": str(keeper.folder), "keeper": keeper.pid, "pids": pids, "forked": forked}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    kept = Keeper()
    yield kept
    kept.end()


def sleep(keeper: Keeper) -> int:
    return run(keeper, "sleep", "600")


def run(keeper: Keeper, *command: str) -> int:
    environment = {"PATH": os.environ["PATH"], "SAID": "hello"}
    return keeper.start(command, folder=keeper.folder, log=keeper.folder / "log", environment=environment)


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


def test_a_process_is_started_watched_and_ended(keeper: Keeper) -> None:
    pid = sleep(keeper)
    assert is_there(pid)
    assert keeper.code(pid) is None

    keeper.signal(pid, signal.SIGKILL)
    wait_until(lambda: keeper.code(pid) is not None)

    assert keeper.code(pid) == -signal.SIGKILL
    keeper.signal(pid, signal.SIGKILL)  # nobody is hit


def test_what_a_process_says_is_in_the_log_and_it_has_the_environment_it_was_given(keeper: Keeper) -> None:
    pid = run(keeper, "sh", "-c", "echo $SAID; echo to stderr >&2; exit 3")
    wait_until(lambda: keeper.code(pid) == 3)

    assert (keeper.folder / "log").read_text() == "hello\nto stderr\n"


def test_the_end_takes_the_processes_and_the_temporary_folder(keeper: Keeper) -> None:
    pids = [sleep(keeper), sleep(keeper)]
    keeper.signal(pids[1], signal.SIGSTOP)  # one that stands still must go too

    keeper.end()

    assert not any(is_there(pid) for pid in (*pids, keeper.pid))
    assert not keeper.folder.exists()
    with pytest.raises(ServerFailed, match="stopped for good"):
        keeper.code(pids[0])
    keeper.end()  # a second time does nothing


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whoever_asked_is_killed_and_nothing_is_left(number: signal.Signals) -> None:
    starter = _starter()
    told = _told(starter)
    assert all(is_there(pid) for pid in (told["keeper"], *told["pids"]))
    assert Path(told["folder"]).exists()

    starter.send_signal(number)
    starter.communicate()

    wait_until(lambda: not any(is_there(pid) for pid in (told["keeper"], *told["pids"])))
    assert not Path(told["folder"]).exists()


def test_a_process_that_the_starter_forked_keeps_nothing_alive() -> None:
    starter = _starter("--fork")
    told = _told(starter)
    assert is_there(told["forked"])

    starter.kill()
    starter.wait()

    wait_until(lambda: not any(is_there(pid) for pid in (told["keeper"], *told["pids"])))
    assert is_there(told["forked"])  # it holds the starter's end of the pipe
    os.kill(told["forked"], signal.SIGKILL)
    starter.communicate()


def test_the_end_does_not_wait_for_a_process_that_was_forked(keeper: Keeper) -> None:
    forked = fork()
    if not forked:
        signal.pause()  # it holds this process's end of the pipe

    keeper.end()

    assert not keeper.folder.exists()
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)


def test_a_killed_keeper_takes_its_processes_along_and_is_told(keeper: Keeper) -> None:
    pid = sleep(keeper)

    os.kill(keeper.pid, signal.SIGKILL)

    wait_until(lambda: not is_there(pid))
    with pytest.raises(ServerFailed, match="keeper was ended"):
        keeper.code(pid)
    (keeper.folder / "log").unlink()
    (keeper.folder / "keeper.lock").unlink()
    keeper.folder.rmdir()


def test_a_given_folder_stays_and_holds_one_at_a_time(tmp_path: Path) -> None:
    first = Keeper(tmp_path / "data")
    (first.folder / "rows").write_text("kept")
    with pytest.raises(ServerFailed, match="a server already runs in"):
        Keeper(tmp_path / "data")
    first.end()

    again = Keeper(tmp_path / "data")
    assert (again.folder / "rows").read_text() == "kept"
    again.end()


def test_a_given_folder_stays_when_its_user_is_killed(tmp_path: Path) -> None:
    starter = _starter(str(tmp_path / "data"))
    told = _told(starter)

    starter.kill()
    starter.communicate()

    wait_until(lambda: not is_there(told["keeper"]))
    assert (tmp_path / "data").exists()
    assert not any(is_there(pid) for pid in told["pids"])


def test_what_is_left_for_the_end_is_done_at_the_end(keeper: Keeper, tmp_path: Path) -> None:
    keeper.at_end(["touch", str(tmp_path / "done")])
    assert not (tmp_path / "done").exists()

    keeper.end()

    assert (tmp_path / "done").exists()


def test_a_command_that_is_not_there_is_told_and_the_keeper_goes_on(keeper: Keeper) -> None:
    with pytest.raises(ServerFailed, match="FileNotFoundError"):
        run(keeper, "no-such-command")

    assert keeper.code(sleep(keeper)) is None


def _starter(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STARTER, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _told(starter: subprocess.Popen[str]) -> Any:
    assert starter.stdout is not None
    return json.loads(starter.stdout.readline())
