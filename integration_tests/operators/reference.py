"""What the examples must come to, in plain Python, from the files that they read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

WINDOW, DELAY = 600_000, 300_000  # milliseconds
REFUSED = 3


class Scored(NamedTuple):
    """A payment, and what is known of its card with it."""

    id: int
    card: str
    at: int
    accepted: bool
    cents: int
    alert: bool
    n: int
    spent: int


def rows_in(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of all JSON files below a folder, but those of staging areas."""
    for path in sorted(folder.rglob("*.json")):
        if "_epochal" not in path.parts:
            yield from map(json.loads, path.read_text().splitlines())


def millis(text: str) -> int:
    """A time as the examples write it and as Spark does."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def scored(payments: Iterable[dict[str, Any]]) -> list[Scored]:
    """The payments that the watermark has passed, in order of time."""
    ordered = sorted((millis(row["at"]), row["id"], row) for row in payments)
    watermark = ordered[-1][0] - DELAY
    refused: dict[str, list[int]] = {}
    spent: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    found = []
    for at, id_, row in ordered:
        if at > watermark:
            break
        card, accepted = row["card"], row["accepted"]
        recent = [time for time in refused.get(card, []) if time > at - WINDOW]
        refused[card] = [] if accepted else [*recent, at]
        seen[card] += 1
        spent[card] += row["cents"] * accepted
        alert = accepted and len(recent) >= REFUSED
        found.append(Scored(id_, card, at, accepted, row["cents"], alert, seen[card], spent[card]))
    return found


def vertices(edges: Iterable[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Component and degree of each vertex, by one union-find over all edges."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def find(vertex: tuple[str, int]) -> tuple[str, int]:
        while parent.setdefault(vertex, vertex) != vertex:
            vertex = parent[vertex]
        return vertex

    pairs = {frozenset({(row["graph"], row["a"]), (row["graph"], row["b"])}) for row in edges}
    degrees: Counter[tuple[str, int]] = Counter()
    for pair in pairs:
        if len(pair) == 2:
            degrees.update(pair)
            one, other = sorted(map(find, pair))
            parent[other] = one
    return {vertex: (find(vertex)[1], degrees[vertex]) for vertex in parent}
