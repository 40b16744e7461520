"""What folding takes of a processor when it has a share, under a load that changes tenfold. Without Spark or waiting.

    python -m benchmarks.state_share [--live 50000] [--epochs 480] [--shares 0.02 0.1] [--load 500 5000]

An epoch each 0.1 s, by a clock of the load's own: what folding takes is processor time, so a busy machine changes it
little. The load changes eight times.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.measure import note
from benchmarks.state import FILES, LOAD, PACE, RETAIN, filled, folder
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.state.budget import Budget
from epochal.txn.state.gauge import Gauge
from epochal.txn.state.policy import Policy


def folded(share: float | None, *, live: int, epochs: int, loads: list[int]) -> str:
    """Run so many epochs, and say what folding took."""
    now, changed = 0.0, 0
    budget = Budget(lambda: share, clock=lambda: now)
    with folder() as home:
        path = str(home / "journal")
        first = filled(home / "journal", live)
        journal = Journal(FILES, path, policy=Policy(cpu=share))
        journal._gauge = Gauge(lambda: now)
        journal.read()
        journal.claim(GenerationStarted(2, "query", base=0))
        folds = waited = segments = 0
        begun = time.process_time()
        for epoch in range(first, first + epochs):
            load = (loads * 4)[(epoch - first) * 4 * len(loads) // epochs]
            changes: dict[str, Json] = {f"key {(changed + n) * 7919 % live}": [epoch, n] for n in range(load)}
            changed, now = changed + load, now + PACE
            journal.prepare(Prepared(epoch, 2, "offsets", {"sink": Staged(Handle(1, {}), load, changes=changes)}))
            journal.read()
            journal.decide(epoch, 2)
            view = journal.read()
            journal.finish(epoch, 2)
            waited = max(waited, view.done_through - view.floor)
            segments = max(segments, journal.extent().segments)
            plan = journal.plan(view, retain=RETAIN, affords=budget.affords)
            if plan is not None:
                with budget.spending():
                    journal.fold(plan, between=budget.charge, affords=lambda seconds: _affords(budget, seconds))
                folds += 1
        used, extent = time.process_time() - begun, journal.extent()
    return (
        f"share {'all' if share is None else f'{share:.0%}'}, {changed / now:,.0f} changes a second for {now:.0f} s: "
        f"folding took {budget.spent:.2f} s of a processor ({budget.spent / now:.1%}), "
        f"{budget.spent / changed * 1e6:.1f} us a change, in {folds} rounds; all of it {used:.1f} s; at most "
        f"{waited} epochs in records, {segments} segments; at the end {extent.entries / max(1, extent.live):.1f} "
        f"entries in segments for a live one"
    )


def _affords(budget: Budget, seconds: float) -> bool:
    budget.charge()
    return budget.affords(seconds)


def main() -> None:
    """Run each share."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state_share", description=__doc__.splitlines()[0])
    parser.add_argument("--live", type=int, default=50_000, help="entries that are there before")
    parser.add_argument("--epochs", type=int, default=480)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.02, 0.1])
    parser.add_argument("--load", type=int, nargs="+", default=LOAD, help="changes of an epoch, in turn")
    args = parser.parse_args()
    for share in args.shares:
        note(folded(share, live=args.live, epochs=args.epochs, loads=args.load))


if __name__ == "__main__":
    main()
