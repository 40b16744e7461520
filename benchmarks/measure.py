"""How times are measured: alternating order, several rounds, the median with its spread."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of one competitor."""

    name: str
    seconds: tuple[float, ...]
    ratios: tuple[float, ...]  # to the peer, round by round

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def race(runs: Mapping[str, Callable[[], float]], *, peer: str, rounds: int) -> list[Figure]:
    """Run every competitor `rounds` times, rotating the order each round, after a warm-up round."""
    names = list(runs)
    width = max(map(len, names))
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds = runs[name]()
            note(f"  {'warm-up' if number == 0 else f'round {number}':>8}  {name:<{width}} {seconds:7.2f} s")
            if number:
                taken[name].append(seconds)
    return [
        Figure(name, tuple(taken[name]), tuple(a / b for a, b in zip(taken[name], taken[peer], strict=True)))
        for name in names
    ]


def ratios(figure: Figure, peer: Figure) -> tuple[float, ...]:
    """The ratios to another figure of the same race, round by round."""
    return tuple(a / b for a, b in zip(figure.seconds, peer.seconds, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of all values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and limits between which that of all possible rounds lies with a probability of 95 % or more."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f}-{self.high:.3f})"


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median of independent values with its interval, by order statistics: no distribution is assumed.

    Each value is as likely above the true median as below it, so how many are above follows a binomial distribution.
    The interval is from the k-th smallest to the k-th largest value, with the largest k that leaves out 5 % or less.
    With fewer than six values it is all of them, and the confidence is smaller.

    >>> median_interval([1.03, 0.98, 1.01, 1.00, 1.02, 0.99, 1.04, 1.05, 0.97])
    Interval(median=1.01, low=0.98, high=1.04)
    """
    ordered, count = sorted(values), len(values)
    below, k = 0.0, 0
    while k < (count - 1) // 2:
        below += math.comb(count, k) / 2**count
        if 2 * below > 1 - confidence:
            break
        k += 1
    first = max(0, k - 1)
    return Interval(statistics.median(ordered), ordered[first], ordered[count - 1 - first])


def timed(work: Callable[[], object]) -> float:
    """The seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class CpuMeter:
    """The CPU time of this process and its descendants, except for some processes and their descendants.

    Only processes that still run at the end count: a Python worker of an earlier run may end meanwhile, and the time
    it used before would be subtracted.
    """

    def __init__(self, without: Sequence[int] = ()) -> None:
        self._without = without
        self._before = self._used()

    def seconds(self) -> float:
        """CPU seconds since the meter was created."""
        return sum(ticks - self._before.get(pid, 0) for pid, ticks in self._used().items()) / os.sysconf("SC_CLK_TCK")

    def _used(self) -> dict[int, int]:
        below: dict[int, list[int]] = {}
        used: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # the process has ended
                fields = stat.read_text().rpartition(")")[2].split()
                below.setdefault(int(fields[1]), []).append(int(stat.parent.name))
                used[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
        todo, found = [os.getpid()], {}
        while todo:
            pid = todo.pop()
            if pid not in self._without:
                found[pid] = used.get(pid, 0)
                todo += below.get(pid, [])
        return found


def table(figures: Sequence[Figure], peer: str) -> str:
    """The figures as a table."""
    lines = [f"{'':<28} {'median s':>9} {'spread s':>15} {'x ' + peer:>18} {'spread':>13}"]
    for f in figures:
        spread = f"{min(f.seconds):.2f}-{max(f.seconds):.2f}"
        ratios = f"{min(f.ratios):.2f}-{max(f.ratios):.2f}"
        lines.append(f"{f.name:<28} {f.median:>9.2f} {spread:>15} {f.ratio:>18.2f} {ratios:>13}")
    return "\n".join(lines)


def note(text: str) -> None:
    """Print progress to stderr; stdout has the result."""
    print(text, file=sys.stderr, flush=True)


def rates(figures: Sequence[Figure], cpu: Mapping[str, Sequence[float]], rows: int) -> dict[str, dict[str, float]]:
    """Rows a second, the ratio, and the client's CPU time a row; the first run of each is the warm-up."""
    return {
        f.name: {
            "rows_per_second": round(rows / f.median),
            "ratio": round(f.ratio, 3),
            "cpu_us_per_row": round(1e6 * statistics.median(cpu[f.name][1:]) / rows, 1),
        }
        for f in figures
    }


def rate_lines(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The same for people."""
    return [
        f"{way:<28} {one['rows_per_second']:>9,} rows/s {one['cpu_us_per_row']:>9} us of CPU a row"
        for way, one in found.items()
    ]
