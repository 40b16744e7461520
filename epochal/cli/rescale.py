"""``epochal rescale``: change how many partitions the state of a stopped query has."""

from __future__ import annotations

import json

from epochal.cli import progress
from epochal.cli.retire import whoever
from epochal.cli.savepoint import bar
from epochal.cli.streams import build, open_stream, reach, start_spark
from epochal.cli.text import paint, print_answer, table
from epochal.spark_plugins.moving.origin import Origin
from epochal.spark_plugins.moving.rescaling import Rescale, Rescaled
from epochal.spark_plugins.moving.spark_state import Engine, SparkEngine, refuse_old_spark
from epochal.txn.model import Json

MASTER = "local[*]"


def run(
    checkpoint: str,
    journal: str | None,
    *,
    partitions: int,
    savepoints: str | None,
    stopped: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Rescale, or finish a rescale that was begun."""
    refuse_old_spark()
    stream = open_stream(checkpoint, journal)
    _, place = reach(savepoints or f"{stream.path.rstrip('/')}-savepoints")
    with progress.task("looking at the stream") as say:
        rescaled = Rescale(
            origin=Origin.at(stream.path, stream.named_journal),
            savepoints=place,
            engine=lambda: spark_of(stream.path),
            build=build,
            named_journal=stream.named_journal,
            stopped=stopped,
            timeout=timeout,
            by=whoever(),
            say=say,
            on_progress=lambda p: say(bar("copying", p)),
        ).to(partitions)
    print_answer(json.dumps(to_json(rescaled), indent=2) if as_json else to_text(rescaled))
    return 0


def spark_of(path: str) -> Engine:
    """The session of this process; one is started if there is none."""
    start_spark(path, master=MASTER)
    from pyspark.sql import SparkSession

    return SparkEngine(SparkSession.builder.getOrCreate())


def to_json(rescaled: Rescaled) -> dict[str, Json]:
    """The outcome as JSON."""
    return {
        "checkpoint": rescaled.checkpoint,
        "from": rescaled.partitions.before,
        "to": rescaled.partitions.after,
        "epoch": rescaled.epoch,
        "savepoint": rescaled.savepoint or None,
        "state": [one.to_json() for one in rescaled.state],
        "generation": rescaled.generation,
        "resumed": rescaled.resumed,
    }


def to_text(rescaled: Rescaled) -> str:
    """The outcome as text."""
    if rescaled.epoch is None:
        return f"nothing to do: the state has {rescaled.partitions.after} partitions"
    how = "finished what was begun: " if rescaled.resumed else ""
    first = paint(f"{how}rescaled {rescaled.partitions}, in epoch {rescaled.epoch}", "green")
    rows = [[f"{one.operator} {one.name}", one.store, f"{one.rows:,}", one.digest] for one in rescaled.state]
    return (
        f"{first}\nthe state is the same as before. Start the query again\nbefore it: {rescaled.savepoint}\n\n"
        f"{table(['OPERATOR', 'STATE', 'ROWS', 'DIGEST'], rows, right=['ROWS'])}"
    )
