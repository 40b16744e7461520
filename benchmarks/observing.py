"""What events, log lines at INFO, metrics and the live file cost: 20 epochs x 50,000 rows, on against off.

    python -m benchmarks.observing [--rounds 40] [--json] [--size 20x50000] [--delta]

* "off" makes no event at all, which no user can choose: it is what the protocol cost before there were events.
* "all on" has an observer, log lines at INFO as JSON in a file, and an endpoint for Prometheus that another process
  scrapes once a second. What it does is in the live file, too.
* "off again" is the same as "off". Its ratio shows what this measurement can resolve: it should be 1.

All run in one session, in turns of one epoch each (`benchmarks/weaving.py`), so that noise meets all of them alike. A
round is a whole run of each, from its start to its end; the first rounds warm the JVM up and do not count. A round
gives one ratio: the sum of the turns of "all on" by that of "off". The figure is the median of the ratios of all
rounds, with its 95 % interval by order statistics. CPU is that of this process and of the JVM.

What only observing does happens in turns of "all on": scrapes begin in one, and the live file is written in one.
"""

from __future__ import annotations

import argparse
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

from benchmarks import command
from benchmarks.disks import CORES
from benchmarks.measure import Interval, median_interval, note
from benchmarks.streams import SHAPES, SourceStream
from benchmarks.weaving import CpuClock, GatedWriter, Turn, WovenRun, orders, weave
from epochal import DeltaSink, RollingFileSink, session
from epochal.events import EpochCommitted, Event
from epochal.logs import JsonFormatter
from epochal.metrics.prometheus import Endpoint
from epochal.txn.events import Observers
from epochal.txn.live_writer import LiveWriter
from epochal.txn.reporting import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFF, ALL, AGAIN = "off", "all on", "off again"
NAMES = (OFF, ALL, AGAIN)
WARM_UP = 5  # rounds
SCRAPE_EVERY = 1.0  # seconds of the observed run
ADDRESS = "127.0.0.1", 0
REPORTS = [name for name in vars(Reporter) if not name.startswith("_") and name != "emit"]
log = logging.getLogger("epochal")


@dataclass(slots=True)
class Spent:
    """The seconds of one competitor in one round."""

    turns: list[Turn] = field(default_factory=list)
    reporting: float = 0.0  # in the threads of the protocol
    live: float = 0.0  # in the thread of the live file

    @property
    def wall(self) -> float:
        return sum(turn.wall for turn in self.turns)

    @property
    def cpu(self) -> float:
        return sum(turn.cpu for turn in self.turns)


class ParkedLiveWriter(LiveWriter):
    """Writes the live file only in turns of its run."""

    def __init__(self, turn: threading.Event, spent: Spent, *args: Any, **kwargs: Any) -> None:
        self._turn, self._spent = turn, spent
        super().__init__(*args, **kwargs)

    def _write(self) -> None:
        self._turn.wait()
        start = time.perf_counter()
        super()._write()
        self._spent.live += time.perf_counter() - start


class Scraper:
    """Another process that reads the metrics when it is told to, as Prometheus does."""

    LOOP = (
        "import sys, urllib.request\n"
        "for url in sys.stdin:\n"
        "    with urllib.request.urlopen(url.strip(), timeout=30) as answer:\n"
        "        print(len(answer.read()), flush=True)\n"
    )

    def __init__(self) -> None:
        command = [sys.executable, "-S", "-c", self.LOOP]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._since = 0.0  # seconds of the observed run since the last scrape
        self.scrapes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def begin(self) -> bool:
        """Ask for the metrics if it is time to."""
        if self._since < SCRAPE_EVERY:
            return False
        self._since = 0.0
        assert self._process.stdin is not None
        print(Endpoint.at(*ADDRESS).url, file=self._process.stdin, flush=True)
        return True

    def end(self, asked: bool, seconds: float) -> None:
        """A turn is over; what was asked for must have come before the next one."""
        self._since += seconds
        if asked:
            assert self._process.stdout is not None
            if not self._process.stdout.readline():
                raise SystemExit("the metrics could not be read: there is no result")
            self.scrapes += 1


class Bench:
    """Rounds of woven runs."""

    def __init__(self, spark: SparkSession, home: Path, size: command.Size, scraper: Scraper, *, delta: bool) -> None:
        self._epochs, rows = size
        self._spark, self._home, self._delta, self._scraper = spark, home, delta, scraper
        self._stream = SourceStream(spark, home, self._epochs, rows)
        self._clock = CpuClock(spark)
        self._orders = orders(NAMES)
        self._observed = 0

    def round(self) -> dict[str, Spent]:
        """A whole run of each."""
        gc.collect()
        jvm: Any = self._spark._jvm
        jvm.System.gc()
        spent = {name: Spent() for name in NAMES}
        own_turn = {name: threading.Event() for name in NAMES}
        runs = {name: self._run(name) for name in NAMES}
        with reporting_timer() as reported:

            @contextmanager
            def during(name: str) -> Iterator[None]:
                before, start = reported.seconds, time.perf_counter()
                asked = name == ALL and self._scraper.begin()
                # The start of a run makes its live writer and its reporter.
                parked = partial(ParkedLiveWriter, own_turn[name], spent[name])
                with ExitStack() as stack:
                    stack.enter_context(patch("epochal.spark_plugins.lead.LiveWriter", parked))
                    if name != ALL:
                        stack.enter_context(patch("epochal.txn.coordinator.reporter", _silent))
                    log.setLevel(logging.INFO if name == ALL else logging.NOTSET)
                    own_turn[name].set()
                    yield
                    own_turn[name].clear()
                if name == ALL:
                    self._scraper.end(asked, time.perf_counter() - start)
                spent[name].reporting += reported.seconds - before

            taken = weave(runs, self._epochs, self._orders, self._clock, during)
        for name, turns in taken.items():
            spent[name].turns = turns
            self._stream.check(self._place(name), self._stream.rows(self._place(name)))
        return spent

    def check(self, rounds: int) -> None:
        """Exit if what should have observed has not."""
        sinks = 2 if self._delta else 1
        expected = rounds * self._epochs * sinks
        lines = (self._home / "log").read_text(encoding="utf-8").count('"event": "committed"')
        if (self._observed, lines) != (expected, expected) or not self._scraper.scrapes:
            raise SystemExit(
                f"of {expected} commits {self._observed} were observed and {lines} are in the log; "
                f"{self._scraper.scrapes} scrapes: there is no result"
            )

    def _place(self, name: str) -> Path:
        return self._home / name.replace(" ", "-")

    def _run(self, name: str) -> WovenRun:
        place = self._place(name)
        stream = self._stream.writer(place)
        sinks: list[Any] = [RollingFileSink(str(place / "target"), name="archive")]
        if self._delta:
            sinks.append(DeltaSink(str(place / "table"), name="lake"))
        options: dict[str, Any] = {}
        if name == ALL:
            options = {"observers": [self._count], "metrics": "prometheus://{}:{}".format(*ADDRESS)}
        return WovenRun(GatedWriter(*sinks, **options), stream, self._epochs)

    def _count(self, event: Event) -> None:
        self._observed += isinstance(event, EpochCommitted)


def _silent(*_: object, **__: object) -> Reporter:
    return Reporter(Observers())


@dataclass(slots=True)
class Reported:
    """The seconds in all reporters."""

    seconds: float = 0.0


@contextmanager
def reporting_timer() -> Iterator[Reported]:
    """Adds up the seconds that the protocol's threads spend in reporting."""
    spent = Reported()
    originals: dict[str, Callable[..., Any]] = {name: vars(Reporter)[name] for name in REPORTS}

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent.seconds += time.perf_counter() - start

        return call

    for name, original in originals.items():
        setattr(Reporter, name, wrap(original))
    try:
        yield spent
    finally:
        for name, original in originals.items():
            setattr(Reporter, name, original)


@contextmanager
def log_lines(file: Path) -> Iterator[None]:
    """Log lines go into a file, as JSON; their level is set in each turn."""
    handler = logging.FileHandler(file)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = True
        log.removeHandler(handler)
        handler.close()


@dataclass(frozen=True, slots=True)
class Comparison:
    """One competitor against "off"."""

    name: str
    wall: Interval  # of whole runs
    epoch: Interval  # of single epochs, by turns that were neighbours
    cpu: Interval
    spread: tuple[float, float]  # of the ratios of whole runs, by wall clock
    reporting_ms: float  # an epoch, in the median
    live_ms: float
    reporting_share: float  # of the run


def compared(name: str, rounds: Sequence[dict[str, Spent]], epochs: int) -> Comparison:
    """The figures of one competitor."""
    pairs = [(one[name], one[OFF]) for one in rounds]
    walls = [ours.wall / off.wall for ours, off in pairs]
    turns = [a.wall / b.wall for ours, off in pairs for a, b in zip(ours.turns[1:], off.turns[1:], strict=True)]
    return Comparison(
        name=name,
        wall=median_interval(walls),
        epoch=median_interval(turns),
        cpu=median_interval([ours.cpu / off.cpu for ours, off in pairs]),
        spread=(min(walls), max(walls)),
        reporting_ms=1000 * median(ours.reporting for ours, _ in pairs) / epochs,
        live_ms=1000 * median(ours.live for ours, _ in pairs) / epochs,
        reporting_share=median(ours.reporting / ours.wall for ours, _ in pairs),
    )


def table(found: Sequence[Comparison], seconds: float) -> str:
    """The figures for people."""
    heads = ("wall clock x off", "spread", "an epoch x off", "CPU x off", "reporting", "share", "live file")
    widths = (21, 12, 21, 21, 10, 7, 10)

    def line(name: str, cells: Sequence[str]) -> str:
        return f"{name:<10}" + "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    lines = [line("", heads)]
    for one in found:
        cells = (
            str(one.wall),
            f"{one.spread[0]:.2f}-{one.spread[1]:.2f}",
            str(one.epoch),
            str(one.cpu),
            f"{one.reporting_ms:.2f} ms",
            f"{100 * one.reporting_share:.2f} %",
            f"{one.live_ms:.2f} ms",
        )
        lines.append(line(one.name, cells))
    lines.append(f"off: {seconds:.2f} s a run in the median. In brackets: 95 % interval of the median.")
    return "\n".join(lines)


def main() -> None:
    """Weave and report."""
    parser = command.parser("observing", __doc__, rounds=40)
    parser.add_argument("--delta", action="store_true", help="write a Delta table beside the files")
    args = parser.parse_args()
    epochs, rows = args.size or SHAPES["small"]
    into = "Parquet files and Delta" if args.delta else "Parquet files"
    with command.results(args) as results:
        title = command.titled(f"{epochs} epochs x {rows:,} rows, {into}, local[{CORES}], {args.rounds} rounds")
        rounds = _rounds(results.home, (epochs, rows), args)
        found = [compared(name, rounds, epochs) for name in (ALL, AGAIN)]
        off = median(one[OFF].wall for one in rounds)
        seconds = {name: [{"wall": r[name].wall, "cpu": r[name].cpu} for r in rounds] for name in NAMES}
        compared_by_name = {one.name: asdict(one) for one in found}
        result = {"title": title, "compared": compared_by_name, "seconds": seconds}
        results.add("observing", result, f"{title}\n{table(found, off)}")


def _rounds(home: Path, size: command.Size, args: argparse.Namespace) -> list[dict[str, Spent]]:
    spark = session("benchmark", master=f"local[{CORES}]")
    spark.sparkContext.setLogLevel("ERROR")
    taken: list[dict[str, Spent]] = []
    warm_up = min(WARM_UP, args.rounds)
    with Scraper() as scraper, log_lines(home / "log"):
        bench = Bench(spark, home, size, scraper, delta=args.delta)
        for number in range(1 - warm_up, args.rounds + 1):
            one = bench.round()
            label = f"round {number}" if number > 0 else "warm-up"
            walls = ", ".join(f"{name} {one[name].wall:.2f} s" for name in NAMES)
            note(f"  {label:>8}  {walls}; x off: {one[ALL].wall / one[OFF].wall:.3f}")
            if number > 0:
                taken.append(one)
        bench.check(args.rounds + warm_up)
    spark.stop()
    return taken


if __name__ == "__main__":
    main()
