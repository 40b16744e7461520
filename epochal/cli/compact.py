"""``epochal compact``: join the small files of a rolling-file target while its stream and its readers run.

PATH is the target, not a checkpoint: no stream is read or fenced. Local JSON, CSV and text need no Spark.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable

from epochal.cli import progress
from epochal.cli.streams import reach_target, start_spark
from epochal.cli.text import counted, paint, show, size, table
from epochal.sinks.files.compaction.compactor import Compactor, Report
from epochal.sinks.files.layout import Layout
from epochal.sinks.storage.hadoop import start_on_demand
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn.access import refuse_unreachable
from epochal.txn.durations import lasting
from epochal.txn.model import Json

SHOWN = 10  # files that are listed by name


def run(path: str, *, max_bytes: int, grace: float, header: bool | None, dry_run: bool, as_json: bool) -> int:
    """Compact, or list what would be joined."""
    start_on_demand(start_spark)
    files, target = reach_target(path)
    with refuse_unreachable(f"the target {target}", "Name the path of a RollingFileSink, as a user who may read it"):
        files.names(target)
    with progress.task(f"compacting {target}") as say:
        tell = (lambda _: None) if as_json else say if sys.stderr.isatty() else _print
        report = _compact(files, target, tell, max_bytes, grace, header, dry_run=dry_run)
    show(json.dumps(to_json(target, report, dry_run), indent=2) if as_json else to_text(report, dry_run))
    return 0


def _compact(
    files: SinkFiles,
    target: str,
    tell: Callable[[str], None],
    max_bytes: int,
    grace: float,
    header: bool | None,
    *,
    dry_run: bool,
) -> Report:
    compactor = Compactor(
        files,
        Layout(target),
        max_bytes,
        grace=grace,
        header=header,
        progress=tell,
    )
    return compactor.look() if dry_run else compactor.run()


def _print(text: str) -> None:
    show(text, sys.stderr)


def buckets(report: Report, dry_run: bool) -> list[tuple[str, int, int, int]]:
    """Each bucket with files to join: the number of files before and after, and the bytes joined."""
    if dry_run:
        joins = [(group.files[0].bucket, len(group.files), group.bytes) for group in report.choice.groups]
    else:
        joins = [(one.path.rpartition("/")[0], len(one.replaced), one.bytes) for one in report.joined]
    before = Counter(file.bucket for file in report.live)
    fewer: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    for bucket, count, length in joins:
        fewer[bucket] += count - 1
        joined[bucket] += length
    return [(bucket, before[bucket], before[bucket] - fewer[bucket], joined[bucket]) for bucket in sorted(joined)]


def to_json(target: str, report: Report, dry_run: bool) -> dict[str, Json]:
    """The outcome as JSON."""
    names = ("bucket", "files_before", "files_after", "bytes_joined")
    unfit: list[Json] = [{"path": path, "reason": reason} for path, reason in report.choice.unfit]
    waiting: list[Json] = [{"compaction": n, "until": until} for n, until in report.waiting.items()]
    return {
        "target": target,
        "dry_run": dry_run,
        "compaction": report.number,
        "buckets": [dict(zip(names, row, strict=True)) for row in buckets(report, dry_run)],
        "unfinished": report.unfinished,
        "finished": list(report.finished),
        "given_up": list(report.given_up),
        "missing": list(report.choice.missing),
        "left_alone": unfit,
        "other_endings": dict(report.choice.other),
        "waiting": waiting,
    }


def to_text(report: Report, dry_run: bool) -> str:
    """The outcome as text."""
    rows = [
        [bucket or "(no bucket)", str(before), str(after), size(length)]
        for bucket, before, after, length in buckets(report, dry_run)
    ]
    parts = []
    if rows:
        parts.append(table(["BUCKET", "BEFORE", "AFTER", "BYTES"], rows, right=["BEFORE", "AFTER", "BYTES"]))
    parts += _remarks(report)
    if dry_run:
        parts.append("dry run: nothing was changed" if rows else "nothing to join")
    elif report.number is None:
        parts.append("nothing to join")
    else:
        files = sum(len(one.replaced) for one in report.joined)
        made = counted(len(report.joined), "file")
        parts.append(paint(f"compaction {report.number}: {counted(files, 'file')} became {made}", "green"))
    return "\n\n".join(parts)


def _remarks(report: Report) -> list[str]:
    found = []
    if report.unfinished is not None:
        found.append(f"compaction {report.unfinished} is not finished: the next run finishes it first")
    if report.finished:
        found.append(f"finished what another process had started: compaction {', '.join(map(str, report.finished))}")
    for number in report.given_up:
        text = f"compaction {number} was given up: another program removed a file that it had joined. No row is lost"
        found.append(paint(text, "yellow"))
    if report.choice.missing:
        found.append(_named("listed by the manifest, but missing or changed", report.choice.missing))
    if report.choice.unfit:
        found.append(_named("left alone", [f"{path}: {reason}" for path, reason in report.choice.unfit]))
    for ending, count in sorted(report.choice.other.items()):
        found.append(f"left alone: {counted(count, 'file')} with the ending {ending or '(none)'}")
    for number, until in report.waiting.items():
        left = max(0.0, until - time.time())
        found.append(f"compaction {number}: the files it replaced stay for {lasting(left)}; run this again after that")
    return found


def _named(what: str, names: list[str]) -> str:
    more = [f"  and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "\n".join([paint(f"{what}:", "yellow"), *(f"  {name}" for name in names[:SHOWN]), *more])
