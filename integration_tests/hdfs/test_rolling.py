"""Parts that stay open over epochs, with checkpoint, journal and targets on HDFS: joined there without copying."""

from __future__ import annotations

from functools import partial

import pytest

from epochal.testing.servers import HdfsCluster
from integration_tests.hdfs.remote import Remote
from integration_tests.spark.chains import (
    Lane,
    killed_at_each,
    killed_side_by_side,
    killed_under,
    publish_what_is_open,
    worlds_below,
)
from integration_tests.spark.checks import (
    check_at_the_end,
    check_closed_by_policy,
    check_parts_after_a_kill,
    visible_files,
)
from integration_tests.spark.children import Children
from integration_tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Of parts in Parquet, JSON and Avro: merged, joined in place, joined by a copy of their blocks.
LONG_CHAIN = (
    "before-join",
    "after-join",  # joined, and under no name that readers look at
    "before-join@2",  # in the midst of an epoch: one part is shown, the next is not joined yet
    "after-join@2",
    "after-merge",
    "after-copy",
    "after-write@2",
    "before-rename@2",
    "before-keep@2",
    "before-manifest@3",
    "before-cleanup@2",
)
# Where HDFS does what no local disk does; writing, keeping and the manifest are the same code as there.
LANES = (
    ("before-join", "after-copy"),
    ("after-join", "before-rename@2"),
)
CHAIN = tuple(point for lane in LANES for point in lane)
# What makes one file of pieces on HDFS.
CLOSING = {"json": "join", "csv": "join", "avro": "copy", "parquet": "merge", "orc": "merge"}


@pytest.mark.parametrize("lanes", [LANES, pytest.param((LONG_CHAIN,), marks=pytest.mark.matrix)], ids=["short", "long"])
def test_kills_around_the_joining_of_parts_on_hdfs_lose_and_double_nothing(
    drivers: Children, hdfs: HdfsCluster, world: World, lanes: tuple[tuple[str, ...], ...]
) -> None:
    remotes = [Remote(hdfs, one.root) for one in worlds_below(world, len(lanes))]
    arguments = ("--small-journal", "--sinks", "rolling-rows-parquet,json,avro")
    killed = [
        Lane(
            world=remote.world,
            chain=chain,
            arguments=(*arguments, *remote.arguments),
            check=partial(_check_after_a_kill, remote),
        )
        for remote, chain in zip(remotes, lanes, strict=True)
    ]
    counts = killed_side_by_side(drivers, killed)

    for remote, files in zip(remotes, counts, strict=True):
        publish_what_is_open(f"{remote.uri}/checkpoint")
        one = remote.look()
        check_at_the_end(one, files=files)
        # Of 3, 2 and 3 buckets, each epoch would make as many.
        assert all(len(visible_files(target)) < 2 * files for target in (one.first, one.second, one.table))


@pytest.mark.matrix
def test_kills_around_the_copying_of_row_groups_on_hdfs_lose_and_double_nothing(
    drivers: Children, remote: Remote
) -> None:
    chain = ("before-copy", "after-copy", "after-copy@3", "after-prepared@3", "before-rename@2", "before-manifest@3")
    arguments = ("--small-journal", "--sinks", "rolling-rows-groups", *remote.arguments)
    files = killed_at_each(drivers, remote.world, chain, arguments, partial(_check_after_a_kill, remote))

    publish_what_is_open(f"{remote.uri}/checkpoint")
    world = remote.look()
    check_at_the_end(world, files=files)
    assert len(visible_files(world.first)) < 2 * files


@pytest.mark.matrix
@pytest.mark.parametrize("policy", ["rows", "bytes", "age", "idle"])
@pytest.mark.parametrize("formats", ["json", "csv", "parquet", "orc", "parquet,json", "csv,orc", "avro,json"])
def test_every_policy_and_format_survives_kills_on_hdfs(
    drivers: Children, remote: Remote, policy: str, formats: str
) -> None:
    closing = [CLOSING[format_] for format_ in formats.split(",")]
    arguments = ("--small-journal", "--sinks", f"rolling-{policy}-{formats}", *remote.arguments)
    files = killed_under(policy, drivers, remote.world, closing, arguments, partial(_check_after_a_kill, remote))
    publish_what_is_open(f"{remote.uri}/checkpoint")

    check_at_the_end(remote.look(), files=files)
    check_closed_by_policy(remote.world, policy, formats, files=files)


def _check_after_a_kill(remote: Remote) -> None:
    check_parts_after_a_kill(remote.look())
