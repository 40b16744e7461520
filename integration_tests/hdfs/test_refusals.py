"""HDFS says no, or is gone: safe mode, quotas, rights, kills. One line tells it, and rows are exact after."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from epochal.testing.servers import HdfsCluster
from epochal.testing.servers.cluster import Node
from integration_tests.hdfs.admin import dfsadmin, safe_mode
from integration_tests.hdfs.streams import FILES, HELD, MID_COMMIT, MID_STAGE, NOT_STAGED, Stream
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.driver import Ending

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

FIRST_COMMIT = "before-commit@1"  # of which buckets are made


def test_a_quota_a_withdrawn_right_and_safe_mode_hold_the_stream_one_after_the_other_until_they_are_lifted(
    stream: Stream, mortal_hdfs: HdfsCluster
) -> None:
    stream.run_as("eve")
    stops = stream.stops((FIRST_COMMIT, MID_COMMIT))
    next(stops)
    with quota(mortal_hdfs, "Quota", stream.target):
        stream.go_on(until=HELD)
        full, end = stream.told(HELD), len(stream.log())
        stream.give("adam", stream.target)
    stream.wait_for("PermissionError")
    withdrawn = stream.told("PermissionError", after=end)
    stream.give("eve", stream.target)
    next(stops)
    end = len(stream.log())
    with safe_mode(mortal_hdfs):
        stream.go_on(until=HELD)
    safe = stream.told(HELD, after=end)

    buckets = f"{stream.remote.uri}/first/kind="
    assert f"epoch 0 cannot be committed to first: OSError: {buckets}" in full
    assert f"quota (directories and files) of directory {stream.target} is exceeded" in full
    assert "Raise the quota" in full
    assert f"epoch 0 cannot be committed to first: PermissionError: {buckets}" in withdrawn
    assert f'user=eve, access=WRITE, inode="{stream.target}":adam' in withdrawn
    assert f"epoch 1 cannot be committed to first: OSError: {stream.remote.uri}/first/" in safe
    assert "Name node is in safe mode" in safe
    stream.check_resumed()


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.matrix)], ids=["three", "five"])
def test_whatever_fails_while_an_epoch_is_staged_stops_the_query_and_the_next_start_is_exact(
    stream: Stream, mortal_hdfs: HdfsCluster, every: bool
) -> None:
    """Faults, each in the driver that starts after the one before: every start but the first is a next start."""
    stream.run_as("eve")

    def stopped_by(fault: contextlib.AbstractContextManager[object], point: str) -> str:
        """What a driver says last that meets a fault at a point."""
        stream.stop_at(point)
        before = len(stream.log())
        with fault:
            stream.go_on(until=NOT_STAGED)
        ended = stream.wait()

        assert ended.ending is Ending.FAILED, ended.output
        return stream.told(NOT_STAGED, after=before)

    missing = stopped_by(_right_taken_from(stream), MID_STAGE)
    assert "Permission denied: user=eve, access=WRITE" in missing
    assert stream.target in missing

    # Each replays the epoch that the one before could not stage.
    if every:
        assert "Name node is in safe mode" in stopped_by(safe_mode(mortal_hdfs), "before-write")
        stopped_by(_killed(mortal_hdfs, [mortal_hdfs.namenode]), "before-write")

    full = stopped_by(quota(mortal_hdfs, "SpaceQuota", stream.target), "before-write")
    assert f"The DiskSpace quota of {stream.target} is exceeded" in full
    assert "Raise the quota" in full

    stopped_by(_killed(mortal_hdfs, mortal_hdfs.nodes), "before-prepared")

    last = stream.start().wait()
    assert last.ending is Ending.DONE, last.output
    check_at_the_end(stream.remote.look(), files=FILES)


@contextlib.contextmanager
def _right_taken_from(stream: Stream) -> Iterator[None]:
    """Let the folder of staged epochs be another's."""
    (lineage,) = stream.remote.client.list(f"{stream.target}/_epochal/staged")
    stream.give("adam", f"{stream.target}/_epochal/staged/{lineage}")
    try:
        yield
    finally:
        stream.give("eve", f"{stream.target}/_epochal/staged/{lineage}")


@contextlib.contextmanager
def _killed(cluster: HdfsCluster, nodes: Sequence[Node]) -> Iterator[None]:
    """Kill processes of a cluster; afterwards they run again."""
    for node in nodes:
        node.kill()
    try:
        yield
    finally:
        for node in nodes:
            node.start()
        cluster.wait_until_ready()


def test_a_target_that_may_not_be_written_is_told_at_the_start_and_stays_empty(stream: Stream) -> None:
    stream.run_as("eve")
    stream.remote.client.makedirs(stream.target)
    ended = stream.start().wait()
    found = stream.remote.client.list(stream.target)
    stream.give("eve", stream.target)
    again = stream.start().wait()

    assert ended.ending is Ending.FAILED
    assert f"sink 'first': its target cannot be reached: {stream.remote.uri}/first/_epochal/" in ended.output
    assert f'user=eve, access=WRITE, inode="{stream.target}"' in ended.output
    assert found == []
    assert again.ending is Ending.DONE, again.output
    check_at_the_end(stream.remote.look(), files=FILES)


@contextlib.contextmanager
def quota(cluster: HdfsCluster, kind: str, folder: str) -> Iterator[None]:
    """Let a folder be full."""
    dfsadmin(cluster, f"-set{kind}", "1", folder)
    try:
        yield
    finally:
        dfsadmin(cluster, f"-clr{kind}", folder)
