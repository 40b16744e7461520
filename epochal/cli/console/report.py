"""``epochal report``: the page with its data as one HTML file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from epochal.cli.console.audits import fast_audit
from epochal.cli.console.model import JsonObject
from epochal.cli.console.page import document
from epochal.cli.console.watch import Reader, Reading, chosen
from epochal.cli.exit_codes import UNREACHABLE
from epochal.cli.text import counted, show, size
from epochal.txn.errors import EpochalError


def run(checkpoints: Sequence[str], journal: str | None, *, output: str, audit: bool, as_json: bool) -> int:
    """Write the file. The exit code shows whether every stream could be read; the others are in it all the same."""
    streams = [_read(checkpoint, journal, audit=audit) for checkpoint in chosen(checkpoints, journal)]
    page = document({"at": time.time(), "streams": streams}, live=False)
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(page.encode())  # the page says that it is UTF-8, whatever the terminal is
        sys.stdout.flush()
    else:
        Path(output).write_text(page, encoding="utf-8")
    failed = [stream for stream in streams if stream["error"]]
    if as_json:
        print(json.dumps({"file": output, "streams": len(streams), "failed": len(failed)}))
    elif output != "-":
        show(f"{output}: {counted(len(streams), 'stream')}, {size(len(page.encode()))}")
    for stream in failed:
        show(f"{stream['checkpoint']}: {stream['error']}", sys.stderr)
    return UNREACHABLE if failed else 0


def _read(checkpoint: str, journal: str | None, *, audit: bool) -> JsonObject:
    try:
        reading = Reading(checkpoint=checkpoint, snapshot=Reader(checkpoint, journal)())
    except (EpochalError, OSError) as fault:
        return Reading(checkpoint=checkpoint, error=str(fault)).to_json() | {"audit": None}
    return reading.to_json() | {"audit": _audit(checkpoint, journal) if audit else None}


def _audit(checkpoint: str, journal: str | None) -> JsonObject:
    try:
        return {"state": "done", "result": fast_audit(checkpoint, journal)}
    except (EpochalError, OSError) as fault:
        return {"state": "failed", "error": str(fault), "at": time.time()}
