"""Processes of HDFS are killed just while parts that stay open over epochs are kept, merged, joined and rolled.

A driver stands at a point, a process is killed, the driver goes on; at the next point the next one is killed. A
DataNode is done without. Without a NameNode the stream is held until it is back; only while an epoch is staged the
query stops instead, and the next start is exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from epochal.testing.servers import HdfsCluster
from integration_tests.hdfs.streams import ENDLESS, HELD, NOT_STAGED, Stream
from integration_tests.spark.checks import check_at_the_end, visible_files
from integration_tests.spark.driver import Ending

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Of a process that was killed; in containers the engine still listens at its port, and hangs up.
NOBODY_THERE = re.compile("Connection refused|End of File Exception|Connection reset")
DATANODE = "a DataNode"  # what is killed; else the NameNode is, and this is what the log says then
# A client asks ten times, a second each, before it says that nobody is there.
IMPATIENT = ("--conf", "spark.hadoop.ipc.client.connect.max.retries=1")

# Every step has its turn, and so has each process; that each process is killed on each side of each step is the matrix.
IN_EPOCHS = {
    "before-keep": DATANODE,
    "after-join": HELD,
    "after-merge": NOT_STAGED,
}
LONG_IN_EPOCHS = {
    "before-keep": DATANODE,
    "after-keep@2": HELD,
    "before-join": DATANODE,
    "after-join": HELD,
    "before-merge": DATANODE,
    "after-merge": NOT_STAGED,
}
IN_EPOCHS_TURNED = {
    "before-keep": HELD,
    "after-keep@2": DATANODE,
    "before-join": HELD,
    "after-join": DATANODE,
    "before-merge": NOT_STAGED,
}
BETWEEN_EPOCHS = {
    "before-merge": HELD,
    "before-join": DATANODE,
}
LONG_BETWEEN_EPOCHS = {
    "before-merge": HELD,
    "after-merge": DATANODE,
    "after-roll": HELD,
    "before-join": DATANODE,
    "after-join@2": HELD,
    "after-rolled": DATANODE,
}
BETWEEN_EPOCHS_TURNED = {
    "before-keep": HELD,
    "after-keep@2": DATANODE,
    "before-merge": DATANODE,
    "after-merge": HELD,
    "before-roll": HELD,
    "after-roll": DATANODE,
    "before-join": HELD,
    "after-join": DATANODE,
    "before-rolled": HELD,
    "after-rolled": DATANODE,
}


@pytest.mark.parametrize(
    "turns",
    [IN_EPOCHS, *(pytest.param(turns, marks=pytest.mark.matrix) for turns in (LONG_IN_EPOCHS, IN_EPOCHS_TURNED))],
    ids=["short", "long", "turned"],
)
def test_processes_killed_while_parts_are_kept_joined_and_merged_leave_the_files_that_the_policy_says(
    stream: Stream, mortal_hdfs: HdfsCluster, turns: Mapping[str, str]
) -> None:
    sinks = ("--sinks", "rolling-rows-parquet,json", *IMPATIENT)
    killed_at_each(stream, mortal_hdfs, turns, *sinks, files=6)
    ended = stream.wait()
    killed_at_each(stream, mortal_hdfs, {"after-merge": DATANODE}, *sinks, files=6)
    again = stream.wait()

    assert ended.ending is Ending.FAILED, ended.output
    assert NOBODY_THERE.search(stream.told(NOT_STAGED))
    assert again.ending is Ending.DONE, again.output
    world = stream.remote.look()
    check_at_the_end(world, files=6)
    assert len(visible_files(world.first)) == 6  # of 3 buckets, each with 2 rows in an epoch: full at the third
    assert len(visible_files(world.second)) == 6  # of 2 buckets, each with 3 rows in an epoch: full at the second


@pytest.mark.parametrize(
    "turns",
    [
        BETWEEN_EPOCHS,
        *(pytest.param(turns, marks=pytest.mark.matrix) for turns in (LONG_BETWEEN_EPOCHS, BETWEEN_EPOCHS_TURNED)),
    ],
    ids=["short", "long", "turned"],
)
def test_processes_killed_in_a_roll_between_epochs_hold_it_until_they_are_back(
    stream: Stream, mortal_hdfs: HdfsCluster, turns: Mapping[str, str]
) -> None:
    sinks = ("--sinks", "rolling-idle-parquet,json", *IMPATIENT)
    killed_at_each(stream, mortal_hdfs, turns, *sinks, ENDLESS, files=1)
    ended = stream.interrupt()

    assert ended.ending is Ending.INTERRUPTED, ended.output
    world = stream.remote.look()
    check_at_the_end(world, files=1)
    assert len(visible_files(world.first)) == 3  # one a bucket
    assert len(visible_files(world.second)) == 2


def killed_at_each(stream: Stream, cluster: HdfsCluster, turns: Mapping[str, str], *arguments: str, files: int) -> None:
    """Start a driver, and when it stands at a point kill whose turn it is. In the end all run again."""
    calm = None
    for point in stream.stops((*turns,), *arguments, files=files):
        assert calm in (None, stream.times(HELD)), f"{point}: held because a DataNode was away:\n{stream.log()}"
        if turns[point] == DATANODE:
            cluster.wait_until_ready()
            cluster.datanodes[0].kill()
            calm = stream.times(HELD)
            stream.let_go()
        else:
            cluster.namenode.kill()  # and the DataNode may still be away
            stream.go_on(until=turns[point])
            start_all(cluster)
            calm = None
    start_all(cluster)
    cluster.wait_until_ready()


def start_all(cluster: HdfsCluster) -> None:
    for node in cluster.nodes:
        node.start()
