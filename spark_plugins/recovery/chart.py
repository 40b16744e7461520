"""Lines over two axes, as plain SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 334, 60, 44, 44, 150
COLOURS = ("#1b9e77", "#888888", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#a6761d", "#1f78b4")
DOTS = 12  # a line of more points is drawn without them


def draw(
    title: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
    up: str,
    *,
    logarithmic: bool = False,
) -> str:
    """Lines, or single points, over two linear axes from 0; or over logarithmic ones, from what is smallest."""
    points = [point for line in lines.values() for point in line]
    axes = [_limits([point[axis] for point in points], logarithmic=logarithmic) for axis in (0, 1)]
    (least_x, most_x), (least_y, most_y) = axes
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM - TOP

    def share(value: float, least: float, most: float) -> float:
        return math.log(value / least, most / least) if logarithmic else (value - least) / (most - least)

    def at(part: float, least: float, most: float) -> float:
        return least * (most / least) ** part if logarithmic else least + part * (most - least)

    def place(x: float, y: float) -> tuple[str, str]:
        right, above = share(x, least_x, most_x) * width, share(y, least_y, most_y) * height
        return f"{LEFT + right:.1f}", f"{TOP + height - above:.1f}"

    corners = " L".join(",".join(place(x, y)) for x, y in ((least_x, most_y), (least_x, least_y), (most_x, least_y)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" style="font: 12px sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<path d="M{corners}" fill="none" stroke="black"/>',
        f'<text x="{LEFT + width / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>',
        f'<text x="8" y="{TOP - 12}">{escape(up)}</text>',
    ]
    for part in (0.0, 0.5, 1.0):
        across_here, up_here = at(part, least_x, most_x), at(part, least_y, most_y)
        x, y = place(across_here, up_here)
        parts.append(f'<text x="{x}" y="{HEIGHT - 26}" text-anchor="middle">{across_here:.3g}</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{y}" dy="4" text-anchor="end">{up_here:.3g}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        spots = [place(x, y) for x, y in line]
        if len(spots) > 1:
            path = " ".join(",".join(spot) for spot in spots)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(spots) <= DOTS:
            parts.extend(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in spots)
        height_of_name = TOP + 14 + 18 * number
        parts.append(f'<text x="{WIDTH - RIGHT + 12}" y="{height_of_name}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _limits(values: Sequence[float], *, logarithmic: bool) -> tuple[float, float]:
    """Where an axis begins and ends."""
    most = max(values, default=1) or 1
    if not logarithmic:
        return 0.0, most
    least = min(values, default=1)
    return (least, most) if least < most else (least / 2, most * 2)
