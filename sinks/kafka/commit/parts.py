"""How an epoch is cut into transactions, each small enough to end in time. Pure: no I/O.

A staged file belongs to a lane, which has a transactional id of its own. A lane sends its parts one after the other,
lanes send at once. The handle says how many lanes and how many rows, so every process cuts an epoch in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from epochal.sinks.kafka.ledger_state import Range

Ends = Mapping[tuple[str, int], int]
Ranges = dict[str, dict[int, Range]]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a staged file that are one transaction."""

    lane: int
    number: int  # within the lane
    file: str
    rows: int


def planned(files: Iterable[tuple[str, int, int]], lanes: int, most: int) -> list[Part]:
    """The parts of an epoch, those of a file in the order of its rows. Files are (name, bytes, rows).

    >>> planned([("a", 900, 5), ("b", 700, 2), ("c", 100, 1)], 2, 3)  # doctest: +NORMALIZE_WHITESPACE
    [Part(lane=0, number=0, file='a', rows=3), Part(lane=0, number=1, file='a', rows=2),
     Part(lane=1, number=0, file='b', rows=2), Part(lane=0, number=2, file='c', rows=1)]
    """
    numbers = [0] * lanes
    found = []
    for place, (name, _, rows) in enumerate(sorted(files)):
        lane = place % lanes
        for first in range(0, rows, most):
            found.append(Part(lane, numbers[lane], name, min(most, rows - first)))
            numbers[lane] += 1
    return found


def union(ranges: Sequence[Ranges]) -> Ranges:
    """Where all messages of several parts are.

    >>> union([{"t": {0: (3, 5)}}, {"t": {0: (4, 9), 1: (0, 2)}}])
    {'t': {0: (3, 9), 1: (0, 2)}}
    """
    found: Ranges = {}
    for one in ranges:
        for topic, spans in one.items():
            into = found.setdefault(topic, {})
            for partition, (first, end) in spans.items():
                before = into.get(partition, (first, end))
                into[partition] = (min(first, before[0]), max(end, before[1]))
    return found


def grown(begin: Ends, end: Ends) -> Ranges:
    """Where the partitions grew, which is where the messages are."""
    found: Ranges = {}
    for (name, number), first in begin.items():
        after = end.get((name, number), first)
        if after > first:
            found.setdefault(name, {})[number] = (first, after)
    return found
