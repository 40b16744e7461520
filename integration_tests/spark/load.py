"""A query under load: files arrive as fast as it reads them. What savepoints tell of the state that Spark removes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from epochal.spark_plugins.moving.manifest import Manifest
from epochal.spark_plugins.moving.state_files import Store, stores
from integration_tests.spark.checks import committed
from integration_tests.spark.world import World, put_source_file, rows_of

AHEAD = 3  # files that wait to be read, each of which becomes an epoch


def last_commit(world: World) -> int:
    return max(committed(world), default=-1)


@contextmanager
def under_load(world: World, last: Callable[[], int]) -> Iterator[None]:
    """Files arrive while the block runs. `last` tells the last epoch that Spark has checkpointed."""
    stop = threading.Event()

    def feed() -> None:
        for file in itertools.count(len(list(world.source.iterdir()))):
            while file > last() + AHEAD:
                if stop.wait(0.02):
                    return
            put_source_file(world.source, file, rows_of(file))

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


def stores_of(manifest: Manifest) -> list[Store]:
    return [*stores(file.path for file in manifest.files).values()]


def is_of_both(manifest: Manifest) -> bool:
    """Whether it has a state store with a snapshot and the changes since."""
    return any(store.whole and store.newest > max(store.whole) for store in stores_of(manifest))


def has_lost(manifest: Manifest) -> bool:
    """Whether Spark has removed the first version of each state store before."""
    return all(1 not in store.whole | store.changes for store in stores_of(manifest))


def is_told(manifests: Sequence[Manifest], settings: str) -> bool:
    """Whether Spark's maintenance was at work: snapshots beside what changed since, and old versions removed."""
    return has_lost(manifests[-1]) and (settings == "RocksDB" or any(map(is_of_both, manifests)))
