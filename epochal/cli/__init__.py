"""The command line: look at a stream, settle it, clear up after it, and a demonstration.

Exit codes: 0 all is well, 1 a store is away (or the demonstration failed), 2 wrong usage or refused, 3 an audit found
that something differs.
"""

from epochal.cli.commands import main

__all__ = ["main"]
