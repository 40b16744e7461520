"""How good the model of `epochal plan-recovery` is: its prediction beside the recovery that was measured.

    python -m benchmarks.recovery_plan [--rows 400000] [--rounds 3] [--measure] [--settings N] [--objective auto]
        [--proofs 10] [--json]

Ten streams of different providers, extents, sizes and partitions are built, and each is recovered in new processes.
With ``--objective`` (seconds, or ``auto``: one second more than the quickest setting can hold) a setting is chosen for
a stream of this size, and recovered ``--proofs`` times: does it hold? ``--settings 0`` does that alone. Without
``--measure``, the rates that were measured before are used.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measure import note
from epochal.cli.plan_recovery import rates_and_costs
from epochal.spark_plugins.recovery.calibration import SMALL, build_all, recover
from epochal.spark_plugins.recovery.knobs import MARGIN, Costs, Load, Setting
from epochal.spark_plugins.recovery.model import Rates, predicted
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.planning import propose, prove
from epochal.spark_plugins.recovery.scratch import Scratch

GOAL = 0.25


def streams(rows: int) -> list[Scratch]:
    """The ten."""
    changelog = Setting(provider=Provider.ROCKSDB, changelog=True, partitions=4)
    hdfs = Setting(provider=Provider.HDFS_BACKED, partitions=4)
    tenth = rows // 10
    return [
        Scratch(name="no changelog", setting=replace(changelog, changelog=False), base=rows, epochs=1, updates=SMALL),
        Scratch(name="changelog, extent 1", setting=changelog, base=rows, epochs=1, updates=tenth),
        Scratch(name="changelog, extent 5", setting=changelog, base=rows, epochs=5, updates=tenth),
        Scratch(name="changelog, extent 20", setting=changelog, base=rows, epochs=20, updates=tenth),
        Scratch(name="changelog, no snapshot", setting=changelog, base=0, epochs=10, updates=tenth),
        Scratch(
            name="8 partitions, extent 10",
            setting=replace(changelog, partitions=8),
            base=rows,
            epochs=10,
            updates=tenth,
        ),
        Scratch(
            name="32 partitions, extent 3",
            setting=replace(changelog, partitions=32),
            base=tenth,
            epochs=3,
            updates=tenth // 4,
        ),
        Scratch(name="hot keys, extent 20", setting=changelog, base=tenth, epochs=20, updates=tenth, keys=1000),
        Scratch(name="HDFSBacked, extent 2", setting=hdfs, base=rows, epochs=2, updates=tenth),
        Scratch(name="HDFSBacked, extent 20", setting=hdfs, base=rows, epochs=20, updates=tenth),
    ]


def main() -> None:
    """Compare, and prove."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3, help="recoveries of each stream; the median counts")
    parser.add_argument("--settings", type=int, default=10, help="the first so many streams")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--objective", type=_objective, help="seconds, or auto")
    parser.add_argument("--proofs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rates, costs = rates_and_costs(options.cores, measure=options.measure)
    wanted = streams(options.rows)[: options.settings]
    found = compared(wanted, rates, options.cores, options.rounds) if wanted else []
    if found and not options.json:
        print_comparison(found)
    proofs = None if options.objective is None else proved(options, rates, costs)
    if options.json:
        print(json.dumps({"streams": found, "proofs": proofs}, indent=2))
    elif proofs is not None:
        print(
            f"objective {proofs['objective']:.1f} s: {proofs['setting']}, predicted {proofs['predicted']:.1f} s, "
            f"held in {proofs['held']} of {options.proofs}, median {statistics.median(proofs['seconds']):.1f} s, "
            f"longest {max(proofs['seconds']):.1f} s"
        )


def _objective(text: str) -> float:
    """Seconds; 0 stands for auto."""
    return 0.0 if text == "auto" else float(text)


def print_comparison(found: list[dict[str, float | str]]) -> None:
    """Prediction and measurement as a table."""
    print("| stream | predicted s | measured s | error | state: predicted s | measured s |\n|---|---|---|---|---|---|")
    for one in found:
        print(
            f"| {one['name']} | {one['predicted']:.2f} | {one['measured']:.2f} | {one['error']:.0%} | "
            f"{one['predicted_state']:.2f} | {one['measured_state']:.2f} |"
        )
    median = statistics.median(float(one["error"]) for one in found)
    print(f"\nmedian error {median:.0%}; the goal is {GOAL:.0%}", flush=True)


def compared(wanted: list[Scratch], rates: Rates, cores: int, rounds: int) -> list[dict[str, float | str]]:
    """Prediction and measurement of each stream."""
    found: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory(prefix="epochal-plan-") as folder:
        note("building the streams")
        build_all(wanted, Path(folder), cores)
        for scratch in wanted:
            note(scratch.name)
            runs = [recover(scratch, Path(folder), cores, rows=SMALL) for _ in range(rounds)]
            expected = predicted(runs[0].state, rates, slots=cores)
            measured = statistics.median(run.end for run in runs)
            found.append(
                {
                    "name": scratch.name,
                    "predicted": expected.total,
                    "measured": measured,
                    "error": abs(expected.total - measured) / measured,
                    "predicted_state": expected.state,
                    "measured_state": statistics.median(run.epoch for run in runs) - rates.epoch,
                }
            )
    return found


def proved(options: argparse.Namespace, rates: Rates, costs: Costs) -> dict[str, Any]:
    """How long the chosen setting takes, again and again."""
    load = Load(interval=2.0, updates=options.rows / 50, rows=options.rows, bytes=options.rows * 14.0)
    current = Setting(provider=Provider.ROCKSDB, changelog=True, partitions=4)
    objective = options.objective
    if not objective:
        best = propose(load, current, rates, costs, cores=options.cores, budget=1.0).chosen
        assert best is not None  # any setting fits into a whole processor
        objective = 1.0 + best.seconds / MARGIN
    chosen = propose(load, current, rates, costs, cores=options.cores, objective=objective).chosen
    if chosen is None:
        raise SystemExit(f"no setting holds {objective:g} s on this machine")
    note(f"objective {objective:.1f} s, chosen: {chosen.setting.name}, predicted {chosen.seconds:.1f} s")
    seconds = [one.end for one in prove(chosen, load, cores=options.cores, times=options.proofs)]
    return {
        "objective": objective,
        "setting": chosen.setting.name,
        "predicted": chosen.seconds,
        "held": sum(one <= objective for one in seconds),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
