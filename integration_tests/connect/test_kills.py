"""The processes of a query on Spark Connect are killed, one after the other, on one stream: the process that writes
batches at one failpoint after the other, the server, the client. Each start recovers from the kill before it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal.txn.records import Seal, decode
from integration_tests.connect.clients import Client, client
from integration_tests.connect.server import Server, server
from integration_tests.spark.checks import check_after_a_kill, check_at_the_end, committed, planned, visible_rows
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World, all_rows

AHEAD = 4  # files that the source has more than are planned: no run ends before its kill

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


@pytest.mark.parametrize("chain", [CHAIN, pytest.param(LONG_CHAIN, marks=pytest.mark.matrix)], ids=["short", "long"])
def test_kills_of_the_process_that_writes_batches_lose_double_and_show_early_nothing(
    connect: Server, user: Client, world: World, chain: tuple[str, ...]
) -> None:
    for number, point in enumerate(chain):
        name, _, hit = point.partition("@")
        files = len(planned(world)) + AHEAD
        world.feed(files)
        connect.arm(f"{name}=kill@{hit or 1}")
        # Every other time the client settles what it finds decided; else the next start does.
        far = {"unreachable": True, "writer": {"settle_timeout": 0.1}} if number % 2 else {}
        answer = user.run(connect, world, sinks="all", **far)

        assert answer.get("error") in ("StreamingQueryException", "NotSettled"), f"{point}: {answer}"
        assert "Python worker exited unexpectedly" in connect.log.read_text(), point
        check_after_a_kill(world)
    connect.arm("")
    answer = user.run(connect, world, sinks="all")

    assert "error" not in answer, answer
    connect.wait_for_workers()
    check_at_the_end(world, files=files)


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


def test_a_client_that_is_killed_does_not_end_the_query_and_the_next_one_takes_it_over(
    connect: Server, user: Client, world: World, tmp_path: Path
) -> None:
    world.feed(2)
    with client(tmp_path) as other:
        answer = other.run(connect, world, sinks="all", trigger={"processingTime": "0 seconds"}, leave=True)
        assert "error" not in answer, answer
        wait_until(lambda: committed(world), "a first epoch")
        other.kill()
    world.feed(4)
    wait_until(lambda: visible_rows(world.first) == all_rows(4), "epochs without the client")
    assert connect.workers()
    world.feed(6)
    answer = user.run(connect, world, sinks="all")

    assert "error" not in answer, answer
    connect.wait_for_workers()
    check_at_the_end(world, files=6)
