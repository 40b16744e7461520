"""``epochal gc``: list the staged data that dead drivers left behind; ``--yes`` removes it.

The rules are those of every start (`epochal.txn.plan.removal_of`). The driver of the newest generation may
still run, so its attempts stay. ``--fence`` makes sure that it does not: it claims a new generation, and
a driver that still runs stops at its next step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from epochal._version import __version__
from epochal.cli import progress
from epochal.cli.status import leftover_json, leftover_table
from epochal.cli.streams import Stream, build, open_stream
from epochal.cli.text import counted, paint, show
from epochal.txn.errors import EpochalError, SinkUnavailable
from epochal.txn.files import TEMPORARY
from epochal.txn.incarnations import all_journals
from epochal.txn.journal import Journal
from epochal.txn.model import Json, lineage_of
from epochal.txn.plan import Removal
from epochal.txn.recovery import Leftover, SinkPlace, Sinks, fence, leftovers, remove_leftovers


@dataclass
class Collected:
    """The leftovers, and which of them were removed."""

    newest: int  # drivers of this generation and later ones may still run
    committed: int
    found: list[Leftover] = field(default_factory=list)
    removed: set[Leftover] = field(default_factory=set)
    temporary: list[str] = field(default_factory=list)
    away: dict[SinkPlace, str] = field(default_factory=dict)
    fenced: int | None = None  # the generation that was claimed

    @property
    def removable(self) -> list[Leftover]:
        return [left for left in self.found if left.verdict is not Removal.KEEP]

    @property
    def kept(self) -> list[Leftover]:
        return [left for left in self.found if left.verdict is Removal.KEEP]


def run(checkpoint: str, journal: str | None, *, remove: bool, fencing: bool, as_json: bool) -> int:
    """List or remove. The exit code is 1 if a store could not be reached or checked."""
    with progress.task(f"looking at {checkpoint}"):
        stream = open_stream(checkpoint, journal)
        result = collect(stream, remove=remove, fencing=fencing)
    show(json.dumps(to_json(stream, result, remove), indent=2) if as_json else to_text(result, remove, fencing))
    return 1 if result.away else 0


def collect(stream: Stream, *, remove: bool, fencing: bool) -> Collected:
    """Go through every journal of the query, including those that `new` has closed."""
    view = stream.journal.read()
    result = Collected(view.generation + 1 if fencing else view.generation, stream.checkpoint.committed())
    if fencing and remove:
        result.fenced = fence(stream.journal, stream.lineage, stream.sinks(), version=__version__)
        result.newest = result.fenced
    for number, journal in all_journals(stream.journal_of):
        # No driver works on a closed journal: the one that closed it has a higher number than the last that did.
        newest = result.newest if journal.path == stream.journal.path else journal.read().generation
        _collect(stream, journal, lineage_of(stream.query, number), newest, result, remove=remove)
    return result


def _collect(stream: Stream, journal: Journal, lineage: str, newest: int, result: Collected, *, remove: bool) -> None:
    result.temporary.extend(n for n in stream.files.names(journal.path) if n.startswith(TEMPORARY))
    if remove:
        journal.sweep()
    sinks = Sinks(journal.read(), build, scratch=stream.scratch)
    for place in sinks.places():
        try:
            found = leftovers(journal.read(), sinks, place, lineage, newest=newest)
            result.found.extend(found)
            if remove:
                gone = set(remove_leftovers(journal, sinks, place, lineage, newest=newest))
                result.removed.update(left for left in found if left.attempt in gone)
        except SinkUnavailable as fault:
            result.away[place] = str(fault)
        except EpochalError:
            raise
        except Exception as fault:  # noqa: BLE001  # any error of a store's driver: go on with the others
            result.away[place] = str(fault) or type(fault).__name__


def to_json(stream: Stream, result: Collected, remove: bool) -> dict[str, Json]:
    """The outcome as JSON."""
    away: list[Json] = [{"sink": p.sink, "target": p.target, "error": error} for p, error in result.away.items()]
    return {
        "checkpoint": stream.path,
        "dry_run": not remove,
        "fenced_by": result.fenced,
        "newest": result.newest,
        "removable": [leftover_json(left, result.newest, result.committed) for left in result.removable],
        "removed": [
            leftover_json(left, result.newest, result.committed) for left in result.found if left in result.removed
        ],
        "kept": [leftover_json(left, result.newest, result.committed) for left in result.kept],
        "temporary": list(result.temporary),
        "away": away,
    }


def to_text(result: Collected, remove: bool, fencing: bool) -> str:
    """The outcome as text."""
    parts = []
    if result.fenced is not None:
        parts.append(f"generation {result.fenced} claimed: a driver that still runs this query will stop")
    elif fencing:
        parts.append(f"--yes claims generation {result.newest}, and a driver that still runs this query will stop")
    if result.found:
        parts.append(leftover_table(result.found, result.newest, result.committed))
    for place, error in result.away.items():
        parts.append(paint(f"sink {place.sink!r} ({place.target}) was not checked: {error}", "red"))
    temporary = f", {counted(len(result.temporary), 'temporary file')} of the journal" if result.temporary else ""
    kept = f"; {len(result.kept)} kept" if result.kept else ""
    if remove:
        parts.append(paint(f"removed {counted(len(result.removed), 'attempt')}{temporary}{kept}", "green"))
    elif result.removable or result.temporary:
        parts.append(f"dry run: --yes would remove {counted(len(result.removable), 'attempt')}{temporary}{kept}")
    else:
        parts.append(f"nothing to remove{kept}")
    return "\n\n".join(parts)
