"""Whoever takes part in a query on Spark Connect is killed: the process that writes batches, the one that settles for
a client, the client, the server. The tests have one stream, and each start recovers from the kill before it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from epochal.txn.records import Seal, decode
from integration_tests.connect.clients import Client, client
from integration_tests.connect.server import REPOSITORY, Server, server
from integration_tests.spark.checks import (
    check_after_a_kill,
    check_at_the_end,
    committed,
    leftovers,
    planned,
    visible_rows,
)
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World, all_rows

AHEAD = 4  # files that the source has more than are planned: no run ends before its kill
LASTING = {"processingTime": "0 seconds"}
HELD = " held: "  # in the line that the log gets when a store does not answer
ATTEMPT = re.compile(r"e\d{12}\.g\d{6}\.json")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Both sides of Spark's decision, and a commit halfway. All other steps are the same code as without Spark Connect.
CHAIN = ("after-prepared@2", "after-rename@9")
LONG_CHAIN = (
    "after-generation",
    "after-enrol",
    "before-write",
    "after-write",
    "after-seal",
    "after-stage@2",
    "before-prepared",
    "after-prepared",
    "before-decided",
    "after-decided",
    "before-rename",
    "after-rename@5",
    "after-manifest@2",
    "before-log",
    "after-log",
    "before-cleanup@3",
    "after-commit@3",
    "before-done",
    "after-done@2",
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The stream of these tests."""
    return World(tmp_path_factory.mktemp("stream"))


def feed(world: World, more: int) -> int:
    """Let the source hold so many files more than are planned, or what it has if that is more; how many these are."""
    world.feed(len(planned(world)) + more)
    return len(list(world.source.iterdir()))


def kill_at_each(points: Sequence[str], connect: Server, user: Client, world: World) -> None:
    """Kill the process that writes batches, once at each failpoint."""
    for number, point in enumerate(points):
        name, _, hit = point.partition("@")
        feed(world, AHEAD)
        connect.arm(f"{name}=kill@{hit or 1}")
        # Every other time the next start settles what is decided; else the server does, for its client.
        answer = user.run(connect, world, sinks="all", only_spark=bool(number % 2))

        assert answer.get("error") == "StreamingQueryException", f"{point}: {answer}"
        assert "Python worker exited unexpectedly" in connect.log.read_text(), point
        check_after_a_kill(world)


def test_kills_of_the_process_that_writes_batches_lose_double_and_show_early_nothing(
    connect: Server, user: Client, stream: World
) -> None:
    kill_at_each(CHAIN, connect, user, stream)


@pytest.mark.matrix
def test_kills_at_every_step_lose_double_and_show_early_nothing(connect: Server, user: Client, world: World) -> None:
    kill_at_each(LONG_CHAIN, connect, user, world)
    connect.arm("")
    files = feed(world, 1)
    answer = user.run(connect, world, sinks="all")

    assert "error" not in answer, answer
    connect.wait_for_workers()
    check_at_the_end(world, files=files)


def test_a_client_with_an_old_copy_of_the_checkpoint_returns_when_the_server_has_settled_and_not_before(
    connect: Server, user: Client, far: Client, stream: World
) -> None:
    if not stream.checkpoint.exists():
        feed(stream, 1)
        assert "error" not in user.run(connect, stream, sinks="all")
    shutil.copytree(stream.checkpoint, far.seen(stream.checkpoint))
    files = feed(stream, 2)
    gate, bucket, away = stream.root / "gate", stream.second / "word=one", stream.root / "away"
    connect.arm(f"before-decided=pause:{gate}@{files - len(committed(stream))}")
    query = far.run(connect, stream, sinks="all", leave=True)["id"]
    wait_until(gate.exists, "the process that writes batches to settle the last epoch")
    bucket.rename(away)
    bucket.touch()  # in its place: nothing can be published there
    answer = far.run(connect, stream, of=query, do="settle", timeout=0.5)

    assert answer["error"] == "NotSettled", answer
    assert f"Run `epochal recover {stream.checkpoint}` on the server's machine" in answer["text"]
    tries = connect.log.read_text().count(HELD)
    far.send(connect, stream, of=query, do="wait")
    wait_until(lambda: connect.log.read_text().count(HELD) > tries, "the server to try once more")
    for process in [*connect.callees(), *connect.workers()]:
        os.kill(process, signal.SIGKILL)
    bucket.unlink()
    away.rename(bucket)

    assert "error" not in far.answer()
    check_at_the_end(stream, files=files)


def test_the_newer_client_takes_over_a_killed_one_ends_nothing_and_what_a_killed_server_leaves_harms_nothing(
    connect: Server, user: Client, far: Client, stream: World
) -> None:
    files = feed(stream, 1)
    far.send(connect, stream, sinks="all", trigger=LASTING)
    wait_until(lambda: shows(stream, files), "the older client's epochs")
    gate = stream.root / "second gate"
    connect.arm(f"before-prepared=pause:{gate}@2")
    taken_over = user.run(connect, stream, sinks="all", trigger=LASTING, leave=True)

    assert "error" not in taken_over, taken_over
    assert "error" not in far.answer()  # its query was stopped, and everything is settled
    user.kill()
    files = feed(stream, 1)
    wait_until(lambda: shows(stream, files), "epochs without a client")
    feed(stream, 1)
    wait_until(gate.exists, "an epoch to be staged and not recorded")
    (orphan,) = connect.workers()
    connect.kill()
    check_after_a_kill(stream)
    command = [sys.executable, "-m", "epochal.cli", "gc", str(stream.checkpoint), "--fence", "--yes"]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    assert os.path.exists(f"/proc/{orphan}")
    gate.unlink()
    wait_until(lambda: not os.path.exists(f"/proc/{orphan}"), "what the server left to end")

    check_after_a_kill(stream)
    assert shows(stream, files)
    assert [leftovers(target) for target in stream.targets] == [[], [], []]
    assert isinstance(newest_attempt(stream), Seal)  # in place of what the orphan was about to make


def shows(world: World, files: int) -> bool:
    """Whether every target has the rows of so many files of the source, and no others."""
    return all(visible_rows(target) == all_rows(files) for target in world.targets)


def newest_attempt(world: World) -> object:
    """The record of the newest epoch that was staged."""
    name = max(path.name for path in world.journal.iterdir() if ATTEMPT.fullmatch(path.name))
    return decode(str(world.journal / name), name, (world.journal / name).read_bytes())


@pytest.mark.matrix  # beyond the test above: another server goes on while the first one's process is stalled
def test_a_server_that_is_killed_leaves_a_process_behind_that_harms_nothing(
    connect: Server, user: Client, java_options: str, world: World, tmp_path: Path
) -> None:
    world.feed(AHEAD)
    gate = world.root / "gate"
    with server(tmp_path, java_options) as first, client(tmp_path) as other:
        first.arm(f"before-prepared=pause:{gate}@3")
        other.send(first, world, sinks="all")
        wait_until(gate.exists, "an epoch to be staged and not recorded")
        (orphan,) = first.workers()
        first.kill()
        check_after_a_kill(world)
        answer = user.run(connect, world, sinks="all")
        assert "error" not in answer, answer
        assert os.path.exists(f"/proc/{orphan}")
        gate.unlink()
        wait_until(lambda: not os.path.exists(f"/proc/{orphan}"), "what the server left to end")

    connect.wait_for_workers()
    check_at_the_end(world, files=AHEAD)
    record = world.journal / "e000000000002.g000001.json"  # what the orphan was about to make
    assert isinstance(decode(str(record), record.name, record.read_bytes()), Seal)


@pytest.mark.matrix  # fenced as any driver: tests/txn and integration_tests/spark/test_two_drivers.py
def test_a_start_on_another_server_fences_the_query_of_the_first_one(
    connect: Server, user: Client, java_options: str, world: World, tmp_path: Path
) -> None:
    world.feed(1)
    with server(tmp_path, java_options) as first, client(tmp_path) as other:
        other.send(first, world, sinks="all", trigger=LASTING)
        wait_until(lambda: shows(world, 1), "the epoch of the first server")
        answer = user.run(connect, world, sinks="all")  # reads nothing, and takes the stream over
        assert "error" not in answer, answer
        world.feed(2)
        answer = other.answer()

        assert answer["error"] == "FencedOut", answer
        assert "generation 1 was superseded: generation 2 has taken over" in answer["text"]
        assert first.is_alive
        assert shows(world, 1)
    answer = user.run(connect, world, sinks="all")
    assert "error" not in answer, answer
    connect.wait_for_workers()
    check_at_the_end(world, files=2)
