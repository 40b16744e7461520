"""A reader in a process of its own, who looks at the targets for as long as drivers run and die.

    python -m integration_tests.spark.reader ROOT STOP-FILE

It reads the targets first and commits/ afterwards: a row that it sees must belong to an epoch that
is decided by then. Its last line is JSON: how often it looked, and what it saw too early.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from integration_tests.spark.checks import early, rows_in, visible_files
from integration_tests.spark.waiting import leisurely
from integration_tests.spark.world import World


def main(world: World, stop: Path) -> None:
    """Look until the stop file is there."""
    looks, faults = 0, []
    sources_of: dict[Path, set[int]] = {}
    while not stop.exists():
        with leisurely():
            for target in world.targets:
                fresh = [file for file in visible_files(target) if file not in sources_of]
                for file in fresh:
                    sources_of[file] = {row[1] for row in rows_in(file)}
                # commits/ comes last: what is there by now was decided before or while we looked.
                seen = {source for file in fresh for source in sources_of[file]}
                faults += [[target.name, source] for source in early(world, seen)] if seen else []
                looks += bool(sources_of)
    print(json.dumps({"looks": looks, "files": len(sources_of), "faults": faults}), flush=True)


if __name__ == "__main__":
    main(World(Path(sys.argv[1])), Path(sys.argv[2]))
