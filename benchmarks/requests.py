"""What file operations, and an epoch on an object store, cost in requests: its journal, its commit to a Delta table.

    python -m benchmarks.requests [--epochs 30] [--rounds 50] [--spark] [--json]

Requests are counted by a proxy. Times are those of requests that do not pass it, on the server of `servers.s3`. With
``--spark`` a real query writes to a Delta table, with its checkpoint on a disk and on the store.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import epochal
from epochal import DeltaSink
from epochal.sinks.storage.objects import ObjectFiles, clients_for, open_files
from epochal.testing import DirectoryParticipant, StandInQuery, servers
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import StoreProxy
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.settler import Settler
from integration_tests.objects import lake
from integration_tests.spark.world import SCHEMA, World

Step = Callable[[ObjectFiles, str, int], object]

WARM = 5  # epochs before those that are counted


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requests", description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=50, help="times that each operation is timed")
    parser.add_argument("--spark", action="store_true", help="a real query too")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    with servers.s3() as store, StoreProxy(store.endpoint) as proxy:
        found: dict[str, dict[str, object]] = {"probe, once a process and bucket": _probed(store, proxy)}
        for name, step in _operations().items():
            found[name] = _counted(store, proxy, step, args.rounds)
        found |= _epochs(store, proxy, args.epochs)
        with _environment(store, proxy):
            found |= _delta_commits(store, proxy, args.epochs)
            if args.spark:
                found |= _queries(store, proxy, args.epochs)
    if args.json:
        print(json.dumps(found))
        return
    for name, one in found.items():
        print(f"{name:<44} {one['total']:>6}  {one['requests']}" + (f"  {one['ms']} ms" if "ms" in one else ""))


def _operations() -> dict[str, Step]:
    """Each on names of its own; what has to be there is there (`_prepared`)."""
    return {
        "create, a free name": lambda files, folder, n: files.create(f"{folder}/new-{n}", b"x" * 500),
        "create, a taken name": lambda files, folder, n: files.create(f"{folder}/file-{n}", b"x" * 500),
        "rename": lambda files, folder, n: files.rename(f"{folder}/old-{n}", f"{folder}/renamed-{n}"),
        "read": lambda files, folder, n: files.read(f"{folder}/file-{n}"),
        "length": lambda files, folder, n: files.length(f"{folder}/file-{n}"),
        "names of a folder": lambda files, folder, n: files.names(f"{folder}/folder-{n}"),
        "delete, a file": lambda files, folder, n: files.delete(f"{folder}/file-{n}"),
        "delete, a folder of 3 files": lambda files, folder, n: files.delete(f"{folder}/folder-{n}"),
    }


def _prepared(files: ObjectFiles, folder: str, rounds: int) -> None:
    for number in range(rounds):
        for name in ("file", "old"):
            files.create(f"{folder}/{name}-{number}", b"x" * 500)
        for name in "abc":
            files.create(f"{folder}/folder-{number}/{name}", b"")


def _counted(store: S3Store, proxy: StoreProxy, step: Step, rounds: int) -> dict[str, object]:
    direct, behind = _files(store, store.endpoint), _files(store, proxy.endpoint)
    folder = f"{store.url}/operations/{time.monotonic_ns()}"
    _prepared(direct, folder, rounds + 1)
    before = Counter(proxy.requests)
    step(behind, folder, rounds)
    asked = proxy.requests - before
    times = []
    for number in range(rounds):
        begun = time.perf_counter()
        step(direct, folder, number)
        times.append(time.perf_counter() - begun)
    return {**_told(asked), "ms": round(statistics.median(times) * 1000, 1)}


def _probed(store: S3Store, proxy: StoreProxy) -> dict[str, object]:
    files, folder = open_files(f"{store.url}/probed", {**store.options, "endpoint": proxy.endpoint})
    before = Counter(proxy.requests)
    begun = time.perf_counter()
    files.create(f"{folder}/file", b"")
    return {
        **_told(proxy.requests - before - Counter({"PUT": 1})),
        "ms": round((time.perf_counter() - begun) * 1000, 1),
    }


def _epochs(store: S3Store, proxy: StoreProxy, epochs: int) -> dict[str, dict[str, object]]:
    """The journal's share of a stream: its start, its first epochs, and each epoch after them."""
    files, journal = _files(store, proxy.endpoint), f"{store.url}/stream/epochal"
    with tempfile.TemporaryDirectory(prefix="epochal-requests-") as home:
        local = LocalFiles(sync=False)
        query: StandInQuery[Sequence[Json]] = StandInQuery(local, f"{home}/checkpoint")
        coordinator: Coordinator[Sequence[Json]] = Coordinator(
            journals=lambda number: Journal(files, journal if number == 1 else f"{journal}~{number}"),
            checkpoint=query.checkpoint,
            participants=[DirectoryParticipant(f"{home}/target", files=local)],
        )
        settler = Settler(coordinator)
        marks = [Counter(proxy.requests)]
        coordinator.begin()
        settler.settle(60)
        marks.append(Counter(proxy.requests))
        for many in (WARM, WARM + epochs):
            query.run(many, lambda epoch: [epoch], settler.run, lambda: settler.settle(60))
            marks.append(Counter(proxy.requests))
        begun, first, warm, last = marks
        each = {kind: round(count / epochs, 1) for kind, count in (last - warm).items()}
    return {
        "start of a driver, journal": _told(first - begun),
        f"epoch, journal, mean of {epochs}": {
            "total": round(sum(each.values()), 1),
            "requests": dict(sorted(each.items())),
        },
    }


@contextmanager
def _environment(store: S3Store, proxy: StoreProxy) -> Iterator[None]:
    """Everything of this process reaches the store by the proxy."""
    before = dict(os.environ)
    os.environ.update({**store.environment, "AWS_ENDPOINT_URL": proxy.endpoint})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _delta_commits(store: S3Store, proxy: StoreProxy, epochs: int) -> dict[str, dict[str, object]]:
    """A table's commits alone: one file an epoch, staged as Spark leaves it, and removed afterwards."""
    table = f"{store.url}/commits/{time.monotonic_ns()}"
    lake.make(table)
    sink = DeltaSink(table)
    handles = [lake.put_staged(table, lake.attempt(epoch), [epoch]) for epoch in range(WARM + epochs)]
    times = []
    before = Counter(proxy.requests)
    for epoch, handle in enumerate(handles):
        if epoch == WARM:
            before = Counter(proxy.requests)
        begun = time.perf_counter()
        sink.commit(lake.attempt(epoch), handle)
        times.append(time.perf_counter() - begun)
    told = _each(proxy.requests - before, epochs)
    return {
        f"epoch, commit to Delta, mean of {epochs}": {**told, "ms": round(statistics.median(times[WARM:]) * 1000, 1)}
    }


def _queries(store: S3Store, proxy: StoreProxy, epochs: int) -> dict[str, dict[str, object]]:
    """All that a query with one Delta table asks of the store in an epoch: Spark, S3A, delta-rs and epochal."""
    spark = epochal.session("requests", master="local[2]", s3=True)
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="epochal-requests-") as home:
        for place in ("disk", "store"):
            world = World(Path(home, place))
            remote = f"{store.url}/queries/{time.monotonic_ns()}"
            counts: list[Counter[str]] = []
            for files in (WARM, WARM + epochs):
                world.feed(files)
                writer = epochal.EpochWriter(DeltaSink(f"{remote}/table"))
                frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"file:{world.source}")
                checkpoint = f"{remote}/checkpoint" if place == "store" else str(world.checkpoint)
                stream = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
                before = Counter(proxy.requests)
                writer.start(stream).awaitTermination()
                counts.append(proxy.requests - before)
            # Both runs start and end; the second has more epochs.
            found[f"epoch, query into Delta, checkpoint on the {place}"] = _each(counts[1] - counts[0], epochs - WARM)
    spark.stop()
    return found


def _each(asked: Counter[str], epochs: int) -> dict[str, object]:
    each = {kind: round(count / epochs, 1) for kind, count in (+asked).items()}
    return {"total": round(asked.total() / epochs, 1), "requests": dict(sorted(each.items()))}


def _files(store: S3Store, endpoint: str) -> ObjectFiles:
    clients = clients_for(store.url, {**store.options, "endpoint": endpoint})
    return ObjectFiles(store.url, clients.make(), lambda: False)


def _told(asked: Counter[str]) -> dict[str, object]:
    return {"total": asked.total(), "requests": dict(sorted((+asked).items()))}


if __name__ == "__main__":
    main()
