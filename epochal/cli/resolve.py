"""``epochal resolve``: commit or abort one epoch by hand, where that changes nothing that Spark decides.

What is allowed, and why the rest is not: `epochal.txn.resolution`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from epochal._version import __version__
from epochal.cli.recover import Commits
from epochal.cli.streams import Stream, open_stream
from epochal.cli.text import counted, paint, show
from epochal.txn.claims import why_not_ours
from epochal.txn.errors import EpochalError, Refused, StoreAway, TwoJournals
from epochal.txn.live import read_live
from epochal.txn.liveness import driver_status
from epochal.txn.model import Json
from epochal.txn.recovery import Recovery, SinkPlace, Sinks, fence, remove_leftovers
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.resolution import Resolution, ResolutionFacts, check_abort, check_commit
from epochal.txn.settler import Retrying


@dataclass
class Resolved:
    """What was done."""

    action: str
    epoch: int
    resolution: Resolution
    commits: list[dict[str, Json]] = field(default_factory=list)
    removed: list[tuple[str, int]] = field(default_factory=list)  # sink and generation
    fenced: int | None = None


def run(
    checkpoint: str, journal: str | None, *, commit: int | None, abort: int | None, timeout: float, as_json: bool
) -> int:
    """Commit or abort. Refused, with the reason, where that could lose or double rows."""
    stream = open_stream(checkpoint, journal)
    if commit is not None:
        result = commit_epoch(stream, commit, timeout=timeout, quiet=as_json)
    else:
        assert abort is not None  # one of both is required
        result = abort_epoch(stream, abort)
    show(json.dumps(to_json(stream, result), indent=2) if as_json else to_text(result))
    return 0


def commit_epoch(stream: Stream, epoch: int, *, timeout: float, quiet: bool) -> Resolved:
    """Finish a decided epoch; with ``commit="eager"`` also one that only its dead driver did not decide."""
    sinks = stream.sinks()
    facts = _facts(stream, epoch)
    resolution = check_commit(facts)
    result = Resolved("commit", epoch, resolution)
    if resolution is Resolution.NOTHING:
        return result
    if resolution is Resolution.DECIDE:
        _check_own(stream, sinks, sinks.current().values())
        # The generation that was checked: a newer one may have started since, and has not staged the epoch.
        stream.journal.decide(epoch, facts.view.generation, durable=True)
    commits = Commits(quiet=quiet)
    reports = reporter(stream=stream_name(stream.path))
    recovery = Recovery(
        journals=stream.journal_of,
        checkpoint=stream.checkpoint,
        sinks=sinks,
        on_commit=commits.committed,
        reporter=reports,
    )
    Retrying(recovery.settle, reporter=reports, lineage=lambda: recovery.lineage).settle(timeout)
    result.commits = commits.commits
    return result


def abort_epoch(stream: Stream, epoch: int) -> Resolved:
    """Remove the staged data of an epoch that no driver has prepared. The next start replays it."""
    sinks = stream.sinks()
    staged = _staged(stream, sinks, epoch)
    facts = _facts(stream, epoch, {generation for _, generation in staged})
    resolution = check_abort(facts)
    result = Resolved("abort", epoch, resolution)
    if resolution is Resolution.NOTHING:
        return result
    _check_own(stream, sinks, [place for place, _ in staged])
    newest = stream.journal.read().generation
    if resolution is Resolution.FENCE_THEN_REMOVE:
        dead = facts.view.generation
        newest = result.fenced = fence(stream.journal, stream.lineage, sinks, version=__version__, expected=dead)
    for place in dict.fromkeys(place for place, _ in staged):
        # Seal before delete: if the driver was alive after all and has recorded PREPARED meanwhile, its data stays.
        gone = remove_leftovers(stream.journal, sinks, place, stream.lineage, newest=newest, epoch=epoch)
        result.removed.extend((place.sink, attempt.generation) for attempt in gone)
    if stream.journal.read().prepared(epoch):
        raise Refused(
            f"epoch {epoch} was staged completely while this command ran, so what is staged of it stays. Start the "
            "query: it replays the epoch"
        )
    return result


def _check_own(stream: Stream, sinks: Sinks, places: Iterable[SinkPlace]) -> None:
    """Refuse on a copy of the checkpoint: the targets, and what is staged there, are the original's."""
    view = stream.journal.read()
    for place in dict.fromkeys(places):
        holder = sinks.at(place).holder(stream.lineage)
        if (why := why_not_ours(holder, view, stream.lineage, stream.journal.place)) is not None:
            raise TwoJournals(
                f"sink {place.sink!r} ({place.target}): {why}. This checkpoint is a copy, or was moved. Nothing was "
                "changed. Use the checkpoint that the target belongs to"
            )


def _facts(stream: Stream, epoch: int, staged_by: set[int] | None = None) -> ResolutionFacts:
    checkpoint = stream.checkpoint
    committed, planned = checkpoint.committed(), checkpoint.planned()
    view = stream.journal.read()
    assert view.latest is not None  # open_stream has checked it
    live = read_live(stream.files, stream.journal.path, place=stream.journal.place)
    return ResolutionFacts(
        view=view,
        epoch=epoch,
        committed=committed,
        planned=planned,
        driver=driver_status(view.latest, live.live, time.time()),
        offsets=checkpoint.offsets(epoch),
        staged_by=staged_by or (),
    )


def _staged(stream: Stream, sinks: Sinks, epoch: int) -> list[tuple[SinkPlace, int]]:
    """Where something of the epoch is staged, and by which generation. Every sink must answer."""
    staged = []
    for place in sinks.places():
        try:
            found = sinks.at(place).leftovers(stream.lineage, sinks.scratch)
        except EpochalError:
            raise
        except Exception as fault:
            raise StoreAway(f"sink {place.sink!r} ({place.target}) does not answer: {fault}") from fault
        staged += [(place, left.generation) for left in found if left.epoch == epoch and not left.roll]
    return staged


def to_json(stream: Stream, result: Resolved) -> dict[str, Json]:
    """The outcome as JSON."""
    return {
        "checkpoint": stream.path,
        "action": result.action,
        "epoch": result.epoch,
        "resolution": result.resolution.value,
        "fenced_by": result.fenced,
        "commits": list(result.commits),
        "removed": [{"sink": sink, "generation": generation} for sink, generation in result.removed],
    }


def to_text(result: Resolved) -> str:
    """The outcome as text."""
    epoch = result.epoch
    match result.action, result.resolution:
        case "commit", Resolution.NOTHING:
            return f"nothing to do: epoch {epoch} is visible in every sink"
        case "commit", _:
            return paint(f"epoch {epoch} is visible in every sink", "green")
        case _, Resolution.NOTHING:
            return f"nothing to do: nothing of epoch {epoch} is staged; the next start of the query replays it"
        case _:
            if not result.removed:  # somebody else was faster
                return f"nothing of epoch {epoch} is staged any more; the next start of the query replays it"
            claimed = "" if result.fenced is None else f"generation {result.fenced} claimed; "
            return paint(
                f"{claimed}removed {counted(len(result.removed), 'attempt')} at epoch {epoch}; the next start of the "
                "query replays it",
                "green",
            )
