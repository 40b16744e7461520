"""Proposes the settings of Spark's state that hold a recovery objective, or a budget. Pure but for `prove`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from epochal.spark_plugins.recovery.calibration import Measured, build_all, recover
from epochal.spark_plugins.recovery.knobs import (
    Costs,
    Load,
    Plan,
    Setting,
    candidates,
    cheapest,
    curve,
    planned,
    quickest,
)
from epochal.spark_plugins.recovery.model import Rates
from epochal.spark_plugins.recovery.scratch import PREFIX, Scratch, settings_of

LARGEST = 5_000_000  # rows of a proof


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What was asked for, and what there is."""

    load: Load
    current: Plan  # the setting in use
    chosen: Plan | None  # None if no setting does
    curve: Sequence[Plan]  # the best that there are, the cheapest first
    tried: int


def propose(
    load: Load,
    current: Setting,
    rates: Rates,
    costs: Costs,
    *,
    cores: int,
    objective: float | None = None,
    budget: float | None = None,
    partitions: Sequence[int] = (),
) -> Proposal:
    """The cheapest setting that holds an objective in seconds, or the quickest within a share of a processor."""
    plans = [
        planned(setting, load, rates, costs, slots=cores)
        for setting in candidates(sorted({current.partitions, *partitions}))
    ]
    if objective is not None:
        chosen = cheapest(plans, objective)
    else:
        chosen = quickest(plans, budget if budget is not None else 1.0)
    return Proposal(
        load=load,
        current=planned(current, load, rates, costs, slots=cores),
        chosen=chosen,
        curve=curve(plans),
        tried=len(plans),
    )


def spark_settings(setting: Setting) -> dict[str, str]:
    """The settings of Spark to write down. A checkpoint fixes the number of partitions, so it is not among them."""
    found = settings_of(setting)
    del found["spark.sql.shuffle.partitions"]
    if not setting.changelog:
        for knob in ("minDeltasForSnapshot", "maintenanceInterval"):
            if found[f"{PREFIX}providerClass"].endswith("RocksDBStateStoreProvider"):
                found.pop(f"{PREFIX}{knob}")
    return found


def proof_of(plan: Plan, load: Load) -> Scratch:
    """A scratch stream of the same size under the setting, at its worst moment."""
    return Scratch(
        name="proof",
        setting=plan.setting,
        base=round(min(load.rows, LARGEST)) or 1,
        epochs=max(1, plan.extent),
        updates=max(1, round(load.updates)),
    )


def prove(plan: Plan, load: Load, *, cores: int, times: int = 1) -> list[Measured]:
    """Recover such a stream so many times, each time in a new process."""
    scratch = proof_of(plan, load)
    with tempfile.TemporaryDirectory(prefix="epochal-proof-") as folder:
        build_all([scratch], Path(folder), cores)
        return [recover(scratch, Path(folder), cores, rows=scratch.updates) for _ in range(times)]
