"""A reader in a process of its own, who looks at the targets for as long as drivers run and die.

    python -m integration_tests.spark.reader ROOT STOP-FILE [kafka]

It reads the targets first and commits/ afterwards: a row that it sees must belong to an epoch that
is decided by then. Its last line is JSON: how often it looked, and what it saw too early.
"""

from __future__ import annotations

import json
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


def main(world: World, stop: Path, too_early: Callable[[World, set[Row]], Sequence[object]]) -> None:
    """Look until the stop file is there."""
    looks, faults = 0, []
    known: set[Path] = set()
    while not stop.exists():
        with leisurely(REST):
            for target in world.targets:
                fresh = [file for file in visible_files(target) if file not in known]
                known.update(fresh)
                seen = {row for file in fresh for row in rows_in(file)}
                # commits/ comes last: what is there by now was decided before or while we looked.
                faults += [[target.name, source] for source in too_early(world, seen)] if seen else []
                looks += bool(known)
    print(json.dumps({"looks": looks, "files": len(known), "faults": faults}), flush=True)


if __name__ == "__main__":
    main(World(Path(sys.argv[1])), Path(sys.argv[2]), of_kafka.early if sys.argv[3:] == ["kafka"] else early_files)
