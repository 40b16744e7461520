"""Pictures of `benchmarks.state`, as plain SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 320, 60, 44, 30
COLOURS = ("#888888", "#d95f02", "#7570b3", "#1b9e77", "#e7298a", "#66a61e")


def draw(result: Mapping[str, Any], folder: Path) -> None:
    """Draw what a run has measured."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = result.get("restore", [])
    for kind in sorted({run["kind"] for run in runs}):
        own = [run for run in runs if run["kind"] == kind]
        names = list(dict.fromkeys(run["policy"] for run in own))
        lines = {
            name: [(run["updates"] / 1e6, run["restore_s"]) for run in own if run["policy"] == name] for name in names
        }
        lines["paper, off"] = [(int(n) / 1e6, s) for n, s in result["paper"][kind].items()]
        (folder / f"restore-{kind.lower()}.svg").write_text(
            chart(f"Restore, {kind}", lines, "million updates", "seconds"), encoding="utf-8"
        )
        largest = max(run["updates"] for run in own)
        sizes = {
            run["policy"]: [
                (largest / 1e6 * place / max(1, len(run["sizes_mb"]) - 1), size)
                for place, size in enumerate(run["sizes_mb"])
            ]
            for run in own
            if run["updates"] == largest
        }
        (folder / f"size-{kind.lower()}.svg").write_text(
            chart(f"Size of the journal, {kind}", sizes, "million updates", "MB"), encoding="utf-8"
        )


def chart(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    """Lines over two linear axes from 0."""
    points = [point for line in lines.values() for point in line]
    most_x, most_y = (max([value[axis] for value in points], default=1) or 1 for axis in (0, 1))
    width, height = WIDTH - LEFT - 150, HEIGHT - BOTTOM - TOP

    def place(x: float, y: float) -> str:
        return f"{LEFT + x / most_x * width:.1f},{TOP + height - y / most_y * height:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" style="font: 12px sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{title}</text>',
        f'<path d="M{place(0, most_y)} L{place(0, 0)} L{place(most_x, 0)}" fill="none" stroke="black"/>',
        f'<text x="{LEFT + width / 2}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>',
        f'<text x="12" y="{TOP - 6}">{up}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        x, y = place(share * most_x, share * most_y).split(",")
        parts.append(f'<text x="{x}" y="{HEIGHT - 26}" text-anchor="middle">{share * most_x:.3g}</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{share * most_y:.3g}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        drawn = " ".join(place(*point) for point in line)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - 140}" y="{TOP + 16 * number + 4}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
