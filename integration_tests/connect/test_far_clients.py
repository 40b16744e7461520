"""Clients that do not see the files of the server, or see others in their place."""

from __future__ import annotations

import shutil

import pytest

from integration_tests.connect.clients import Client
from integration_tests.connect.server import Server
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_client_that_has_an_old_copy_of_the_checkpoint_does_not_take_it_for_the_servers(
    connect: Server, far: Client, world: World
) -> None:
    world.feed(1)
    assert "error" not in far.run(connect, world, sinks="1")
    connect.wait_for_workers()
    shutil.copytree(world.root, far.seen(world.root), dirs_exist_ok=True)
    world.feed(3)
    connect.arm("before-decided=kill@2")
    answer = far.run(connect, world, sinks="1")
    connect.arm("")

    assert "error" not in answer, answer
    check_at_the_end(world, files=3)
