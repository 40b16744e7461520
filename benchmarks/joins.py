"""Many parts that close at once on HDFS: in few messages and side by side, against one by one.

    python -m benchmarks.joins [--parts 500] [--pieces 3] [--rounds 5] [--json]

Each run stages an epoch that closes so many parts, each in a bucket of its own, and measures its commit: pieces joined
in place, files renamed, the manifest written. A message is one call from Python to Spark's JVM. "One by one" is the
same commit through the same JVM with a message for each file operation.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.hdfs import hdfs
from benchmarks.measure import note, race, table, timed
from epochal import session
from epochal.sinks.files.commit import Publisher
from epochal.sinks.files.handle import Concat, StagedEpoch
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.storage.hadoop import HadoopFiles
from epochal.sinks.storage.sink_files import OneByOne, SinkFiles
from epochal.txn.model import Attempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINEAGE = "1f0c9a2e-0000"
PEER = "one by one"


class InTurn(OneByOne, HadoopFiles):
    """Every operation on many files is one on each of them."""


class Messages:
    """Counts what Python asks the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self.count = 0
        client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
        self._send: Callable[..., Any] = client.send_command
        client.send_command = self._counted

    def _counted(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self._send(*args, **kwargs)


class Bench:
    """Commits epochs, each in a target of its own."""

    def __init__(self, spark: SparkSession, root: str, parts: int, pieces: int) -> None:
        self._root, self._parts, self._pieces = root, parts, pieces
        self._runs = itertools.count()
        self._staging = HadoopFiles(spark)
        self._messages = Messages(spark)
        self.messages: dict[str, list[int]] = {}

    def run(self, name: str, files: SinkFiles) -> float:
        """The seconds that a commit takes."""
        layout = Layout(f"{self._root}/{next(self._runs)}")
        attempt = Attempt(LINEAGE, self._pieces, 1)
        work = self._stage(layout, attempt)
        before = self._messages.count
        seconds = timed(lambda: Publisher("files", files, layout, attempt).publish(work))
        self.messages.setdefault(name, []).append(self._messages.count - before)
        self._check(layout)
        self._staging.delete(layout.target)
        return seconds

    def _stage(self, layout: Layout, attempt: Attempt) -> StagedEpoch:
        joins, contents = [], []
        for part in range(self._parts):
            names = [f"open/{epoch:012d}/bucket={part}/piece" for epoch in range(self._pieces - 1)]
            names.append(f"data/bucket={part}/piece")
            data = [f'{{"id":{part},"piece":{number}}}\n'.encode() for number in range(self._pieces)]
            contents += [(layout.source(attempt, name), text) for name, text in zip(names, data, strict=True)]
            sources = tuple((name, len(text)) for name, text in zip(names, data, strict=True))
            joins.append(Concat(sources, f"bucket={part}/part-{part:05d}.json"))
        self._staging.create_all(contents, durable=False)
        obsolete = tuple(f"open/{epoch:012d}" for epoch in range(self._pieces - 1))
        return StagedEpoch(EpochFacts(rows=self._parts * self._pieces), joins=tuple(joins), obsolete=obsolete)

    def _check(self, layout: Layout) -> None:
        names = [entry.name for entry in self._staging.walk(layout.target)]
        if sum(name.startswith("bucket=") for name in names) != self._parts or len(names) != self._parts + 1:
            raise SystemExit(f"{len(names)} files instead of {self._parts} and a manifest: no figure for that")


def main() -> None:
    """Race and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joins", description=__doc__)
    parser.add_argument("--parts", type=int, default=500)
    parser.add_argument("--pieces", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    with hdfs() as (uri, settings):
        spark = session("joins", master="local[2]", conf=settings)
        bench = Bench(spark, f"{uri}/joins", args.parts, args.pieces)
        kinds: dict[str, SinkFiles] = {PEER: InTurn(spark), "side by side": HadoopFiles(spark)}
        title = f"{args.parts} parts of {args.pieces} pieces closed at once, hdfs, {args.rounds} rounds"
        note(title)
        figures = race({n: partial(bench.run, n, f) for n, f in kinds.items()}, peer=PEER, rounds=args.rounds)
        spark.stop()
    messages = {name: median(counts[1:]) for name, counts in bench.messages.items()}
    if args.json:
        print(json.dumps([{"name": f.name, "seconds": f.seconds, "messages": messages[f.name]} for f in figures]))
    else:
        print(f"\n{title}\n{table(figures, PEER)}")
        print("messages: " + "; ".join(f"{name}: {count:.0f}" for name, count in messages.items()))


if __name__ == "__main__":
    main()
