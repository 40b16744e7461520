"""No failpoint is without a kill on either side that ``make test`` makes, of a driver with Spark and a real store.

Each chain is said in one file; what is marked ``matrix`` does not count here.
"""

from __future__ import annotations

from epochal.txn import failpoints
from integration_tests.cassandra import test_kills as cassandra
from integration_tests.delta import test_kills as delta
from integration_tests.hdfs import test_kills as hdfs
from integration_tests.hdfs import test_rolling as rolling_on_hdfs
from integration_tests.spark import test_completion as completion
from integration_tests.spark import test_kill_chain as chain
from integration_tests.spark import test_rolling_kills as rolling

ON_LOCAL_DISKS = (*chain.CHAIN, *chain.EAGER_CHAIN, *rolling.CHAIN, *rolling.IDLE_CHAIN, *completion.CHAIN)
ON_SERVERS = (*hdfs.CHAIN, *rolling_on_hdfs.CHAIN, *cassandra.CHAIN, *cassandra.IN_WORKERS, *delta.CHAIN)


def names(chain: tuple[str, ...]) -> set[str]:
    return {point.partition("@")[0] for point in chain}


def test_every_failpoint_is_killed_at_by_default() -> None:
    assert names((*ON_LOCAL_DISKS, *ON_SERVERS)) == {*failpoints.NAMES}


def test_what_needs_no_server_is_killed_at_without_one() -> None:
    of_servers = {*chain.OF_CASSANDRA, *rolling.ON_HDFS}

    assert names(ON_LOCAL_DISKS) == {*failpoints.NAMES} - of_servers
