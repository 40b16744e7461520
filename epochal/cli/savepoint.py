"""``epochal savepoint``: copy a stream, with its journal, at one epoch; its query may run.

It claims no generation and stops nobody. If a driver has died with an epoch that Spark has checkpointed and not every
sink shows, that epoch is finished first, as `epochal recover` does.
"""

from __future__ import annotations

import json
import time

from epochal.cli import progress
from epochal.cli.streams import Stream, build, open_stream, reach
from epochal.cli.text import counted, paint, print_answer, size, table
from epochal.spark_plugins.moving.closing import finish
from epochal.spark_plugins.moving.manifest import Manifest
from epochal.spark_plugins.moving.origin import Origin, check_place, refuse_moved
from epochal.spark_plugins.moving.taking import Progress, take
from epochal.txn.access import refuse_unreachable
from epochal.txn.files import join
from epochal.txn.live import read_live
from epochal.txn.liveness import Liveness, driver_status
from epochal.txn.model import Json
from epochal.txn.plan import decided_not_done

BAR = 20  # characters


def run(checkpoint: str, target: str, journal: str | None, *, timeout: float, as_json: bool) -> int:
    """Take a savepoint."""
    stream = open_stream(checkpoint, journal)
    refuse_moved(stream.path, stream.journal.read())
    with refuse_unreachable(f"the folder {target}", "Name a folder for savepoints, as a user who may write there"):
        files, place = reach(target)
        origin = Origin.at(stream.path, stream.named_journal)
        check_place(origin, files, place)
    with progress.task("finishing what is decided") as say:
        if _is_left_undone(stream):
            finish(origin, build, timeout)
        manifest = take(stream.path, place, journal=stream.named_journal, on_progress=lambda p: say(bar("copying", p)))
    print_answer(json.dumps(to_json(place, manifest), indent=2) if as_json else to_text(place, manifest))
    return 0


def _is_left_undone(stream: Stream) -> bool:
    """Whether there are decided epochs to finish, and no driver is about to do it."""
    view = stream.journal.read()
    if view.latest is None or not decided_not_done(view, stream.checkpoint.committed()):
        return False
    live = read_live(stream.files, stream.journal.path, place=stream.journal.place).live
    return driver_status(view.latest, live, time.time()).liveness is not Liveness.ALIVE


def bar(what: str, done: Progress) -> str:
    """How far a copy is, in a line.

    >>> bar("copying", Progress(30, 120, 1_000_000, 4_000_000))
    'copying [#####---------------] 30 of 120 files, 1.0 MB of 4.0 MB'
    """
    full = BAR * done.bytes // done.bytes_in_all if done.bytes_in_all else BAR
    drawn = f"[{'#' * min(BAR, full)}{'-' * (BAR - full)}]"
    sizes = f"{size(done.bytes)} of {size(done.bytes_in_all)}"
    return f"{what} {drawn} {done.files} of {done.files_in_all} files, {sizes}"


def to_json(place: str, manifest: Manifest) -> dict[str, Json]:
    """A savepoint as JSON."""
    sinks: dict[str, Json] = {
        name: {"type": p.type, "target": p.target, "epoch": p.epoch, "rows": p.rows, "digest": p.digest}
        for name, p in manifest.sinks.items()
    }
    versions: dict[str, Json] = dict(manifest.versions)
    return {
        "savepoint": join(place, manifest.name),
        "name": manifest.name,
        "epoch": manifest.epoch,
        "query": manifest.query,
        "lineage": manifest.lineage,
        "generation": manifest.generation,
        "checkpoint": manifest.checkpoint,
        "journal": manifest.journal,
        "at": manifest.at,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "stored": manifest.stored,
        "sinks": sinks,
        "sources": dict(manifest.sources),
        "versions": versions,
    }


def to_text(place: str, manifest: Manifest) -> str:
    """A savepoint as text."""
    files = counted(len(manifest.files), "file")
    first = paint(f"savepoint {join(place, manifest.name)}", "green")
    rows = [
        [name, position.target, str(position.epoch), "" if position.rows is None else f"{position.rows:,}"]
        for name, position in manifest.sinks.items()
    ]
    return (
        f"{first}\nepoch {manifest.epoch}: {files}, {size(manifest.bytes)}, of which {size(manifest.stored)} are new "
        f"and were read back\n\n{table(['SINK', 'TARGET', 'EPOCH', 'ROWS'], rows, right=['EPOCH', 'ROWS'])}"
    )
