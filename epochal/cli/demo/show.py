"""The output: events as lines, a progress bar on a terminal, and the table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from epochal.cli.demo.count import Count
from epochal.cli.demo.watch import Sight
from epochal.cli.text import paint, table

WIDTH = 24


class Progress:
    """Writes to stderr, so that stdout has only the result."""

    def __init__(self, *, epochs: int, kills: int, quiet: bool) -> None:
        self._epochs = epochs
        self._kills = kills
        self._quiet = quiet
        self._bar = not quiet and sys.stderr.isatty()
        self._started = time.monotonic()
        self._shown = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def event(self, text: str, style: str = "") -> None:
        """Print one line."""
        if self._quiet:
            return
        if self._bar:
            print("\r\033[K", end="", file=sys.stderr)
        print(
            f"{self.seconds:6.1f} s  {paint(text, style, sys.stderr) if style else text}", file=sys.stderr, flush=True
        )

    def show(self, sight: Sight, kills: int) -> None:
        """Redraw the bar, at most five times a second."""
        if not self._bar or self.seconds - self._shown < 0.2:
            return
        self._shown = self.seconds
        done = max(0, sight.done + 1)
        filled = WIDTH * done // self._epochs
        bar = "#" * filled + "-" * (WIDTH - filled)
        print(
            f"\r\033[K{self.seconds:6.1f} s  [{bar}] epoch {done}/{self._epochs}, plain {sight.plain_committed + 1}/"
            f"{self._epochs}, {kills}/{self._kills} kills",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Clear the bar."""
        if self._bar:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def result_table(counts: Mapping[str, Count], early: Mapping[str, int], kills: int) -> str:
    """The counts of all sinks as a table."""
    headers = ["SINK", "ROWS EXPECTED", "ROWS FOUND", "DUPLICATES", "MISSING", "WRONG", "SEEN EARLY", "KILLS"]
    cells = [
        [
            name,
            f"{count.expected:,}",
            f"{count.found:,}",
            f"{count.duplicates:,}",
            f"{count.missing:,}",
            f"{count.wrong:,}",
            f"{early[name]:,}",
            str(kills),
        ]
        for name, count in counts.items()
    ]
    return table(headers, cells, right=headers[1:])
