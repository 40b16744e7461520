"""Rows for Cassandra that are staged on an object store, by drivers that are killed around it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from epochal.testing import servers
from integration_tests.cassandra.streams import check_after_a_kill, check_at_the_end, make_tables
from integration_tests.cassandra.tables import Keyspace
from integration_tests.objects.stores import skip_without_versitygw
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.children import Children
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.local, pytest.mark.matrix, pytest.mark.timeout(3600)]

CHAIN = ("after-write@2", "after-prepared", "after-decided", "before-cleanup@2")


@pytest.mark.parametrize("server", [None, "versitygw"], ids=["moto", "versitygw"])
def test_a_kill_around_staging_on_an_object_store_loses_and_doubles_nothing(
    server: str | None,
    drivers: Children,
    world: World,
    space: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote = pytest.importorskip("integration_tests.objects.remote")
    if server:
        skip_without_versitygw()
    with servers.s3(server=server) as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        store = remote.Remote(s3, f"{s3.url}/{uuid.uuid4().hex}", tmp_path)
        where = ["--cassandra", make_tables(space), "--s3", "--staging", store.uri]
        files = killed_at_each(
            drivers, world, CHAIN, ["--sinks", "cassandra", *where], lambda: check_after_a_kill(world, space)
        )

        check_at_the_end(world, space, files=files)
        assert store.objects() == [], "nothing that was staged is left"
