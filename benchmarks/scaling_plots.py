"""Tables and pictures of `benchmarks.scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from epochal.spark_plugins.recovery.chart import draw as chart

OWN = "epochal's own share"
ACROSS = {
    "rows": "rows in an epoch",
    "sinks": "sinks in one writer",
    "files": "files in an epoch",
    "executors": "executors",
    "epochs": "epochs so far",
}


def table(part: str, found: Mapping[str, Any]) -> str:
    """One part, as in docs/benchmarks.md."""
    if part == "epochs":
        return _table_of_epochs(found)
    names = list(next(iter(found.values()))["ratios"])
    others = names[1:]
    heads = [f"{name}, s" for name in names] + [f"{OWN}, s"] + [f"{name}, x" for name in others]
    heads += [f"{names[0]}, processor s", *(f"{name}, processor x" for name in others)]
    lines = [f"| {ACROSS.get(part, part)} | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for size, one in found.items():
        cpu = one["cpu_s_an_epoch"]
        cells = [f"{median(one['seconds_an_epoch'][name]):.3f}" for name in names]
        cells += [f"{one['own_s']:.3f}", *(_with_spread(one["ratios"][name]) for name in others)]
        cells.append(f"{median(cpu[names[0]]):.3f}")
        cells += [_with_spread([a / b for a, b in zip(cpu[name], cpu[names[0]], strict=True)]) for name in others]
        lines.append(f"| {int(size):,} | " + " | ".join(cells) + " |")
        lines += [f"{step}: {seconds:.3f} s" for step, seconds in one.get("steps_s", {}).items()]
    return "\n".join(lines)


def _with_spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _table_of_epochs(found: Mapping[str, Any]) -> str:
    lines = ["| epochs so far | an epoch, ms | processor time, ms | a start, processor time, ms |", "|---" * 4 + "|"]
    sizes = {size: one for size, one in found.items() if size.isdecimal()}
    for size, one in sizes.items():
        cells = [f"{1000 * one[key]:.2f}" for key in ("wall_s", "cpu_s", "start_cpu_s")]
        lines.append(f"| {int(size):,} | " + " | ".join(cells) + " |")
    lines += ["", "| with Spark | first tenth, s an epoch | last tenth | x |", "|---" * 4 + "|"]
    for name, one in found["with Spark"].items():
        ratio = one["last_s"] / one["first_s"]
        lines.append(f"| {name} | {one['first_s']:.3f} | {one['last_s']:.3f} | {ratio:.2f} |")
    return "\n".join(lines)


def draw(part: str, found: Mapping[str, Any], folder: Path) -> None:
    """One part, over logarithmic axes where sizes grow by factors."""
    if part not in ACROSS:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[tuple[float, float]]] = {}
    for size, one in found.items():
        if not size.isdecimal():
            continue
        if part == "epochs":
            lines.setdefault("processor time", []).append((int(size), one["cpu_s"]))
            lines.setdefault("wall time", []).append((int(size), one["wall_s"]))
            continue
        for name, seconds in one["seconds_an_epoch"].items():
            lines.setdefault(name, []).append((int(size), median(seconds)))
        lines.setdefault(OWN, []).append((int(size), one["own_s"]))
    grows = part in ("rows", "files", "epochs")
    title = f"Seconds an epoch by {ACROSS[part]}"
    (folder / f"scaling-{part}.svg").write_text(
        chart(title, lines, ACROSS[part], "seconds", logarithmic=grows), encoding="utf-8"
    )
