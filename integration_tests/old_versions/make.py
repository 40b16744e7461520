"""Make the archives of this version's streams: drivers are killed one after the other on one stream.

    python -m integration_tests.old_versions.make integration_tests/old_versions/v1

Run it at the commit whose files are to be kept; see README.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from integration_tests.old_versions.moving import pack
from integration_tests.old_versions.streams import Place
from integration_tests.spark.jvm import QUICK, environment

DRIVER = ("integration_tests.old_versions.driver",)
STREAM = (
    # Two attempts at epoch 7 are prepared, of generations 3 and 4. Before that, generation 2 dies while it stages.
    (
        "in-doubt",
        [
            (DRIVER, "after-prepared=kill@5"),
            (DRIVER, "before-prepared=kill"),
            (DRIVER, "after-prepared=kill@4"),
            (DRIVER, "after-prepared=kill"),
        ],
    ),
    # Spark has commits/9, the journal does not say so.
    ("checkpointed", [(DRIVER, "before-decided=kill@3")]),
    # A command has recorded what it closes, and has closed nothing.
    ("roll-recorded", [(("epochal.cli", "roll"), "after-roll=kill")]),
    # Two sinks of five have committed epoch 11. They do so in order of their names.
    ("half-committed", [(DRIVER, "before-commit=kill@11")]),
)


def main(folder: Path) -> None:
    """Make every archive anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Place(Path(temporary).resolve() / "stream")
        for name, kills in STREAM:
            for module, points in kills:
                killed(module, place, points)
            archive = folder / f"{name}.tar.gz"
            pack(place.root, archive)
            print(f"{archive}: {archive.stat().st_size} bytes")
            print("  ", " ".join(sorted(path.name for path in place.journal.iterdir())))


def killed(module: Sequence[str], place: Place, points: str) -> None:
    """Run a module on the stream until it is killed."""
    name, *arguments = module
    where = str(place.checkpoint if arguments else place.root)
    ended = subprocess.run(
        [sys.executable, "-m", name, *arguments, where],
        env={**os.environ, **environment(QUICK), "EPOCHAL_FAILPOINTS": points},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # it leads a group, so that its JVM is killed with it
        text=True,
        check=False,
    )
    if ended.returncode != -9:
        sys.exit(f"{points}: not killed, ended with {ended.returncode}\n{ended.stdout}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
