"""Processes of HDFS, and writers to it, are killed in mid-stream: the stream goes on or stops, and rows are exact."""

from __future__ import annotations

from collections import Counter

import pytest

from epochal.testing.servers import HdfsCluster
from epochal.txn.files import TEMPORARY
from integration_tests.hdfs.admin import copy_here, dfsadmin, die_writing, half_written
from integration_tests.hdfs.streams import FILES, HELD, MID_COMMIT, Stream
from integration_tests.spark.checks import check_at_the_end, leftovers, visible_rows
from integration_tests.spark.driver import Ending
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import Row, put_source_file

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_datanode_killed_in_mid_block_is_done_without(stream: Stream, mortal_hdfs: HdfsCluster) -> None:
    # Rows of which half wait at the gate, so long that the other half fills packets: one file, open in its middle.
    rows: list[Row] = [(n, n // 300, "kind", f"{n}-" + "x" * 2_000) for n in range(600)]
    world = stream.remote.world
    put_source_file(world.source, 0, rows)
    gate = world.root / "slow"
    gate.touch()
    driver = stream.start("--sinks", "json", "--slow-gate", str(gate), files=0)
    wait_until(lambda: half_written(mortal_hdfs, stream.target), "a file to be half written")
    (path,) = half_written(mortal_hdfs, stream.target)
    mortal_hdfs.datanodes[0].kill()
    # The NameNode hears how long an open file is only from a writer that has lost a DataNode and goes on without.
    wait_until(lambda: stream.remote.client.status(path)["length"], "its writer to go on in mid-block")
    gate.unlink()
    ended = driver.wait()
    copy_here(mortal_hdfs, stream.target, world.first)

    assert ended.ending is Ending.DONE, ended.output
    assert visible_rows(world.first) == Counter(rows)
    assert leftovers(world.first) == []


def test_a_cluster_of_which_every_process_was_killed_in_mid_commit_has_lost_nothing(
    stream: Stream, mortal_hdfs: HdfsCluster
) -> None:
    stream.stop_at(MID_COMMIT)
    for node in mortal_hdfs.nodes:
        node.kill()
    stream.go_on(until=HELD)
    for node in mortal_hdfs.nodes:
        node.start()
    mortal_hdfs.wait_until_ready()

    stream.check_resumed()


def test_files_that_are_leased_to_dead_writers_are_removed_by_the_next_start(
    stream: Stream, mortal_hdfs: HdfsCluster
) -> None:
    killed = stream.start(points="after-write=kill@3").wait()
    (lineage,) = stream.remote.client.list(f"{stream.target}/_epochal/staged")
    (attempt,) = stream.remote.client.list(f"{stream.target}/_epochal/staged/{lineage}")
    dead = [
        f"{stream.target}/_epochal/staged/{lineage}/{attempt}/data/kind=a/part-00007.parquet",
        f"{stream.target}/_epochal/lineages/{TEMPORARY}{lineage}.json",
        f"{stream.path}/checkpoint/epochal/{TEMPORARY}e000000000002.prepared.json",
    ]
    die_writing(mortal_hdfs, dead)
    ended = stream.start().wait()

    assert killed.ending is Ending.KILLED, killed.output
    assert ended.ending is Ending.DONE, ended.output
    check_at_the_end(stream.remote.look(), files=FILES)
    assert stream.path not in dfsadmin(mortal_hdfs, "-listOpenFiles")
