"""Whether Spark's JVM still lives, with another process in its place. The real one is killed in
``integration_tests/spark/test_endings.py``.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from epochal.spark_plugins.jvm import Jvm

LISTEN = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
input()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-S", "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield started
    started.kill()
    started.communicate()


def port_of(child: subprocess.Popen[str]) -> int:
    assert child.stdout is not None
    return int(child.stdout.readline())


def session(pid: int, port: int) -> Any:
    current = SimpleNamespace(pid=lambda: pid)
    handle = SimpleNamespace(current=lambda: current)
    gateway = SimpleNamespace(
        gateway_parameters=SimpleNamespace(address="127.0.0.1", port=port),
        jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=handle))),
    )
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))


def test_it_is_gone_once_its_process_has_ended_and_nobody_answers(child: subprocess.Popen[str]) -> None:
    jvm = Jvm(session(child.pid, port_of(child)))
    alive = jvm.is_gone()
    child.kill()

    assert not alive
    assert jvm.is_gone(patience=30)  # a zombie: its parent has not asked yet how it ended
    child.wait()
    assert jvm.is_gone()
    assert str(jvm) == f"Spark's JVM (pid {child.pid})"


def test_it_is_not_gone_while_somebody_answers(child: subprocess.Popen[str]) -> None:
    port_of(child)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        jvm = Jvm(session(child.pid, listening.getsockname()[1]))
        child.kill()
        child.wait()

        assert not jvm.is_gone()


def test_a_pid_of_another_table_of_processes_is_not_watched(child: subprocess.Popen[str]) -> None:
    port = port_of(child)
    child.kill()
    child.wait()
    began = time.monotonic()
    jvm = Jvm(session(child.pid, port))

    assert jvm.process is None
    assert not jvm.is_gone(patience=30)
    assert time.monotonic() - began < 20
    assert str(jvm) == "Spark's JVM"
