"""Keeps the degrees and the connected components of graphs up to date, from a stream of edges.

    pip install 'epochal[delta,state]'
    python examples/graph.py [FOLDER]

After each epoch the Delta table FOLDER/vertices says of each vertex how many neighbours it has, and in which component
it is: the smallest vertex that can be reached from it. FOLDER/changes holds what each epoch changed, as JSON.
The table depends only on the set of edges so far: not on their order, on repeats, on files or on crashes.

Two operators of Spark's transformWithState, one after the other, in the same epoch:

    Neighbours    one key per vertex: counts its neighbours, and lets each edge through only once
    Components    one key per graph: unites what a new edge connects

Limits. A union touches two components, and a keyed operator has the state of one key only. So one task goes through the
new edges of a graph; graphs, and vertices, are in parallel. Repeats of an edge do not reach that task. A union renames
one of the two components, vertex by vertex: a few times for each vertex if they come in any order, quadratic in the
worst case (a chain that grows towards smaller numbers). Edges are only added; one from a vertex to itself is ignored.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import epochal
from epochal import DeltaSink, EpochWriter, RollingFileSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

EDGE = "graph STRING, a BIGINT, b BIGINT"
NEIGHBOUR = "graph STRING, vertex BIGINT, other BIGINT, degree BIGINT"
VERTEX = "graph STRING, vertex BIGINT, component BIGINT, degree BIGINT"


class Neighbours(StatefulProcessor):
    """The neighbours of one vertex: a row for each new one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.neighbours = handle.getMapState("neighbours", "other BIGINT", "number BIGINT")
        self.degree = handle.getValueState("degree", "degree BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        graph, vertex = key
        (degree,) = self.degree.get() or (0,)
        for other in sorted({row.other for row in rows}):
            if not self.neighbours.containsKey((other,)):
                degree += 1
                self.neighbours.updateValue((other,), (degree,))
                yield Row(graph=graph, vertex=vertex, other=other, degree=degree)
        self.degree.update((degree,))


class Components(StatefulProcessor):
    """The components of one graph. The vertices of each are a ring: every vertex knows the next."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getMapState("vertices", "vertex BIGINT", "component BIGINT, degree BIGINT, next BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.before: dict[int, tuple[int, ...]] = {}  # vertices as this epoch has found them
        self.now: dict[int, list[int]] = {}
        for row in sorted(rows, key=lambda row: row.degree):
            self.vertex(row.vertex)[1] = row.degree
            self.unite(row.vertex, row.other)
        for vertex, now in sorted(self.now.items()):
            before = self.before[vertex]
            if before != tuple(now):
                self.state.updateValue((vertex,), tuple(now))
            if before[:2] != tuple(now[:2]):
                yield Row(graph=key[0], vertex=vertex, component=now[0], degree=now[1])

    def vertex(self, vertex: int) -> list[int]:
        """Component, degree and next of a vertex. A new one is a component of its own."""
        if vertex not in self.now:
            self.before[vertex] = tuple(self.state.getValue((vertex,)) or (vertex, 0, vertex))
            self.now[vertex] = list(self.before[vertex])
        return self.now[vertex]

    def unite(self, a: int, b: int) -> None:
        """Rename the component with the greater name, and make one ring of the two."""
        a, b = sorted((a, b), key=lambda vertex: self.vertex(vertex)[0])
        name = self.vertex(a)[0]
        if self.vertex(b)[0] == name:
            return
        while self.vertex(b)[0] != name:  # once around the ring
            self.vertex(b)[0] = name
            b = self.vertex(b)[2]
        self.vertex(a)[2], self.vertex(b)[2] = self.vertex(b)[2], self.vertex(a)[2]


def build(spark: SparkSession, source: str, checkpoint: str, target: str) -> tuple[EpochWriter, DataStreamWriter]:
    """The writer, and the stream to start it with."""
    edges = spark.readStream.schema(EDGE).option("maxFilesPerTrigger", 1).json(source)
    vertices = (
        edges.where("a != b")
        .selectExpr("graph", "explode(map(a, b, b, a)) AS (vertex, other)")
        .groupBy("graph", "vertex")
        .transformWithState(Neighbours(), NEIGHBOUR, outputMode="Append", timeMode="None")
        .groupBy("graph")
        .transformWithState(Components(), VERTEX, outputMode="Append", timeMode="None")
    )
    writer = EpochWriter(
        RollingFileSink(f"{target}/changes", format="json", bucket_by=["graph"]),
        DeltaSink(f"{target}/vertices", mode="upsert", keys=["graph", "vertex"]),
    )
    return writer, vertices.writeStream.option("checkpointLocation", checkpoint)


def main(folder: Path) -> None:
    """Add all edges that have arrived, then end."""
    put_sample_edges(folder / "incoming")
    spark = epochal.session("graph", conf=epochal.rocksdb_settings())
    writer, stream = build(spark, str(folder / "incoming"), str(folder / "checkpoint"), str(folder))
    writer.start(stream.trigger(availableNow=True)).awaitTermination()

    vertices = spark.read.format("delta").load(str(folder / "vertices"))
    components = vertices.groupBy("graph", "component").agg(f.count("*").alias("size"), f.max("degree").alias("most"))
    for row in components.sort("graph", "component").collect():
        print(f"{row['graph']}: component {row['component']} of {row['size']} vertices, greatest degree {row['most']}")


def put_sample_edges(incoming: Path, files: int = 4) -> None:
    """Write files of twenty edges, unless they exist: two graphs of up to sixty vertices, some edges more than once."""
    if incoming.exists():
        return
    incoming.mkdir(parents=True)
    chance = random.Random(2)
    for file in range(files):
        edges = []
        for _ in range(20):
            a, b = chance.randrange(60), chance.randrange(12)
            edge = {"graph": chance.choice(["friends", "roads"]), "a": a, "b": a // 12 * 12 + b}  # within a dozen
            edges.append(json.dumps(edge))
        (incoming / f"{file:03}.json").write_text("\n".join(edges))
        os.utime(incoming / f"{file:03}.json", (file, file))  # Spark reads the oldest first


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "graph-example"))
