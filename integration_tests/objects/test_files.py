"""Rolling files on an object store, written by real Spark through S3A, whose drivers are killed around every step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from epochal.cli import exit_codes, main
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import Faults, StoreProxy
from integration_tests.objects.remote import Remote
from integration_tests.objects.stores import signatures_count, skip_if_signatures_count
from integration_tests.spark.chains import (
    Lane,
    killed_at_each,
    killed_side_by_side,
    publish_what_is_open,
    worlds_below,
)
from integration_tests.spark.checks import (
    check_after_a_kill,
    check_at_the_end,
    check_parts_after_a_kill,
    committed,
    visible_files,
)
from integration_tests.spark.children import Children
from integration_tests.spark.driver import Ending

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

# S3A gives up at once when a read is answered 409, which S3 never does.
FAULTS = Faults(lost=0.02, failed=0.01, refused=0.04, slow=0.1, pause=0.2, refusals=(503, 429, 500))

LONG_CHAIN = (
    "after-generation",
    "after-enrol",
    "before-write",
    "after-write@2",  # leaves staged files without a record
    "before-seal",
    "after-abort",
    "before-prepared",
    "after-prepared",
    "after-decided",
    "before-rename@2",
    "after-rename@5",
    "before-marker",
    "after-marker@2",
    "before-manifest@2",
    "after-manifest@3",
    "before-cleanup@2",
    "after-cleanup@3",
    "before-done",
    "before-snapshot",
    "after-purge",
)
# By default drivers with Spark die in cassandra/test_kinds_on_s3.py, and without, at requests and steps of files, in
# test_publishing_kills.py.
# Of Parquet, which Spark merges, and of JSON, which is joined by a copy.
LONG_ROLLING = (
    "before-merge",
    "after-merge",
    "before-copy",
    "after-copy",
    "after-prepared@3",
    "before-rename@2",
    "before-keep@2",
    "after-keep@2",
    "before-manifest@3",
    "before-cleanup@2",
)
ROLLING = ("after-copy", "after-keep@2")


@pytest.fixture
def remote(s3: S3Store, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return Remote(s3, folder, tmp_path)


@pytest.fixture
def with_copies(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    """The store as one that keeps the condition of copies."""
    skip_if_signatures_count(remote.store)
    with StoreProxy(remote.store.endpoint, conditional_copies=True) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.mark.matrix
def test_a_kill_around_every_step_loses_doubles_and_shows_early_nothing(
    drivers: Children, remote: Remote, with_copies: StoreProxy
) -> None:
    arguments = ["--sinks", "2", "--small-journal", *remote.arguments]
    files = killed_at_each(drivers, remote.world, LONG_CHAIN, arguments, lambda: check_after_a_kill(remote.look()))

    check_at_the_end(remote.look(), files=files)
    assert with_copies.requests["COPY"] > files, "files are published by copies within the store"


@pytest.mark.matrix
def test_the_same_with_the_journal_on_the_store_and_copies_through_memory(drivers: Children, remote: Remote) -> None:
    arguments = ["--sinks", "2", "--small-journal", *remote.arguments, "--journal", f"{remote.uri}/journal"]

    def look() -> None:
        check_after_a_kill(remote.look_at_journal("journal"))

    files = killed_at_each(drivers, remote.world, LONG_CHAIN, arguments, look)

    check_at_the_end(remote.look_at_journal("journal"), files=files)


@pytest.mark.parametrize(
    "lanes",
    [tuple((point,) for point in ROLLING), pytest.param((LONG_ROLLING,), marks=pytest.mark.matrix)],
    ids=["short", "long"],
)
def test_a_kill_around_every_step_of_open_parts_loses_and_doubles_nothing(
    drivers: Children, remote: Remote, lanes: tuple[tuple[str, ...], ...]
) -> None:
    arguments = ("--sinks", "rolling-rows-parquet,json", "--small-journal")
    worlds = worlds_below(remote.world, len(lanes))
    places = [Remote(remote.store, f"{remote.uri}/{one.root.name}", one.root) for one in worlds]

    def check(place: Remote) -> None:
        check_parts_after_a_kill(place.look())

    killed = [
        Lane(world=place.world, chain=chain, arguments=(*arguments, *place.arguments), check=partial(check, place))
        for place, chain in zip(places, lanes, strict=True)
    ]
    counts = killed_side_by_side(drivers, killed)

    for place, files in zip(places, counts, strict=True):
        publish_what_is_open(str(place.world.checkpoint))
        world = place.look()
        check_at_the_end(world, files=files)
        assert all(len(visible_files(target)) < 2 * files for target in (world.first, world.second))


def test_of_two_drivers_on_one_target_the_stalled_one_is_fenced_out(drivers: Children, remote: Remote) -> None:
    world, arguments = remote.world, ["--sinks", "1", *remote.arguments]
    gate = world.root / "gate"
    world.feed(3)
    stalled = drivers.start(world.root, *arguments, points=f"after-stage=pause:{gate}@2")
    stalled.wait_for(gate)
    after_stalling = committed(world)
    second = drivers.run(world.root, *arguments)
    gate.unlink()
    first = stalled.wait()

    assert after_stalling == {0}
    assert second.ending is Ending.DONE, second.output
    assert first.ending is Ending.FENCED_OUT, first.output
    assert "epoch 1: generation 1 was superseded: its attempt was sealed" in first.output
    third = drivers.run(world.root, *arguments)
    assert third.ending is Ending.DONE, third.output
    check_at_the_end(remote.look(), files=3)


@pytest.mark.parametrize("files", [4, pytest.param(40, marks=pytest.mark.matrix)])
def test_a_store_that_loses_answers_refuses_and_is_slow_only_costs_time(
    drivers: Children, remote: Remote, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = remote.world
    world.feed(files)
    copies = not signatures_count(remote.store)
    with StoreProxy(remote.store.endpoint, FAULTS, seed=files, conditional_copies=copies) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        ended = drivers.run(world.root, "--sinks", "2", *remote.arguments)
    print(f"\n{proxy.requests.total()} requests, {proxy.injected.total()} faults: {dict(proxy.injected)}")

    assert ended.ending is Ending.DONE, ended.output
    check_at_the_end(remote.look(), files=files)
    assert proxy.injected.total() > 3 * files


def test_commands_need_no_spark(
    drivers: Children, remote: Remote, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = remote.world
    world.feed(2)
    ended = drivers.run(world.root, "--sinks", "2", *remote.arguments, points="before-rename=kill@2")
    assert ended.ending is Ending.KILLED, ended.output

    monkeypatch.setattr("epochal.cli.streams.start_spark", lambda path: pytest.fail(f"Spark was started for {path}"))
    assert main(["recover", str(world.checkpoint)]) == 0
    assert main(["status", str(world.checkpoint)]) == exit_codes.DEAD
    assert main(["gc", str(world.checkpoint)]) == 0
    check_after_a_kill(remote.look())
    assert visible_files(world.first)
