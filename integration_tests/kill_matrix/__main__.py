"""Play one case and show each step of it, or a share of a plan.

::

    python -m integration_tests.kill_matrix checkpoint/2/fresh/after-stage@2,before-seal@1
    python -m integration_tests.kill_matrix failpoint_kills --shard 0/2 --every 4 --root FOLDER
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import tempfile
from pathlib import Path

from integration_tests.kill_matrix.cases import parse
from integration_tests.kill_matrix.lab import Lab
from integration_tests.kill_matrix.matrix import Matrix, MatrixResult, watched
from integration_tests.kill_matrix.plans import PLANS


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", help=f"a case, or a plan: {', '.join(PLANS)}")
    arguments.add_argument("--shard", default="0/1")
    arguments.add_argument("--every", type=int, default=1, help="a sample: every so many of what the plan combines")
    arguments.add_argument("--root", type=Path)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="kill-matrix-") as folder:
        root = options.root or Path(folder)
        if options.what not in PLANS:
            return play_case(options.what, root)
        shard, of = map(int, options.shard.split("/"))
        try:
            print(json.dumps(vars(play_plan(options.what, root, shard, of, options.every))))
        finally:
            shutil.rmtree(root, ignore_errors=True)  # it may lie in memory, and nobody else may be left to do it
    return 0


def play_case(text: str, root: Path) -> int:
    """One case, every step of it printed; the exit code is 1 if something is wrong with it."""
    matrix = Matrix(Lab(root), say=print)
    result = watched(matrix, lambda: matrix.play(parse(text)))
    for case, faults in result.faults.items():
        print(case, *faults, sep="\n  FAULT ")
    return 1 if result.faults else 0


def play_plan(name: str, root: Path, shard: int, of: int, every: int) -> MatrixResult:
    """A share of a plan."""
    matrix = Matrix(Lab(root))
    gc.freeze()  # what is there now need not be looked at, and copied, in every child
    return watched(matrix, lambda: PLANS[name](matrix, shard, of, every))


if __name__ == "__main__":
    sys.exit(main())
