"""Pictures and tables of `benchmarks.state`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epochal.spark_plugins.recovery.chart import draw as chart

Runs = Sequence[Mapping[str, Any]]


def draw(result: Mapping[str, Any], folder: Path) -> None:
    """Draw what a run has measured. Restores by processor time: on a quiet machine it is that of the clock."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = result.get("restore", [])
    for kind in sorted({run["kind"] for run in runs}):
        own = [run for run in runs if run["kind"] == kind]
        paper = [(int(n) / 1e6, s) for n, s in result["paper"][kind].items()]
        restores = {**by_policy(own, "restore_cpu_s"), "paper, off": paper}
        largest = max(run["updates"] for run in own)
        sizes = {run["policy"]: over_updates(run, largest) for run in own if run["updates"] == largest}
        for name, title, lines, up in (
            ("restore", "CPU of a restore", restores, "seconds"),
            ("size", "Size of the journal", sizes, "MB"),
            ("cpu", "CPU of writing and folding", by_policy(own, "cpu_s"), "seconds"),
        ):
            text = chart(f"{title}, {kind}", lines, "million updates", up)
            (folder / f"state-{name}-{kind.lower()}.svg").write_text(text, encoding="utf-8")


def by_policy(runs: Runs, what: str) -> dict[str, list[tuple[float, float]]]:
    """A line for each policy, over the number of updates."""
    names = dict.fromkeys(run["policy"] for run in runs)
    return {name: [(run["updates"] / 1e6, run[what]) for run in runs if run["policy"] == name] for name in names}


def over_updates(run: Mapping[str, Any], largest: int) -> list[tuple[float, float]]:
    """The size of a journal by the updates that it had."""
    last = max(1, len(run["sizes_mb"]) - 1)
    return [(largest / 1e6 * place / last, size) for place, size in enumerate(run["sizes_mb"])]


def restore_table(runs: Runs, paper: Mapping[str, Mapping[int, float]], old_way: Mapping[str, float]) -> str:
    """The restores, as in docs/benchmarks.md."""
    lines = [
        "| kind | updates | compaction | restore s | paper, off, s | MB, end / most | CPU s | folding | memory MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        shown = paper[run["kind"]].get(run["updates"], "") if run["policy"] == "off" else ""
        lines.append(
            f"| {run['kind']} | {run['updates']:,} | {run['policy']} | {run['restore_s']:.2f} | {shown} | "
            f"{run['sizes_mb'][-1]:.1f} / {max(run['sizes_mb']):.1f} | {run['cpu_s']:.1f} | "
            f"{run['folding_cpu_s']:.1f} | {max(run['writing_mb'], run['restoring_mb']):,.0f} |"
        )
    if old_way:
        old = f"one snapshot, as before | {old_way['s']:.2f} | | | | | {old_way['mb']:,.0f} |"
        lines.append(f"| RA | {old_way['entries']:,.0f} | {old}")
    return "\n".join(lines)


def epochs_table(found: Mapping[int, Mapping[str, float]]) -> str:
    """What an epoch costs, as in docs/benchmarks.md."""
    rows = {"wall time": "median_ms", "95th percentile": "p95_ms", "processor time": "cpu_ms"}
    return "\n".join(
        [
            "| an epoch, ms | " + " | ".join(f"{int(count):,} entries" for count in found) + " |",
            "|---" * (len(found) + 1) + "|",
            *(
                f"| {name} | " + " | ".join(f"{one[key]:.2f}" for one in found.values()) + " |"
                for name, key in rows.items()
            ),
        ]
    )


def objective_table(found: Mapping[str, Mapping[str, Any]], live: int) -> str:
    """Whether objectives were held and at what cost, as in docs/benchmarks.md."""
    wanted = list(next(iter(found.values()))["holds"]) if found else []
    headers = [
        f"setting, {live:,} entries",
        "restart: median",
        "95th percentile",
        *(f"within {seconds} s" for seconds in wanted),
        "CPU",
        "folding",
        "of",
        "late by",
    ]
    lines = ["| " + " | ".join(headers) + " |", "|---" * len(headers) + "|"]
    for name, one in found.items():
        held = ["yes" if one["holds"][seconds] else "no" for seconds in wanted]
        cells = [
            name,
            f"{one['median_s']:.2f} s",
            f"{one['p95_s']:.2f} s",
            *held,
            *(f"{one[key]:.1f} s" for key in ("cpu_s", "folding_cpu_s", "wall_s", "late_s")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
