"""``epochal restore``: make a checkpoint of a savepoint, in which the stream goes on; ``--fork`` begins another one."""

from __future__ import annotations

import json

from epochal.cli import progress
from epochal.cli.retire import whoever
from epochal.cli.savepoint import bar
from epochal.cli.streams import build, reach, start_spark
from epochal.cli.text import listed, paint, print_answer
from epochal.sinks.storage.hadoop import start_on_demand
from epochal.spark_plugins.moving.restoring import Restored, restore
from epochal.txn.files import join
from epochal.txn.model import Json


def run(
    savepoint: str, checkpoint: str, *, fork: bool, lost_original: bool, wait: float, timeout: float, as_json: bool
) -> int:
    """Restore, or fork."""
    start_on_demand(start_spark)
    folder, slash, name = savepoint.rstrip("/").rpartition("/")
    _, place = reach(folder or ".")
    _, path = reach(checkpoint)
    with progress.task("looking at the savepoint") as say:
        restored = restore(
            join(place, name) if slash else join(place, savepoint),
            path,
            build=build,
            fork=fork,
            lost_original=lost_original,
            wait=wait,
            timeout=timeout,
            on_progress=lambda p: say(bar("restoring", p)),
            by=whoever(),
        )
    print_answer(json.dumps(to_json(restored, fork), indent=2) if as_json else to_text(restored, fork))
    return 0


def to_json(restored: Restored, fork: bool) -> dict[str, Json]:
    """The outcome as JSON."""
    return {
        "savepoint": restored.manifest.name,
        "checkpoint": restored.checkpoint,
        "fork": fork,
        "query": restored.query,
        "epoch": restored.epoch,
        "through": restored.through,
        "ahead": dict(restored.ahead),
        "generation": restored.generation,
        "closed": restored.closed or None,
        "not_ended": restored.waited_in_vain or None,
    }


def to_text(restored: Restored, fork: bool) -> str:
    """The outcome as text."""
    if fork:
        return (
            paint(f"forked: {restored.checkpoint} begins another stream after epoch {restored.epoch}", "green")
            + f"\nits query id is {restored.query}. Start it with targets of its own: those of the original refuse it"
        )
    lines = [paint(f"restored: the stream goes on in {restored.checkpoint} after epoch {restored.epoch}", "green")]
    if restored.closed:
        lines.append(f"{restored.closed} is closed: a start there is refused")
    if restored.waited_in_vain:
        lines.append(
            f"its driver ({restored.waited_in_vain}) has not ended. It is fenced, and can show nothing any more"
        )
    if restored.through > restored.epoch:
        ahead = list(range(restored.epoch + 1, restored.through + 1))
        sinks = ", ".join(f"{name} shows epoch {last}" for name, last in sorted(restored.ahead.items()))
        one = len(ahead) == 1
        what = f"epoch {ahead[0]} was" if one else f"epochs {listed(ahead)} were"
        skipped = "It is skipped if Spark plans it" if one else "They are skipped if Spark plans them"
        lines.append(
            f"{what} written before: {sinks}. {skipped} with the same offsets and files; else the query stops before "
            "anything is written"
        )
    return "\n".join(lines)
