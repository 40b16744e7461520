"""Runs every competitor twice: with Hadoop's own file system for ``file:``, and with epochal's.

A JVM keeps its file systems until it ends, so each has a session in its own process. A race alternates between the two
sessions: every ratio is to the same peer in the same round.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from benchmarks.measure import Figure, race, ratios
from epochal import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
CORES = 2
SWITCH = "spark.epochal.localDisk"


class Disk(StrEnum):
    """Which file system a session has for ``file:``."""

    AS_IT_COMES = "as it comes"
    SAME = "same file system for all"


class Sessions:
    """A Spark session for each disk, in its own process, started at first use."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = tuple((settings or {}).items())
        spawn = multiprocessing.get_context("spawn")  # a fork would share the JVM's pipes
        self._processes = {disk: ProcessPoolExecutor(max_workers=1, mp_context=spawn) for disk in Disk}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.shutdown(cancel_futures=True)

    def call(self, disk: Disk, work: Callable[[SparkSession], Result]) -> Result:
        """Run work in that session. It is pickled, as is its result: use a module's function or a `partial` of one."""
        return self._processes[disk].submit(_call, disk, self._settings, work).result()


def _call(disk: Disk, settings: tuple[tuple[str, str], ...], work: Callable[[SparkSession], Result]) -> Result:
    return work(_spark(disk, settings))


@cache
def _spark(disk: Disk, settings: tuple[tuple[str, str], ...]) -> SparkSession:
    ours = disk is Disk.SAME
    conf = {**dict(settings), SWITCH: str(ours).lower()}
    spark = session("benchmark", master=f"local[{CORES}]", conf=conf)
    jvm: Any = spark._jvm
    hadoop = spark._jsc.hadoopConfiguration()
    here = jvm.java.net.URI("file:///")
    # The session warns and goes on without it where it cannot be had. Figures must not.
    for found in (
        jvm.org.apache.hadoop.fs.FileSystem.get(here, hadoop),
        jvm.org.apache.hadoop.fs.FileContext.getFileContext(here, hadoop).getDefaultFileSystem(),
    ):
        if (name := found.getClass().getName()).startswith("epochal.") is not ours:
            raise SystemExit(f"{disk}: the file system is {name}, so there is nothing to compare")
    return spark


@dataclass(frozen=True, slots=True)
class Standings:
    """What each competitor took, by disk. Figures' ratios are to the peer on the first disk."""

    peer: str
    disks: tuple[Disk, ...]
    figures: dict[str, dict[Disk, Figure]]

    def ratios_within(self, name: str, disk: Disk) -> tuple[float, ...]:
        """To the peer on this disk. A competitor that knows no disk is compared with the peer on each."""
        found = self.figures[name]
        return ratios(found.get(disk, found[self.disks[0]]), self.figures[self.peer][disk])

    def as_json(self) -> dict[str, object]:
        """The figures for machines."""
        return {
            "peer": self.peer,
            "seconds": {name: {disk: f.seconds for disk, f in found.items()} for name, found in self.figures.items()},
            f"ratio_to_peer_{self.disks[0].replace(' ', '_')}": {
                name: {disk: f.ratio for disk, f in found.items()} for name, found in self.figures.items()
            },
            "ratio_to_peer_on_same_disk": {
                name: {disk: statistics.median(self.ratios_within(name, disk)) for disk in self.disks}
                for name in self.figures
            },
        }

    def table(self) -> str:
        """The figures for people."""
        first, *others = self.disks
        groups = f"{'':<25} {first:^41}" + "".join(f" | {disk:^60}" for disk in others)
        heads = f"{'':<25} {_cells('median s', 'spread s', 'x peer')}"
        heads += "".join(f" | {_cells('median s', 'spread s', f'x peer {first}')} {'x peer here':>18}" for _ in others)
        lines = [f"peer: {self.peer}", groups.rstrip(), heads]
        for name, found in self.figures.items():
            line = f"{name:<25} {_figure_cells(found.get(first))}"
            for disk in others:
                within = _spread(self.ratios_within(name, disk))
                line += f" | {_figure_cells(found.get(disk))} {within:>18}"
            lines.append(line)
        return "\n".join(lines)


def _figure_cells(figure: Figure | None) -> str:
    if figure is None:
        return _cells("-", "-", "-")
    spread = f"{min(figure.seconds):.2f}-{max(figure.seconds):.2f}"
    return _cells(f"{figure.median:.2f}", spread, _spread(figure.ratios))


def _cells(median: str, spread: str, ratio: str) -> str:
    return f"{median:>8} {spread:>13} {ratio:>18}"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def race_on(
    disks: Sequence[Disk],
    runs: Mapping[str, Callable[[Disk], float]],
    *,
    peer: str,
    rounds: int,
    others: Mapping[str, Callable[[], float]] | None = None,
) -> Standings:
    """Race every competitor on every disk. `others` do not depend on the disk and run once a round."""
    pairs = {(name, disk): partial(run, disk) for name, run in runs.items() for disk in disks}
    entries = {f"{name}, {disk}": run for (name, disk), run in pairs.items()}
    found = race({**entries, **(others or {})}, peer=f"{peer}, {disks[0]}", rounds=rounds)
    by_entry = {figure.name: figure for figure in found}
    figures = {name: {disk: by_entry[f"{name}, {disk}"] for disk in disks} for name in runs}
    return Standings(peer, tuple(disks), {**figures, **{name: {disks[0]: by_entry[name]} for name in others or {}}})
