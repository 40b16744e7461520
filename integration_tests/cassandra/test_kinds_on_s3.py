"""Files, Delta and Cassandra in one writer, with targets, staged rows, checkpoint and journal on an object store."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from epochal.testing import servers
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import Keyspace
from integration_tests.spark import checks
from integration_tests.spark.chains import killed_at_each
from integration_tests.spark.children import Children

pytestmark = [pytest.mark.spark, pytest.mark.local, pytest.mark.timeout(3600)]

# Of four sinks (files, Delta, rows, totals).
CHAIN = ("after-rename@2", "after-log", "after-rows")
LONG_CHAIN = (
    "after-generation",
    "after-enrol@2",
    "before-table",
    "after-write@4",  # leaves staged files and rows without a record
    "after-seal",
    "after-prepared",
    "before-decided",
    "after-decided",
    "before-rename",
    "after-rename@2",
    "after-manifest",
    "before-log",
    "after-log",
    "before-rows",
    "after-rows",
    "before-ledger",
    "after-cleanup@3",
    "after-commit@3",
    "before-done",
)


@pytest.mark.parametrize("chain", [CHAIN, pytest.param(LONG_CHAIN, marks=pytest.mark.matrix)], ids=["short", "long"])
def test_kills_leave_all_kinds_of_sinks_on_the_same_whole_epoch(
    drivers: Children, space: Keyspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: tuple[str, ...]
) -> None:
    remote = pytest.importorskip("integration_tests.objects.remote")
    with servers.s3() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        store = remote.Remote(s3, f"{s3.url}/{uuid.uuid4().hex}", tmp_path, checkpoint=True)

        def check() -> None:
            world = store.look()
            checks.check_after_a_kill(world)
            streams.check_after_a_kill(world, space)

        arguments = ["--sinks", "kinds", "--cassandra", streams.make_tables(space), *store.arguments]
        files = killed_at_each(drivers, store.world, chain, arguments, check, ahead=3)

        checks.check_at_the_end(store.look(), files=files)
        streams.check_at_the_end(store.look(), space, files=files)
