"""One Spark for all tests that run in this process; drivers that tests kill are processes of their own."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import epochal
from epochal.testing import servers
from epochal.testing.servers import CassandraCluster, KafkaCluster, PostgresServer
from integration_tests.scheduling import ByServer, rank_of
from integration_tests.spark import jvm
from integration_tests.spark.children import Children, children
from integration_tests.spark.driver import Ending
from integration_tests.spark.stateful import MAINTENANCE
from integration_tests.spark.waiting import wait_until
from integration_tests.spark.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return ByServer(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def java_options(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Options of a quick JVM, for every Spark that is started from here on, by whatever command.

    Its archive of classes is made once and kept in pytest's cache.
    """
    cache = getattr(request.config, "cache", None)
    home = cache.mkdir("epochal-spark") if cache is not None else tmp_path_factory.mktemp("classes")
    archive = Path(home, jvm.archive_name())
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two that run at once, one makes it
        if not archive.exists():
            _make(archive, World(tmp_path_factory.mktemp("classes")))
    options = jvm.archived(archive)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in jvm.environment(options).items():
            environment.setenv(name, value)
        yield options


def _make(archive: Path, world: World) -> None:
    made = archive.with_suffix(".made")
    world.feed(2)
    with children(jvm.archiving(made)) as started:
        ended = started.run(world.root, "--sinks", "all")
    assert ended.ending is Ending.DONE, ended.output
    wait_until(made.exists, "Java to archive its classes")
    made.replace(archive)


@pytest.fixture
def drivers(java_options: str) -> Iterator[Children]:
    """Starts drivers; none outlives the test."""
    with children(java_options) as started:
        yield started


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="session")
def spark(java_options: str) -> Iterator[SparkSession]:
    """The session of all tests that need no process of their own."""
    session = epochal.session("tests", master="local[2]", conf={**jvm.CHEAP, **MAINTENANCE}, kafka=True, s3=True)
    yield session
    session.stop()


@pytest.fixture
def view(spark: SparkSession, tmp_path: Path) -> str:
    """The test's folder as a Hadoop file system that is not the local one. Its rename is as strict as HDFS's."""
    conf = spark._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.tests.link./data", f"file:{tmp_path}")
    conf.set("fs.viewfs.impl.disable.cache", "true")  # the next test has another folder
    return "viewfs://tests/data"


@pytest.fixture(scope="session")
def running_broker() -> Iterator[KafkaCluster]:
    """A broker for all tests of this process; a test that kills it, or needs it, starts it again."""
    # Transactions that have timed out are rolled back at once.
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with servers.kafka(own=True, settings=quick) as cluster:
        yield cluster


@pytest.fixture
def broker(running_broker: KafkaCluster) -> KafkaCluster:
    """That broker, which runs."""
    for node in running_broker.nodes:
        node.start()
    return running_broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process that do not harm it."""
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def cassandra() -> Iterator[CassandraCluster]:
    """One node, started once a run: that of EPOCHAL_CASSANDRA, a container, or a process. Not to be killed."""
    with servers.cassandra() as cluster:
        yield cluster
