"""Runs the streams that a settings file or Spark's settings describe::

    python -m epochal.run orders.toml
    spark-submit --properties-file orders.properties "$(epochal run --path)"

spark-submit takes a file, not a module. Arguments and exit codes are those of ``epochal run``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the streams and return the exit code."""
    from epochal.cli.commands import main as command

    return command(["run", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    # A file that is run has its own folder first on the path, so that `testing` would be this package's.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    sys.exit(main())
