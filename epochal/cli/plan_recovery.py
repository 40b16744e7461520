"""``epochal plan-recovery``: the cheapest settings of Spark's state that hold a recovery objective."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli import progress
from epochal.cli.ending import ended_in_order
from epochal.cli.exit_codes import REFUSED
from epochal.cli.state import parts_text
from epochal.cli.streams import reach
from epochal.cli.text import counted, key_values, paint, print_answer, show, size, table
from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery.chart import draw
from epochal.spark_plugins.recovery.knobs import MARGIN, Costs, Plan, Setting
from epochal.spark_plugins.recovery.loads import load_of, partitions_of, setting_of
from epochal.spark_plugins.recovery.model import Rates
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.reading import read_state
from epochal.txn.errors import Refused
from epochal.txn.model import Json

if TYPE_CHECKING:
    from epochal.spark_plugins.recovery.calibration import Measured
    from epochal.spark_plugins.recovery.planning import Proposal

SHOWN = 8


@ended_in_order()
def run(
    path: str,
    *,
    objective: float | None,
    budget: float | None,
    interval: float | None,
    updates: int | None,
    partitions: Sequence[int],
    cores: int | None,
    measure: bool,
    plot: str | None,
    verify: bool,
    as_json: bool,
) -> int:
    """Propose a setting. The exit code is 2 if none holds, or if the proof shows that it does not."""
    from epochal.spark_plugins.recovery.planning import propose, prove

    files, place = reach(path)
    state = read_state(files, place)
    if not state.operators:
        raise Refused(f"{place}: the query keeps no state, so there is nothing to plan")
    slots = cores or os.cpu_count() or 1
    rates, costs = rates_and_costs(slots, measure=measure)
    load = load_of(files, place, state, interval=interval, updates=updates)
    proposal = propose(
        load,
        setting_of(state),
        rates,
        costs,
        cores=slots,
        objective=objective,
        budget=budget,
        partitions=[*partitions] or [partitions_of(state)],
    )
    proof = None
    if verify and proposal.chosen is not None:
        with progress.task("proving the plan with a scratch stream of this size"):
            (proof,) = prove(proposal.chosen, load, cores=slots)
    if plot is not None:
        points = [(plan.cpu * 100, plan.seconds) for plan in proposal.curve]
        Path(plot).write_text(_chart(points, proposal, objective), encoding="utf-8")
    answer = (
        json.dumps(to_json(place, proposal, rates, objective, budget, slots, proof), indent=2)
        if as_json
        else to_text(place, proposal, rates, objective, budget, slots, proof)
    )
    print_answer(answer)
    return 0 if proposal.chosen is not None and _holds(proof, objective) is not False else REFUSED


def rates_and_costs(cores: int, *, measure: bool) -> tuple[Rates, Costs]:
    """What was measured on this machine before; else it is measured now, and kept."""
    found = None if measure else kept.load_all()
    if found is None:
        from epochal.spark_plugins.recovery.calibration import RECOVERED, calibrate

        show(
            f"measuring this machine: {len(RECOVERED)} scratch streams are built and recovered in new processes, on "
            f"{counted(cores, 'core')}. This takes some minutes. The rates are stored, and the next call uses them",
            sys.stderr,
        )
        with progress.task("measuring this machine") as say:
            found = calibrate(cores=cores, say=lambda text: say(f"measuring this machine: {text}"))
        kept.save(*found)
    return found


def _holds(proof: Measured | None, objective: float | None) -> bool | None:
    return None if proof is None or objective is None else proof.end <= objective


def _chart(points: list[tuple[float, float]], proposal: Proposal, objective: float | None) -> str:
    lines = {"best settings": points, "in use": [(proposal.current.cpu * 100, proposal.current.seconds)]}
    if proposal.chosen is not None:
        lines["proposed"] = [(proposal.chosen.cpu * 100, proposal.chosen.seconds)]
    if objective is not None:
        lines["objective"] = [(0.0, objective), (max(x for x, _ in points), objective)]
    return draw("Recovery against what it costs", lines, "% of a processor", "seconds")


def _checkpoint_of(current: Setting, chosen: Setting) -> list[str]:
    """How the checkpoint gets what no setting changes: its provider, and its number of partitions."""
    other_partitions = chosen.partitions != current.partitions
    if chosen.provider is current.provider and (chosen.provider is Provider.ROCKSDB or not other_partitions):
        return [
            f"and change the number of partitions: epochal rescale --partitions {chosen.partitions}"
        ] * other_partitions
    fixed = "its provider" if chosen.provider is not current.provider else "its number of partitions"
    text = (
        f"This needs a new checkpoint: with {current.provider.value} state a checkpoint keeps {fixed}, and there is no "
        "conversion. The new one begins with empty state, and its sources where a new query begins"
    )
    if other_partitions:
        text += f". Set spark.sql.shuffle.partitions={chosen.partitions} for its first start"
    return [text]


def _plan_json(plan: Plan | None) -> dict[str, Json] | None:
    from epochal.spark_plugins.recovery.planning import spark_settings

    if plan is None:
        return None
    recovery = plan.recovery
    return {
        **{f"{name}_seconds": round(getattr(recovery, name), 3) for name in ("load", "replay", "total")},
        "extent": plan.extent,
        "cpu": round(plan.cpu, 6),
        "partitions": plan.setting.partitions,
        "settings": dict(spark_settings(plan.setting)),
    }


def to_json(
    place: str,
    proposal: Proposal,
    rates: Rates,
    objective: float | None,
    budget: float | None,
    cores: int,
    proof: Measured | None,
) -> dict[str, Json]:
    """The answer as JSON."""
    load = proposal.load
    shown: list[Json] = [_plan_json(plan) for plan in proposal.curve]
    return {
        "checkpoint": place,
        "objective_seconds": objective,
        "budget": budget,
        "cores": cores,
        "rates_measured": rates.measured,
        "load": {
            "interval_seconds": round(load.interval, 3),
            "updates": round(load.updates),
            "rows": round(load.rows),
            "bytes": round(load.bytes),
        },
        "in_use": _plan_json(proposal.current),
        "proposed": _plan_json(proposal.chosen),
        "curve": shown,
        "tried": proposal.tried,
        "proof": None
        if proof is None
        else {
            "measured_seconds": round(proof.end, 3),
            "extent": proof.state.extent,
            "holds": _holds(proof, objective),
        },
    }


def to_text(
    place: str,
    proposal: Proposal,
    rates: Rates,
    objective: float | None,
    budget: float | None,
    cores: int,
    proof: Measured | None,
) -> str:
    """The answer as text."""
    from epochal.spark_plugins.recovery.planning import spark_settings

    load, chosen = proposal.load, proposal.chosen
    every = f"{load.updates:,.0f} changes every {load.interval:.1f} s"
    wanted = f"{objective:g} s" if objective is not None else f"{(budget or 0):.1%} of a processor"
    head = key_values(
        [
            ("checkpoint", place),
            ("asked for", wanted),
            ("load", f"{load.rows:,.0f} rows in {size(round(load.bytes))}; {every}"),
            ("machine", f"{counted(cores, 'core')}, measured {rates.measured}"),
        ]
    )
    rows = [("in use", proposal.current), *([("proposed", chosen)] if chosen is not None else [])]
    best = [("", plan) for plan in proposal.curve if chosen is None or plan.setting != chosen.setting]
    cells = [
        [
            name,
            plan.setting.name,
            str(plan.extent),
            f"{plan.recovery.state:.1f} s",
            f"{plan.seconds:.1f} s",
            f"{plan.cpu:.2%}",
        ]
        for name, plan in [*rows, *best[:SHOWN]]
    ]
    headers = ["", "SETTING", "EXTENT", "STATE", "RECOVERY", "CPU"]
    parts = [head, table(headers, cells, right=headers[2:])]
    if chosen is None:
        quickest = min(proposal.curve, key=lambda plan: plan.seconds)
        parts.append(
            paint(
                f"No setting holds it. The quickest recovery takes {quickest.seconds:.1f} s: "
                f"{parts_text(quickest.recovery)}. An objective is held if it is predicted to take {MARGIN:.0%} of it",
                "yellow",
            )
        )
    else:
        lines = "\n".join(f"  {key}={value}" for key, value in spark_settings(chosen.setting).items())
        parts.append(f"set before the query is started, and restart it:\n{lines}")
        parts += _checkpoint_of(proposal.current.setting, chosen.setting)
    if proof is not None:
        held = _holds(proof, objective)
        verdict = "" if held is None else ": it holds" if held else ": it does not hold"
        parts.append(f"proof: a scratch stream of this size was recovered in {proof.end:.1f} s{verdict}")
    return "\n\n".join(parts)
