"""What events, log lines at INFO and metrics cost: 20 epochs x 50,000 rows into two sinks, on against off.

    python -m benchmarks.observing [--rounds 9] [--json]

"off" makes no event at all, which no user can choose: it is what the protocol cost before there were events. "as it
comes" makes events, and nobody reads the lines at INFO. "all on" writes log lines to a file and has an observer and
both kinds of metrics. All run in one session in turn, the order rotated. Wall clocks of Spark differ by some per cent
from run to run, so the seconds that are spent in making events and in observers are measured too.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from benchmarks.disks import CORES
from benchmarks.measure import note, race, table
from benchmarks.streams import SHAPES, SourceStream
from epochal import DeltaSink, EpochWriter, RollingFileSink, session
from epochal.metrics.opentelemetry import OpenTelemetryMetrics
from epochal.txn.events import Event, Observer, Observers
from epochal.txn.reporting import Reporter

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OFF, PLAIN, ALL = "off", "as it comes", "all on"
EPOCHS, ROWS = SHAPES["small"]
REPORTS = [name for name in vars(Reporter) if not name.startswith("_") and name != "emit"]


class Bench:
    """The competitors, on one stream."""

    def __init__(self, stream: SourceStream, log: Path) -> None:
        self._stream, self._log = stream, log
        self._events = 0
        self._otel = OpenTelemetryMetrics(MeterProvider([InMemoryMetricReader()]))
        self.spent: dict[str, list[float]] = {name: [] for name in (OFF, PLAIN, ALL)}  # seconds of a run

    def run(self, name: str) -> float:
        """One run: its seconds."""
        observers: list[Observer] = [self._count, self._otel] if name == ALL else []
        metrics = "prometheus://127.0.0.1:0" if name == ALL else None

        def work(target: Path, writer: DataStreamWriter) -> None:
            sinks = DeltaSink(str(target)), RollingFileSink(str(target.parent / "archive"), name="archive")
            EpochWriter(*sinks, observers=observers, metrics=metrics).start(writer).awaitTermination()

        with _lines(self._log if name == ALL else None), _silence(name == OFF), _timer() as spent:
            seconds = self._stream.run(work)
        self.spent[name].append(sum(spent))
        return seconds

    def _count(self, event: Event) -> None:
        self._events += 1
        assert event.stream


@contextmanager
def _lines(log: Path | None) -> Iterator[None]:
    """Log lines at INFO into a file, or none."""
    if log is None:
        yield
        return
    logger, handler = logging.getLogger("epochal"), logging.FileHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(handler)
        handler.close()


def _silence(silent: bool) -> AbstractContextManager[object]:
    """Without any event, if asked for."""
    made_silent = patch("epochal.txn.coordinator.reporter", lambda *_, **__: Reporter(Observers()))
    return made_silent if silent else nullcontext()


@contextmanager
def _timer() -> Iterator[list[float]]:
    """Collects the seconds that the protocol spends in reporting."""
    spent: list[float] = []
    originals: dict[str, Callable[..., Any]] = {name: vars(Reporter)[name] for name in REPORTS}

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                spent.append(time.perf_counter() - start)

        return call

    for name, original in originals.items():
        setattr(Reporter, name, wrap(original))
    try:
        yield spent
    finally:
        for name, original in originals.items():
            setattr(Reporter, name, original)


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    title = f"{EPOCHS} epochs x {ROWS:,} rows, Delta and Parquet files, local[{CORES}], {args.rounds} rounds"
    note(title)
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as folder:
        spark = session("benchmark", master=f"local[{CORES}]")
        bench = Bench(SourceStream(spark, Path(folder), EPOCHS, ROWS), Path(folder) / "log")
        figures = race({name: partial(bench.run, name) for name in bench.spent}, peer=OFF, rounds=args.rounds)
        spark.stop()
    milliseconds = {name: 1000 * median(spent[1:]) / EPOCHS for name, spent in bench.spent.items()}
    if args.json:
        shown = {f.name: {"seconds": f.seconds, "ratio": f.ratio, "ratios": f.ratios} for f in figures}
        print(json.dumps({"title": title, "runs": shown, "reporting_ms_per_epoch": milliseconds}, indent=1))
        return
    print(f"\n{title}\n{table(figures, OFF)}")
    for name, spent in milliseconds.items():
        share = spent * EPOCHS / 1000 / next(f.median for f in figures if f.name == name)
        print(f"  {name}: {spent:.2f} ms an epoch in reporting, {100 * share:.2f} % of the run")


if __name__ == "__main__":
    main()
