"""What thousands of files ask of HDFS: who moves them out of the tasks' folders, and how many are renamed at once.

    python -m benchmarks.job_commits [--buckets 250 1000] [--tasks 4] [--rounds 5] [--only moves renames] [--delay MS]
        [--json]

`moves` stages and commits an epoch with a file for each task and bucket. "By the driver" is Spark's default: its driver
moves the files of all tasks, one after the other. "By the tasks" is what epochal asks for: each task moves its own. The
requests are those that the NameNode has counted. `renames` gives so many files other names, as a commit does, with more
and more requests under way at once. With `--delay` each request reaches the NameNode so many milliseconds later, as if
it were another machine, with a log on disks of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.distant import relay
from benchmarks.measure import CpuMeter, note, race, table, timed
from benchmarks.memory import IMPATIENT
from epochal import RollingFileSink, session
from epochal.sinks.files.commit import chunks
from epochal.sinks.files.stage import writing
from epochal.sinks.storage.hadoop import HadoopFiles
from epochal.testing import servers
from epochal.testing.servers import HdfsCluster
from epochal.txn.model import Attempt, Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = ("moves", "renames")
DRIVER, TASKS = "by the driver", "by the tasks"
LINEAGE = "1f0c9a2e-0000"
RENAMED = 4000
AT_ONCE = (1, 8, 16, 32, 64)
PEER = 8
LATE = 11.0  # seconds
# Of DataNodes; and of all servers together, which is counted twice.
THEIRS = ("Heartbeat", "BlockReceived", "BlockReport", "RegisterDatanode", "VersionRequest", "CacheReport", "Overall")


class NameNode:
    """Counts what it was asked, by the name of the call."""

    def __init__(self, cluster: HdfsCluster) -> None:
        self._url = f"{cluster.web}/jmx?qry=Hadoop:service=NameNode,name=RpcDetailedActivityForPort*"

    def asked(self) -> Counter[str]:
        """Since it was started. What DataNodes tell it is left out.

        What it shows is up to ten seconds old, so this waits.
        """
        time.sleep(LATE)
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            found = json.load(answer)["beans"][0]
        counts = {name.removesuffix("NumOps"): int(n) for name, n in found.items() if name.endswith("NumOps")}
        return Counter({name: n for name, n in counts.items() if not any(one in name for one in THEIRS)})


class Moves:
    """Epochs of one shape, each into a target of its own."""

    def __init__(self, spark: SparkSession, root: str, namenode: NameNode, buckets: int, tasks: int) -> None:
        self._spark, self._root, self._namenode = spark, root, namenode
        self._buckets, self._tasks = buckets, tasks
        self._runs = itertools.count()
        self.commit_s: dict[str, list[float]] = {DRIVER: [], TASKS: []}
        self.job_commit_s: dict[str, list[float]] = {DRIVER: [], TASKS: []}
        self.stage_cpu_s: dict[str, list[float]] = {DRIVER: [], TASKS: []}
        self.requests: dict[str, dict[str, Counter[str]]] = {}

    def run(self, way: str) -> float:
        """The seconds that staging takes."""
        ours = writing.BY_TASKS.copy()
        writing.BY_TASKS.update(dict.fromkeys(ours, "1" if way == DRIVER else "2"))
        try:
            return self._run(way)
        finally:
            writing.BY_TASKS.update(ours)

    def _run(self, way: str) -> float:
        target = f"{self._root}/{next(self._runs)}"
        sink = RollingFileSink(target, format="json", bucket_by=["bucket"])
        frame = self._spark.range(0, self._buckets * self._tasks, numPartitions=self._tasks)
        frame = frame.selectExpr("id", f"id % {self._buckets} AS bucket")
        attempt = Attempt(LINEAGE, 0, 1, start="a")
        counts = way not in self.requests  # once, in the round that warms up: the counts are always the same
        before: Counter[str] = self._namenode.asked() if counts else Counter()
        meter = CpuMeter()
        staged: list[Any] = []
        seconds = timed(lambda: staged.append(sink.stage(Batch(attempt=attempt, rows=frame, offsets="o"))))
        self.stage_cpu_s[way].append(meter.seconds())
        between: Counter[str] = self._namenode.asked() if counts else Counter()
        self.commit_s[way].append(timed(lambda: sink.commit(attempt, staged[0].handle)))
        if counts:
            self.requests[way] = {"stage": between - before, "commit": self._namenode.asked() - between}
        self.job_commit_s[way].append(job_commit_seconds(self._spark))
        HadoopFiles(self._spark).delete(target)
        return seconds


def job_commit_seconds(spark: SparkSession) -> float:
    """What Spark says of the newest write: how long its driver took to commit the job."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for place in range(executions.size() - 1, -1, -1):
        execution = executions.apply(place)
        values = store.executionMetrics(execution.executionId())
        metrics = execution.metrics()
        for number in range(metrics.size()):
            one = metrics.apply(number)
            if one.name() == "job commit time" and values.contains(one.accumulatorId()):
                return _seconds(str(values.apply(one.accumulatorId())))
    raise SystemExit("Spark reports no job commit time: no figure for that")


def _seconds(text: str) -> float:
    """As Spark's page spells durations.

    >>> _seconds("1.5 s"), _seconds("12 ms"), _seconds("2.0 min")
    (1.5, 0.012, 120.0)
    """
    number, unit = text.splitlines()[-1].split(" ")[:2]
    return float(number.replace(",", "")) * {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0}[unit]


class Renames:
    """The same files, renamed back and forth in chunks, as a commit does."""

    def __init__(self, spark: SparkSession, root: str, count: int) -> None:
        self._spark, self._root = spark, root
        self._names = [f"bucket={n % 100}/part-{n:06d}" for n in range(count)]
        self._here, self._there = "a", "b"
        files = HadoopFiles(spark)
        for folder in (self._here, self._there):
            files.make_folders([f"{root}/{folder}/bucket={n}" for n in range(100)])
        files.create_all([(f"{root}/{self._here}/{name}", b"x") for name in self._names], durable=False)

    def run(self, at_once: int) -> float:
        """The seconds that it takes to rename all."""
        moves = [(f"{self._root}/{self._here}/{name}", f"{self._root}/{self._there}/{name}") for name in self._names]
        seconds = timed(lambda: self._rename(moves, HadoopFiles(self._spark, at_once=lambda _: at_once)))
        self._here, self._there = self._there, self._here
        return seconds

    def _rename(self, moves: Sequence[tuple[str, str]], files: HadoopFiles) -> None:
        for chunk in chunks(moves):
            if any(files.rename_all(chunk)):
                raise SystemExit("a rename failed: no figure for that")


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.job_commits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--buckets", nargs="+", type=int, default=[250, 1000])
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--renames", type=int, default=RENAMED)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="for each request to the NameNode")
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    found: dict[str, object] = {}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(servers.hdfs(java_options=("-Xmx1g",)))
        uri = cluster.uri
        if args.delay:
            host, _, port = uri.rpartition(":")
            uri = f"{host}:{stack.enter_context(relay(int(port), args.delay / 1000))}"
        settings = {key: value for key, value in cluster.settings.items() if "defaultFS" not in key}
        spark = session("job commits", master=f"local[{args.tasks}]", conf=settings | IMPATIENT)
        if "moves" in args.only:
            for buckets in args.buckets:
                found[f"{buckets * args.tasks} files"] = _moves(spark, uri, NameNode(cluster), buckets, args)
        if "renames" in args.only:
            renames = Renames(spark, f"{uri}/renames", args.renames)
            runs: dict[str, Callable[[], float]] = {f"{n} at once": partial(renames.run, n) for n in AT_ONCE}
            peer = f"{PEER} at once"
            figures = race(runs, peer=peer, rounds=args.rounds)
            found["renames"] = {f.name: {"a_second": args.renames / f.median, "seconds": f.seconds} for f in figures}
            if not args.json:
                print(f"\n{args.renames:,} renames\n{table(figures, peer)}", flush=True)
        spark.stop()
    if args.json:
        print(json.dumps(found))


def _moves(
    spark: SparkSession, uri: str, namenode: NameNode, buckets: int, args: argparse.Namespace
) -> Mapping[str, object]:
    files = buckets * args.tasks
    title = f"{files:,} files of {args.tasks} tasks in {buckets:,} buckets, HDFS, {args.rounds} rounds"
    note(title)
    moves = Moves(spark, f"{uri}/moves-{buckets}", namenode, buckets, args.tasks)
    figures = race({way: partial(moves.run, way) for way in (DRIVER, TASKS)}, peer=DRIVER, rounds=args.rounds)
    result: dict[str, dict[str, object]] = {
        f.name: {
            "stage_s": f.seconds,
            "ratio": f.ratio,
            "job_commit_s": moves.job_commit_s[f.name][1:],
            "stage_cpu_s": moves.stage_cpu_s[f.name][1:],
            "commit_s": moves.commit_s[f.name][1:],
            "requests_a_file": {
                step: {name: round(n / files, 2) for name, n in asked.most_common() if n > files / 50}
                for step, asked in moves.requests[f.name].items()
            },
        }
        for f in figures
    }
    if not args.json:
        print(f"\n{title}; seconds to stage\n{table(figures, DRIVER)}")
        for way, one in result.items():
            print(
                f"{way}: the job's commit {median(moves.job_commit_s[way][1:]):.2f} s, epochal's commit "
                f"{median(moves.commit_s[way][1:]):.2f} s; requests a file: {one['requests_a_file']}",
                flush=True,
            )
    return result


if __name__ == "__main__":
    main()
