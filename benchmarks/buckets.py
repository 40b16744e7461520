"""Rolling files with very many open parts: what an epoch costs that opens and closes some of them, and a restart.

    python -m benchmarks.buckets [--open 100000] [--few 4000] [--touch 1000] [--epochs 10] [--on local|hdfs]
        [--tasks 1] [--heap 2g] [--json]

A first query opens the parts, one a bucket, 10,000 an epoch. A second one starts on what is open. Each of its epochs
brings the second row of some buckets, which closes their parts, and the first row of as many new ones. The same with
few open parts is what it is compared with. An epoch's time is divided into Spark's jobs (it writes two small files for
each bucket that is touched, and counts their rows) and what epochal does: staging without the jobs, and the commit.
With `--tasks` several tasks write the buckets: on HDFS a task mostly waits for its many small files. Its servers get a
larger heap than in tests: 100,000 open parts are some 300,000 objects of a NameNode.

The objective is that a start restores the state within half a second. Indexing the open parts, which the sink does
before its first epoch, is not part of it; both are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.measure import note
from benchmarks.memory import place, resident_mb
from epochal import EpochWriter, Rolling, RollingFileSink, StatePolicy, session
from epochal.sinks.files.formats import joining
from epochal.sinks.spark import write_counts
from epochal.sinks.storage.hadoop import resolve
from epochal.txn.events import EpochCommitted, EpochStaged, Event
from epochal.txn.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = 10_000  # buckets that an epoch opens at the beginning
RECOVERY = 0.5  # seconds: the objective
RESTARTS = 3
SCHEMA = "id long, bucket long"


@dataclass
class Clock:
    """Adds up, for the epoch that runs, the seconds of Spark's jobs, of staging and of the commit before it."""

    jobs: float = 0.0
    staged: float = 0.0
    committed: float = 0.0

    def __post_init__(self) -> None:
        for module, name in ((write_counts, "written"), (joining, "row_counts")):
            setattr(module, name, self._timed(getattr(module, name)))

    def _timed(self, job: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return job(*args, **kwargs)
            finally:
                self.jobs += time.perf_counter() - begun

        return timed

    def on_event(self, event: Event) -> None:
        """As an observer of a writer."""
        if isinstance(event, EpochStaged):
            self.staged = event.seconds
        elif isinstance(event, EpochCommitted):
            self.committed = event.seconds


@dataclass
class Taken:
    """What the epochs of one query have taken."""

    epoch: list[float] = field(default_factory=list)  # seconds, with Spark's own part of a batch
    jobs: list[float] = field(default_factory=list)  # of these: Spark's jobs
    stage: list[float] = field(default_factory=list)  # staging without them
    commit: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # seconds of a processor in the driver's Python, every thread


def main() -> None:
    """Measure few open parts, then many."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.buckets", description=__doc__)
    parser.add_argument("--open", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=4000, help="open parts to compare with")
    parser.add_argument("--touch", type=int, default=1000, help="parts that an epoch closes, and as many that it opens")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--on", choices=("local", "hdfs"), default="local")
    parser.add_argument("--heap", default="2g", help="of each server of HDFS")
    parser.add_argument("--tasks", type=int, default=1, help="tasks that write an epoch")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epochal-buckets-")))
        root, settings = place(args.on, home, "buckets", stack, args.heap)
        spark = session("buckets", master=f"local[{max(2, args.tasks)}]", conf=settings)
        clock = Clock()
        found = {count: Bench(spark, home, root, count, args, clock).measure() for count in (args.few, args.open)}
    if args.json:
        print(json.dumps({"on": args.on, "touch": args.touch, "recovery": RECOVERY, "open": found}))
        return
    few, many = found.values()
    print(f"{'':<14}{f'{args.few:,} open':>16}{f'{args.open:,} open':>16}{'ratio':>8}")
    for name, value in few.items():
        print(f"{name:<14}{value:>16.3f}{many[name]:>16.3f}{many[name] / value if value else 0:>8.2f}")
    for count, one in found.items():
        print(f"{count:,} open: {verdict('the state is restored', one['restore_s'])}")
        print(f"{count:,} open: {verdict('the state is restored and indexed', one['restore_s'] + one['index_s'])}")


def verdict(what: str, seconds: float) -> str:
    """Whether something was done within the objective."""
    return f"{what} in {seconds:.2f} s: {'' if seconds <= RECOVERY else 'not '}within the objective of {RECOVERY:g} s"


class Bench:
    """One target with so many open parts."""

    def __init__(
        self, spark: SparkSession, home: Path, root: str, count: int, args: argparse.Namespace, clock: Clock
    ) -> None:
        self._spark, self._clock = spark, clock
        self._source, self._root = home / f"source-{count}", f"{root}/{count}"
        self._count, self._touch, self._epochs, self._tasks = count, args.touch, args.epochs, args.tasks
        self._files = 0

    def measure(self) -> dict[str, float]:
        """Open the parts, run epochs that close and open some, and restore what is open then."""
        self._source.mkdir()
        for start in range(0, self._count, AT_ONCE):
            self._feed([(bucket, 0) for bucket in range(start, min(self._count, start + AT_ONCE))])
        self._run("opening")
        before = resident_mb()
        for epoch in range(self._epochs + 1):  # the first one of a start looks at every part
            first = epoch * self._touch
            closed = [(bucket, 1) for bucket in range(first, first + self._touch)]
            self._feed([*closed, *((self._count + bucket, 0) for bucket, _ in closed)])
        taken = self._run("steady")
        result = {
            "epoch_s": median(taken.epoch[1:]),
            "spark_s": median(taken.jobs[1:]),
            "stage_s": median(taken.stage[1:]),
            "commit_s": median(taken.commit[1:]),
            "cpu_s": median(taken.cpu[1:]),
            "first_s": taken.stage[0] + taken.commit[0],
            **self._restart(),
            "memory_mb": resident_mb(),
            "opened_mb": before,
        }
        note(f"  {self._count:>8,} open: {result}")
        return result

    def _run(self, what: str) -> Taken:
        taken, clock = Taken(), self._clock
        writer = EpochWriter(self._sink(), state=StatePolicy(recovery=RECOVERY), observers=[clock.on_event])
        begun: list[tuple[float, float]] = []

        def over() -> None:
            """The epoch before is done: its commit is what settles before the next one is staged."""
            seconds, cpu = begun[-1]
            taken.epoch.append(time.perf_counter() - seconds)
            taken.cpu.append(time.process_time() - cpu)
            taken.jobs.append(clock.jobs)
            taken.stage.append(clock.staged - clock.jobs)
            taken.commit.append(clock.committed)
            note(
                f"  {self._count:>8,} open: {what} {len(taken.epoch):>3} {taken.epoch[-1]:7.2f} s, Spark's jobs "
                f"{taken.jobs[-1]:6.2f}, stage {taken.stage[-1]:6.2f}, commit {taken.commit[-1]:6.2f}, "
                f"cpu {taken.cpu[-1]:6.2f}, {resident_mb():7.1f} MB"
            )

        def watch(frame: DataFrame, epoch: int) -> None:
            writer.settle()
            if begun:
                over()
            begun.append((time.perf_counter(), time.process_time()))
            clock.jobs = 0.0
            writer(frame.coalesce(1) if self._tasks == 1 else frame.repartition(self._tasks, "bucket"), epoch)

        frame = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file:{self._source}")
        stream = frame.writeStream.option("checkpointLocation", f"{self._root}/checkpoint").trigger(availableNow=True)
        stream.foreachBatch(watch).start().awaitTermination()
        writer.settle()
        over()
        return taken

    def _restart(self) -> dict[str, float]:
        """Restore the state as a start does, and index it, both three times; check what is open and visible."""
        files, path = resolve(f"{self._root}/checkpoint/epochal")
        restored, indexed, used = [], [], []
        for _ in range(RESTARTS):
            gc.collect()  # of what the query before has left
            begun, cpu = time.perf_counter(), time.process_time()
            state = Journal(files, path).read().sink_state("files")
            restored.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            parts, _ = self._sink().open_size(state)
            indexed.append(time.perf_counter() - begun)
            used.append(time.process_time() - cpu)
        closed = self._touch * (self._epochs + 1)
        if parts != self._count:
            raise SystemExit(f"{parts} parts are open instead of {self._count}")
        shown = self._spark.read.schema(SCHEMA).option("recursiveFileLookup", "true").json(f"{self._root}/target")
        if (rows := shown.count()) != 2 * closed:
            raise SystemExit(f"{rows} rows are visible instead of {2 * closed}")
        return {
            "restore_s": median(restored),
            "index_s": median(indexed),
            "restart_cpu_s": median(used),
            "entries": len(state),
        }

    def _sink(self) -> RollingFileSink:
        return RollingFileSink(f"{self._root}/target", format="json", bucket_by=["bucket"], rolling=Rolling(max_rows=2))

    def _feed(self, rows: list[tuple[int, int]]) -> None:
        lines = (json.dumps({"id": row, "bucket": bucket}) for bucket, row in rows)
        (self._source / f"{self._files:06d}.json").write_text("\n".join(lines) + "\n")
        self._files += 1


if __name__ == "__main__":
    main()
