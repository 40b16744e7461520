"""One object store for all tests of this folder, each in a folder of the bucket that is its own."""

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
from epochal.testing.servers import S3Store
from integration_tests.objects.stores import skip_without_versitygw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = Patience(tries=30, first=0.001, longest=0.02)


@pytest.fixture(scope="session", params=["moto", pytest.param("versitygw", marks=pytest.mark.matrix)])
def s3(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    """Started once a run, or that of EPOCHAL_S3. Not to be killed."""
    pytest.importorskip("obstore")
    if request.param == "moto":
        with servers.s3() as store:
            yield store
    else:
        skip_without_versitygw()
        # A bucket of another name: Hadoop keeps the clients of buckets, whatever the endpoint is now.
        with servers.s3(server="versitygw", bucket="epochal-on-files") as store:
            yield store


@pytest.fixture
def folder(s3: S3Store) -> str:
    """A folder of the test's own, in the bucket."""
    return f"{s3.url}/tests/{uuid.uuid4().hex}"


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
def files(s3: S3Store, folder: str) -> ObjectFiles:
    return open_files(folder, s3.options, patience=QUICK)[0]


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
def behind(s3: S3Store) -> Callable[..., ObjectFiles]:
    """Files of the bucket by another endpoint, such as a proxy's. Nothing is probed."""

    def reach(endpoint: str, copies: bool = False) -> ObjectFiles:
        clients = clients_for(s3.url, {**s3.options, "endpoint": endpoint, "timeout": "5s"})
        return ObjectFiles(s3.url, clients.make(), lambda: copies, patience=QUICK)

    return reach
