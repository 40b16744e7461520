"""Files, Delta and Cassandra in one writer, with targets, staged rows, checkpoint and journal on an object store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from epochal.testing import servers
from epochal.testing.servers import CassandraCluster
from integration_tests.cassandra import streams
from integration_tests.cassandra.tables import keyspace
from integration_tests.spark import checks
from integration_tests.spark.chains import Lane, killed_side_by_side, worlds_below
from integration_tests.spark.children import Children
from integration_tests.spark.world import World

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


@pytest.mark.parametrize(
    "lanes",
    [tuple((point,) for point in CHAIN), pytest.param((LONG_CHAIN,), marks=pytest.mark.matrix)],
    ids=["short", "long"],
)
def test_kills_leave_all_kinds_of_sinks_on_the_same_whole_epoch(
    drivers: Children,
    cassandra: CassandraCluster,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    lanes: tuple[tuple[str, ...], ...],
) -> None:
    remote = pytest.importorskip("integration_tests.objects.remote")
    with servers.s3() as s3, ExitStack() as stack:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)

        def lane(one: World, chain: tuple[str, ...]) -> tuple[Lane, Callable[[int], None]]:
            store = remote.Remote(s3, f"{s3.url}/{uuid.uuid4().hex}", one.root, checkpoint=True)
            space = stack.enter_context(keyspace(cassandra))

            def check() -> None:
                seen = store.look()
                checks.check_after_a_kill(seen)
                streams.check_after_a_kill(seen, space)

            def check_at_the_end(files: int) -> None:
                checks.check_at_the_end(store.look(), files=files)
                streams.check_at_the_end(store.look(), space, files=files)

            arguments = ["--sinks", "kinds", "--cassandra", streams.make_tables(space), *store.arguments]
            return Lane(world=store.world, chain=chain, arguments=arguments, check=check, ahead=3), check_at_the_end

        made = [lane(one, chain) for one, chain in zip(worlds_below(world, len(lanes)), lanes, strict=True)]
        counts = killed_side_by_side(drivers, [killed for killed, _ in made])

        for (_, check_at_the_end), files in zip(made, counts, strict=True):
            check_at_the_end(files)
