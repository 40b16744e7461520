"""``epochal roll``: publish all open parts now, before their limits are reached and without the query.

It claims a generation, so a driver that still runs the query stops: the next epoch it stages would build on parts that
are closed by then.
"""

from __future__ import annotations

import json

from epochal._version import __version__
from epochal.cli import progress
from epochal.cli.status import open_table, part_json
from epochal.cli.streams import open_stream
from epochal.cli.text import counted, paint, show
from epochal.txn.cut_file import CutFile
from epochal.txn.model import OpenRows
from epochal.txn.recovery import Recovery, open_rows, roll_all
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.settler import Retrying


def run(checkpoint: str, journal: str | None, *, timeout: float, as_json: bool) -> int:
    """Settle what is decided, then close every open part. Raises NotSettled if a store cannot be reached in time."""
    stream = open_stream(checkpoint, journal)
    reports = reporter(stream=stream_name(stream.path))
    recovery = Recovery(
        journals=stream.journal_of,
        checkpoint=stream.checkpoint,
        sinks=stream.sinks(),
        on_commit=lambda *_: None,
        reporter=reports,
    )
    retrying = Retrying(recovery.settle, reporter=reports, lineage=lambda: recovery.lineage)
    generation = None
    with progress.task(f"publishing the open parts of {stream.path}"):
        retrying.settle(timeout)
        found: list[tuple[str, OpenRows]] = open_rows(stream.journal.read(), stream.sinks())
        if found:
            generation = roll_all(
                stream.journal, stream.checkpoint, stream.lineage, stream.sinks(), version=__version__
            )
            retrying.settle(timeout)
        CutFile().bring_up_to_date(recovery.journal)
    if as_json:
        answer = {
            "checkpoint": stream.path,
            "fenced_by": generation,
            "published": [part_json(sink, part) for sink, part in found],
        }
        print(json.dumps(answer, indent=2))
    elif not found:
        print("nothing is open")
    else:
        show(open_table(found))
        print(paint(f"published {counted(len(found), 'part')}", "green"))
    return 0
