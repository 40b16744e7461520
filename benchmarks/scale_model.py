"""What an epoch asks of its store and of its driver: the real coordinator and file sink on a store that only counts.

    python -m benchmarks.scale_model [--on hdfs objects] [--files 1 100 10000 100000] [--buckets 1 1000] [--sinks 1 6]
        [--epochs 10 1000 10000] [--streams 1 10 100] [--ms rename=1.5 COPY=30] [--side-by-side N] [--json]

Spark is not in it: its writer's files are there when they are staged. What Spark itself asks of a store for each file
is measured by `benchmarks.job_commits`. Waiting is computed, from what each kind of request takes; processor time and
memory are measured.

* files, buckets, sinks: one epoch with so many, after two small ones.
* epochs: the mean of the last epochs of so many, each of one file.
* streams: so many streams into one target, and what the register of its claims costs each.
* fleet: what 1,000 streams with an epoch each `--every` seconds, in targets of their own, ask of one NameNode or bucket
  in a second.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import tracemalloc
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from benchmarks.counting_store import KINDS, Asked, CountingStore, Kind
from benchmarks.measure import note
from epochal.sinks.files.layout import DATA, Layout
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.sink import RollingFileSink
from epochal.sinks.files.stage.writing import Stager, WrittenFiles
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.spark_plugins.lead import live_writer_of
from epochal.testing import StandInQuery
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import Entry, join
from epochal.txn.journal import Journal
from epochal.txn.live import HEARTBEAT
from epochal.txn.live_fold import LiveObserver
from epochal.txn.live_writer import PAUSE
from epochal.txn.model import Attempt
from epochal.txn.settler import Settler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS = ("files", "buckets", "sinks", "epochs", "streams", "fleet")
LENGTH = 10_000_000  # bytes of a file: a billion rows in 100,000 files
ROWS = 10_000
ROOT = "hdfs://127.0.0.1:9000"
COUNTED = 10  # epochs at the end of many, whose mean is taken


@dataclass(frozen=True, slots=True)
class Shape:
    """One epoch."""

    files: int = 1
    buckets: int = 1
    sparkSession: None = None  # noqa: N815  # as a frame has it

    def names(self) -> list[tuple[str, str]]:
        """The folder of each file's bucket, as it is staged, and its name, as Spark's writer gives it."""
        job = uuid.uuid4()
        buckets = [f"bucket=v{b64encode(f'{n:05d}'.encode()).decode().rstrip('=')}/" for n in range(self.buckets)]
        return [
            (buckets[number % self.buckets], f"part-{number // self.buckets:05d}-{job}.c000.snappy.parquet")
            for number in range(self.files)
        ]


class Writable(SinkFiles, Protocol):
    """A store in which files can be without anybody having written them."""

    def put(self, path: str, length: int) -> None:
        """A file of this length."""


class WrittenByNobody(Stager):
    """Puts the files there that Spark's tasks would write, and looks for them as the stager does."""

    def write(self, attempt: Attempt, rows: DataFrame) -> WrittenFiles:
        shape, store = cast(Shape, rows), cast(Writable, self._files)
        folder = join(self._layout.attempt(attempt), DATA)
        for bucket, name in shape.names():
            store.put(f"{folder}/{bucket}{name}", LENGTH)
        found: list[tuple[str, Entry]] = self._found(store.walk(folder))
        return WrittenFiles(found, shape.files * ROWS, None, "", None, None)


class WithoutSpark(RollingFileSink):
    """Does not ask what columns a frame has."""

    def _check_columns(self, attempt: Attempt, rows: DataFrame) -> None:
        pass


class Stream:
    """One stream, without Spark."""

    def __init__(self, store: Writable, root: str, targets: Sequence[str]) -> None:
        self._store, self._targets, self._checkpoint = store, targets, f"{root}/checkpoint"
        self.epochs = 0
        self.restart()

    def restart(self) -> None:
        """A driver that starts, in this process."""
        store, checkpoint = self._store, self._checkpoint
        self._query: StandInQuery[Shape] = StandInQuery(store, checkpoint)
        participants: Any = [_sink(store, target, f"files-{number}") for number, target in enumerate(self._targets)]
        self.coordinator: Coordinator[Shape] = Coordinator(
            journals=lambda number: Journal(store, f"{checkpoint}/epochal" + ("" if number == 1 else f"~{number}")),
            checkpoint=self._query.checkpoint,
            participants=participants,
            version="0.0.0",
        )
        self.coordinator.begin()
        self._settler = Settler(self.coordinator)
        self._live = live_writer_of(cast(Any, self.coordinator), (store, f"{checkpoint}/epochal"), LiveObserver())

    def beat(self) -> None:
        """What a driver's heartbeat does: write its live file, and look whether a newer driver has started."""
        self._live._write()
        self.coordinator.journal.has_start(self.coordinator.generation + 1)

    def run(self, shape: Shape, epochs: int = 1) -> None:
        """So many epochs of one shape, settled."""
        self.epochs += epochs
        self._query.run(self.epochs, lambda _: shape, self._settler.run, lambda: self._settler.settle(60))


def _sink(store: Writable, target: str, name: str) -> RollingFileSink:
    sink = WithoutSpark(target, bucket_by=["bucket"], name=name)
    sink._bound = store, Layout(target)
    sink.__dict__["_stager"] = WrittenByNobody(cast(FileOptions, sink), store, sink._bound[1])
    return sink


@dataclass(frozen=True, slots=True)
class Cost:
    """What one epoch costs."""

    requests: Mapping[str, Mapping[str, float]]  # by place and kind
    waiting_s: Mapping[str, float]  # by place
    written: Mapping[str, float]  # bytes by place
    read: Mapping[str, float]
    cpu_s: float
    peak_mb: float = 0.0
    stays_mb: float = 0.0

    @property
    def total(self) -> Counter[str]:
        """Requests by kind."""
        whole: Counter[str] = Counter()
        for one in self.requests.values():
            whole.update(one)
        return whole

    def as_json(self) -> dict[str, object]:
        return {
            "requests": {place: dict(one) for place, one in self.requests.items()},
            "waiting_s": {**self.waiting_s, "all": sum(self.waiting_s.values())},
            "bytes_written": dict(self.written),
            "bytes_read": dict(self.read),
            "cpu_s": self.cpu_s,
            "peak_mb": self.peak_mb,
            "stays_mb": self.stays_mb,
        }


def cost(store: CountingStore, stream: Stream, shape: Shape, epochs: int = 1) -> Cost:
    """The mean of some epochs."""
    return counted(store, lambda: stream.run(shape, epochs), epochs)


def counted(store: CountingStore, work: Callable[[], None], times: int = 1) -> Cost:
    """What is asked for while something is done, which does so many of what is counted."""
    before = {
        place: replace(one, operations=one.operations.copy(), requests=one.requests.copy())
        for place, one in store.asked.items()
    }
    begun = time.process_time()
    work()
    cpu = (time.process_time() - begun) / times
    asked = {place: one - before.get(place, Asked()) for place, one in store.asked.items()}
    asked = {place: one for place, one in asked.items() if one.requests}
    return Cost(
        {place: {kind: n / times for kind, n in sorted(one.requests.items())} for place, one in asked.items()},
        {place: one.seconds / times for place, one in asked.items()},
        {place: one.bytes_written / times for place, one in asked.items() if one.bytes_written},
        {place: one.bytes_read / times for place, one in asked.items() if one.bytes_read},
        cpu,
    )


def one_epoch(kind: Kind, shape: Shape, sinks: int = 1) -> Cost:
    """An epoch of a shape; its processor time and its memory are taken in two runs, because tracing takes time."""
    found: list[Cost] = []
    for traced in (False, True):
        store = CountingStore(kind)
        stream = Stream(store, f"{ROOT}/stream", [f"{ROOT}/target-{n}" for n in range(sinks)])
        stream.run(Shape(), 2)
        if not traced:
            found.append(cost(store, stream, shape))
            continue
        stream.run(Shape())
        gc.collect()
        tracemalloc.start()  # at the peak, what the store holds is in it too: names and records
        stream.run(shape)
        peak = tracemalloc.get_traced_memory()[1]
        stream.run(Shape())  # what the epoch before has left is what stays
        store.clear()
        gc.collect()
        stays = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        found.append(replace(found[0], peak_mb=peak / 1e6, stays_mb=stays / 1e6))
    return found[-1]


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--on", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--files", nargs="+", type=int, default=[1, 100, 1000, 10_000, 100_000])
    parser.add_argument("--buckets", nargs="+", type=int, default=[1, 100, 1000, 10_000])
    parser.add_argument("--sinks", nargs="+", type=int, default=[1, 2, 3, 6])
    parser.add_argument("--epochs", nargs="+", type=int, default=[10, 100, 1000, 10_000])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 10, 100, 1000])
    parser.add_argument("--every", nargs="+", type=float, default=[1, 10, 60], help="seconds between epochs")
    parser.add_argument("--ms", nargs="+", type=_latency, default=[], metavar="REQUEST=MS")
    parser.add_argument("--side-by-side", type=int, help="requests under way at once, if not as coded")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    found: dict[str, dict[str, object]] = {}
    for name in args.on:
        kind = KINDS[name]
        kind = replace(kind, ms={**kind.ms, **dict(args.ms)})
        if args.side_by_side:
            kind = replace(kind, at_once=lambda _: args.side_by_side)
        for part in args.parts:
            if part == "fleet":
                found[f"{name}: {part}"] = {str(every): fleet(kind, every) for every in args.every}
                if not args.json:
                    print(f"\n{kind.name}, 1,000 streams\n{fleet_table(kind, found[f'{name}: {part}'])}", flush=True)
                continue
            rows = dict(_measured(kind, part, getattr(args, part)))
            found[f"{name}: {part}"] = {str(size): one.as_json() for size, one in rows.items()}
            if not args.json:
                print(f"\n{kind.name}, by {part}\n{table(part, rows)}", flush=True)
    if args.json:
        print(json.dumps(found))


def _measured(kind: Kind, part: str, sizes: Iterable[int]) -> Iterable[tuple[int, Cost]]:
    for size in sizes:
        note(f"  {kind.name}, {part}: {size:,}")
        if part == "files":
            yield size, one_epoch(kind, Shape(size, min(size, 100)))
        elif part == "buckets":
            yield size, one_epoch(kind, Shape(max(10_000, size), size))
        elif part == "sinks":
            yield size, one_epoch(kind, Shape(), size)
        elif part == "epochs":
            store = CountingStore(kind)
            stream = Stream(store, f"{ROOT}/stream", [f"{ROOT}/target"])
            stream.run(Shape(), max(0, size - COUNTED))
            yield size, cost(store, stream, Shape(), COUNTED)
        else:
            store = CountingStore(kind)
            streams = [Stream(store, f"{ROOT}/stream-{n}", [f"{ROOT}/target"]) for n in range(size)]
            streams[-1].run(Shape(), 2)
            yield size, cost(store, streams[-1], Shape(), COUNTED)


def fleet(kind: Kind, every: float, streams: int = 1000) -> dict[str, Any]:
    """Requests a second of so many streams: by what they are for, and of each kind against what the store answers.

    A driver writes its live file after each event, but not within `PAUSE` of the last one, and each `HEARTBEAT`. The
    figures are for one file an epoch and one sink; Spark's own requests for its data files are not in them.
    """
    store = CountingStore(kind)
    stream = Stream(store, f"{ROOT}/stream", [f"{ROOT}/target"])
    stream.run(Shape(), 100)
    epoch = cost(store, stream, Shape(), 100)  # with the folding of the journal
    stream.beat()
    beat = counted(store, stream.beat)
    # An epoch is begun, then shown: two events that are more than a pause apart, at most one a pause.
    beats = min(1 / PAUSE, 1 / HEARTBEAT + 2 / every)
    rates = {place: streams * sum(one.values()) / every for place, one in epoch.requests.items()}
    rates["live file"] = streams * beats * sum(beat.total.values())
    asked = Counter({name: streams * n / every for name, n in epoch.total.items()})
    asked.update({name: streams * beats * n for name, n in beat.total.items()})
    share = {"all": sum(asked.values()) / kind.a_second["all"]} if "all" in kind.a_second else {}
    share |= {name: n / kind.a_second[name] for name, n in asked.items() if name in kind.a_second}
    return {
        "a_second": {place: round(rate, 1) for place, rate in rates.items()},
        "by_request": {name: round(n, 1) for name, n in sorted(asked.items())},
        "of_what_it_answers": {name: round(n, 3) for name, n in sorted(share.items())},
    }


def fleet_table(kind: Kind, found: Mapping[str, Any]) -> str:
    """Requests a second, by the seconds between epochs."""
    lines = []
    for every, one in found.items():
        parts = ", ".join(
            f"{place} {rate:,.0f}" for place, rate in sorted(one["a_second"].items(), key=lambda i: -i[1])
        )
        shares = ", ".join(f"{name} {share:.0%}" for name, share in one["of_what_it_answers"].items())
        lines.append(f"an epoch each {every} s: {sum(one['a_second'].values()):,.0f} a second: {parts}")
        lines.append(f"{'':>8} of what {kind.name} answers: {shares}")
    return "\n".join(lines)


def table(part: str, rows: Mapping[int, Cost]) -> str:
    """An epoch at each size."""
    heads = ("requests", 9), ("waiting s", 10), ("cpu s", 8), ("peak MB", 8), ("stays", 7), ("journal kB", 11)
    lines = [
        " ".join(f"{name:>{width}}" for name, width in ((part, 9), *heads, ("manifest kB", 12))) + "  longest waits"
    ]
    for size, one in rows.items():
        waits = sorted(one.waiting_s.items(), key=lambda item: -item[1])[:3]
        lines.append(
            f"{size:>9,} {sum(one.total.values()):>9,.0f} {sum(one.waiting_s.values()):>10.2f} {one.cpu_s:>8.3f} "
            f"{one.peak_mb:>8.1f} {one.stays_mb:>7.1f} {one.written.get('journal', 0) / 1e3:>11,.1f} "
            f"{one.written.get('staged files', 0) / 1e3:>12,.1f}  "
            + ", ".join(f"{place} {seconds:.2f}" for place, seconds in waits)
        )
    return "\n".join(lines)


def _latency(text: str) -> tuple[str, float]:
    kind, _, ms = text.partition("=")
    try:
        return kind, float(ms)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a request and its milliseconds, such as COPY=30") from None


if __name__ == "__main__":
    main()
