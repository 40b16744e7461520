"""Spark Connect with stores that are servers: Cassandra, and HDFS by WebHDFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.testing import servers
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import keyspace
from integration_tests.connect.clients import Client, client
from integration_tests.connect.server import Server, server
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.chains import AHEAD
from integration_tests.spark.checks import check_at_the_end, planned
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]


def test_rows_and_totals_in_cassandra_are_exact_after_kills_of_the_process_that_writes_them(
    connect: Server, user: Client, world: World
) -> None:
    with servers.cassandra() as cluster, keyspace(cluster) as space:
        place = streams.make_tables(space)
        for number, point in enumerate(("after-prepared@2", "after-rows", "before-ledger@2", "before-cleanup@2")):
            name, _, hit = point.partition("@")
            files = len(planned(world)) + AHEAD
            world.feed(files)
            connect.arm(f"{name}=kill@{hit or 1}")
            answer = user.run(connect, world, sinks="cassandra", cassandra=place, only_spark=bool(number % 2))

            assert answer.get("error") == "StreamingQueryException", f"{point}: {answer}"
            streams.check_after_a_kill(world, space)
        connect.arm("")
        answer = user.run(connect, world, sinks="cassandra", cassandra=place)

        assert "error" not in answer, answer
        connect.wait_for_workers()
        streams.check_at_the_end(world, space, files=files)


def test_on_hdfs_the_last_epoch_is_shown_by_the_process_that_wrote_it_or_by_the_server_if_that_is_killed(
    java_options: str, tmp_path: Path
) -> None:
    with servers.hdfs() as cluster:
        remote = Remote(cluster, tmp_path)
        reach = {"EPOCHAL_WEBHDFS": cluster.web}
        settings = {f"spark.hadoop.{n.removeprefix('spark.hadoop.')}": v for n, v in cluster.settings.items()}
        with server(tmp_path, java_options, reach, settings) as started, client(tmp_path) as user:
            remote.world.feed(3)
            answer = user.run(started, remote.world, sinks="2", at=remote.uri, only_spark=True)
            started.wait_for_workers()

            assert "error" not in answer, answer
            check_at_the_end(remote.look(), files=3)
            remote.world.feed(5)
            started.arm("before-decided=kill@2")
            answer = user.run(started, remote.world, sinks="2", at=remote.uri)

            assert "error" not in answer, answer
            check_at_the_end(remote.look(), files=5)
            answer = user.run(started, remote.world, sinks="delta", at=remote.uri)

            assert answer["error"] == "OptionError", answer
        with server(tmp_path, java_options, {}, settings) as blind, client(tmp_path) as user:
            answer = user.run(blind, remote.world, sinks="2", at=remote.uri)

            assert answer["error"] == "Refused", answer
            assert "Set EPOCHAL_WEBHDFS to its HTTP address" in answer["text"]
