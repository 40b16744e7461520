"""``epochal recover``: finish what Spark has checkpointed, without the query.

It claims no generation: a running driver goes on undisturbed, and both may commit the same epoch. An
epoch in doubt stays as it is: only Spark's commits/N decides it.
"""

from __future__ import annotations

import json

from epochal.cli import progress as show
from epochal.cli.stream_status import attempts_in_doubt
from epochal.cli.streams import open_stream
from epochal.cli.text import counted, listed, paint, print_answer
from epochal.txn.cut_file import CutFile
from epochal.txn.model import Attempt, Json, Outcome
from epochal.txn.plan import decided_not_done
from epochal.txn.recovery import Recovery
from epochal.txn.reporting import reporter, stream_name
from epochal.txn.settler import Retrying


def run(checkpoint: str, journal: str | None, *, timeout: float, as_json: bool) -> int:
    """Settle. Raises NotSettled if a store cannot be reached within the timeout."""
    stream = open_stream(checkpoint, journal)
    waiting = decided_not_done(stream.journal.read(), stream.checkpoint.committed())
    if waiting and not as_json:
        print(f"{counted(len(waiting), 'epoch')} to finish: {listed(waiting)}", flush=True)
    progress = Commits(quiet=as_json)
    reports = reporter(stream=stream_name(stream.path))
    recovery = Recovery(
        journals=stream.journal_of,
        checkpoint=stream.checkpoint,
        sinks=stream.sinks(),
        on_commit=progress.committed,
        reporter=reports,
    )
    with show.task(f"finishing {listed(waiting)}" if waiting else "looking for what to finish"):
        Retrying(recovery.settle, reporter=reports, lineage=lambda: recovery.lineage).settle(timeout)
    CutFile().bring_up_to_date(recovery.journal)
    view = stream.journal.read()
    doubt = sorted({p.epoch for p in attempts_in_doubt(view, stream.checkpoint.committed())})
    if as_json:
        commits: list[Json] = list(progress.commits)
        answer: dict[str, Json] = {
            "checkpoint": stream.path,
            "settled": True,
            "commits": commits,
            "done": view.done_through if view.done_through >= 0 else None,
            "in_doubt": list(doubt),
        }
        print(json.dumps(answer, indent=2))
        return 0
    if not progress.commits:
        print(
            "nothing to do: the journal records every epoch that Spark has checkpointed as done. The stores were not "
            "checked: `epochal status` and `epochal audit` do that"
        )
    else:
        print(paint(f"settled: {counted(len(progress.epochs), 'epoch')} finished", "green"))
    if doubt:
        print(f"epoch {listed(doubt)} left as it is: prepared, but not in commits/. The query's next start decides")
    return 0


class Commits:
    """Prints each commit as it happens, and collects them for the JSON answer."""

    def __init__(self, *, quiet: bool) -> None:
        self.commits: list[dict[str, Json]] = []
        self.epochs: set[int] = set()
        self._quiet = quiet

    def committed(self, attempt: Attempt, sink: str, outcome: Outcome) -> None:
        self.epochs.add(attempt.epoch)
        self.commits.append(
            {"epoch": attempt.epoch, "generation": attempt.generation, "sink": sink, "outcome": outcome.value}
        )
        if not self._quiet:
            show.clear()
            print_answer(f"  epoch {attempt.epoch}  {sink}  {outcome.value}")
