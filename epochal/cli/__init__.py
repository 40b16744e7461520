"""The command line: inspect a stream, settle it, clean up after it, and a demonstration.

Exit codes: 0 success, 1 a store cannot be reached (or the demonstration failed), 2 wrong usage or refused, 3 an audit
found a difference.
"""

from epochal.cli.commands import main

__all__ = ["main"]
