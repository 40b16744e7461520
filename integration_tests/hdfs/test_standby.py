"""A hot standby whose lease is in a checkpoint on HDFS: one driver is killed, the next is suspended, rows are exact."""

from __future__ import annotations

import os
import signal
import time

import pytest

from epochal.sinks.storage.webhdfs import WebHdfsFiles
from epochal.spark_plugins.standby.notices import read_notices
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.checks import check_at_the_end
from integration_tests.spark.children import Child, Children
from integration_tests.spark.driver import Ending

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1200)]

STANDBY = ("--every", "100 milliseconds", "--sinks", "2", "--standby", "--unwarmed")


def committed(remote: Remote) -> set[int]:
    """The epochs in Spark's commits/."""
    names = WebHdfsFiles(remote.cluster.web).names(f"{remote.uri}/checkpoint/commits")
    return {int(name) for name in names if name.isdecimal()}


def is_waiting(remote: Remote, child: Child) -> bool:
    files, journal = WebHdfsFiles(remote.cluster.web), f"{remote.uri}/checkpoint/epochal"
    return any(one.ready and one.process.pid == child.pid for one in read_notices(files, journal, time.time()))


def test_a_standby_goes_on_when_the_driver_is_killed_and_the_next_when_that_one_is_suspended(
    drivers: Children, remote: Remote
) -> None:
    def started() -> Child:
        return drivers.start(remote.world.root, *STANDBY, *remote.arguments)

    remote.world.feed(2)
    first = started()
    first.wait_until(lambda: committed(remote) == {0, 1}, "two epochs")
    second = started()
    second.wait_until(lambda: is_waiting(remote, second), "the second driver to wait")
    os.killpg(first.pid, signal.SIGKILL)
    remote.world.feed(3)
    second.wait_until(lambda: committed(remote) == {0, 1, 2}, "an epoch of the second driver")
    third = started()
    third.wait_until(lambda: is_waiting(remote, third), "the third driver to wait")
    os.killpg(second.pid, signal.SIGSTOP)
    remote.world.feed(4)
    third.wait_until(lambda: committed(remote) == {0, 1, 2, 3}, "an epoch of the third driver")
    os.killpg(second.pid, signal.SIGCONT)
    fenced = second.wait()
    third.interrupt()
    last = third.wait()

    assert fenced.ending is Ending.FENCED_OUT, fenced.output
    assert last.ending is Ending.INTERRUPTED, last.output
    check_at_the_end(remote.look(), files=4)
