"""A reader in a process of its own, who looks at the targets for as long as drivers run and die.

    python -m integration_tests.spark.reader ROOT:.. STOP-FILE [kafka]

It reads the targets first and commits/ afterwards: a row that it sees must belong to an epoch that
is decided by then. Its last line is JSON: how often it looked, and what it saw too early.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from integration_tests.kafka import checks as of_kafka
from integration_tests.spark.checks import early, rows_in, visible_files
from integration_tests.spark.waiting import leisurely
from integration_tests.spark.world import Row, World

REST = 6  # times as long as a look: drivers are seen for minutes


def early_files(world: World, rows: set[Row]) -> list[int]:
    """Files of the source of which rows were seen too early."""
    return list(early(world, {row[1] for row in rows}))


def main(worlds: Sequence[World], stop: Path, too_early: Callable[[World, set[Row]], Sequence[object]]) -> None:
    """Look until the stop file is there. The numbers are of the world that was looked at least."""
    looks, faults = [0 for _ in worlds], []
    known: list[set[Path]] = [set() for _ in worlds]
    while not stop.exists():
        for number, world in enumerate(worlds):
            with leisurely(REST):
                for target in world.targets:
                    fresh = [file for file in visible_files(target) if file not in known[number]]
                    known[number].update(fresh)
                    seen = {row for file in fresh for row in rows_in(file)}
                    # commits/ comes last: what is there by now was decided before or while we looked.
                    faults += [[target.name, source] for source in too_early(world, seen)] if seen else []
                    looks[number] += bool(known[number])
    print(json.dumps({"looks": min(looks), "files": min(map(len, known)), "faults": faults}), flush=True)


if __name__ == "__main__":
    roots = sys.argv[1].split(os.pathsep)
    when = of_kafka.early if sys.argv[3:] == ["kafka"] else early_files
    main([World(Path(root)) for root in roots], Path(sys.argv[2]), when)
