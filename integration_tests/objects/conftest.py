"""One object store for all tests of this folder, each in a folder of the bucket that is its own.

Tests that ask for `any_store` run on every server. Those that ask for `s3` run on the servers that speak its protocol.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from epochal.sinks.storage.objects import ObjectFiles, clients_for, open_files, probe
from epochal.sinks.storage.objects.patience import Patience
from epochal.spark_plugins.s3 import store_settings
from epochal.testing import servers
from epochal.testing.servers import S3Store, azure, google
from epochal.testing.servers.store_server import StoreServer
from integration_tests.objects.stores import skip_without_azurite, skip_without_fake_gcs, skip_without_versitygw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = Patience(tries=30, first=0.001, longest=0.02)


S3_SERVERS = ("moto", pytest.param("versitygw", marks=pytest.mark.matrix))
OTHERS = tuple(pytest.param(name, marks=pytest.mark.matrix) for name in ("azurite", "fake-gcs-server"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_store" in metafunc.fixturenames:
        stores = S3_SERVERS if "s3" in metafunc.fixturenames else (*S3_SERVERS, *OTHERS)
        metafunc.parametrize("any_store", stores, indirect=True, scope="session")


@pytest.fixture(scope="session")
def any_store(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    """Started once a run, or that of EPOCHAL_S3. Not to be killed."""
    pytest.importorskip("obstore")
    with _start(request.param) as store:
        yield store


def _start(name: str) -> StoreServer:
    match name:
        case "moto":
            return servers.s3()
        case "versitygw":
            skip_without_versitygw()
            # A bucket of another name: Hadoop keeps the clients of buckets, whatever the endpoint is now.
            return servers.s3(server="versitygw", bucket="epochal-on-files")
        case "azurite":
            skip_without_azurite()
            return azure.start()
        case "fake-gcs-server":
            skip_without_fake_gcs()
            return google.start()
    raise AssertionError(name)


@pytest.fixture(scope="session")
def s3(any_store: StoreServer) -> S3Store:
    """The same for a test that needs S3's protocol."""
    assert isinstance(any_store, S3Store)
    return any_store


@pytest.fixture
def folder(any_store: StoreServer) -> str:
    """A folder of the test's own, in the bucket."""
    return f"{any_store.url}/tests/{uuid.uuid4().hex}"


@pytest.fixture
def spark_on_s3(spark: SparkSession, reached: S3Store) -> SparkSession:
    """The session of all, which was started before anybody knew where the store is."""
    # A JVM's environment is that of its start: credentials are settings here.
    own = {
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    settings = {**store_settings(os.environ), **{f"spark.hadoop.fs.s3a.{name}": value for name, value in own.items()}}
    conf: Any = spark._jsc.hadoopConfiguration()
    for name, value in settings.items():
        conf.set(name.removeprefix("spark.hadoop."), value)
    return spark


@pytest.fixture
def files(any_store: StoreServer, folder: str) -> ObjectFiles:
    return open_files(folder, any_store.options, patience=QUICK)[0]


@pytest.fixture
def reached(s3: S3Store, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """The store, which this process reaches by its environment, as in production."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: no store is proven yet."""
    monkeypatch.setattr(probe, "_proven", {})


@pytest.fixture
def behind(any_store: StoreServer) -> Callable[..., ObjectFiles]:
    """Files of the bucket by another endpoint, such as a proxy's. Nothing is probed."""

    def reach(endpoint: str, copies: bool = False) -> ObjectFiles:
        clients = clients_for(any_store.url, {**any_store.options_at(endpoint), "timeout": "5s"})
        return ObjectFiles(any_store.url, clients.make(), lambda: copies, patience=QUICK)

    return reach
