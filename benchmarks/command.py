"""What the commands of all benchmarks share: their options, a folder to work in, and how results are printed."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import note

Size = tuple[int, int]  # epochs, and rows in each


def parser(name: str, doc: str | None, *, rounds: int = 5, only: Iterable[str] = ()) -> argparse.ArgumentParser:
    """The options that every benchmark has; `only` are the names of its parts."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--size", type=size, metavar="EPOCHSxROWS", help="another size than that of the tables: 3x1000")
    if parts := list(only):
        made.add_argument("--only", choices=parts)
    return made


def size(text: str) -> Size:
    """A size as it is typed.

    >>> size("20x50,000")
    (20, 50000)
    """
    epochs, _, rows = text.replace(",", "").replace("_", "").partition("x")
    try:
        found = int(epochs), int(rows)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: two numbers, such as 20x50000") from None
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: both numbers must be 1 or more")
    return found


def sizes(args: argparse.Namespace, shapes: Mapping[str, Size]) -> dict[str, Size]:
    """The shapes that the user wants, by name."""
    return {name: args.size or shape for name, shape in shapes.items() if args.only in (None, name)}


class Results:
    """Prints each result when it is there, or all of them as JSON at the end."""

    def __init__(self, home: Path, *, as_json: bool) -> None:
        self.home = home
        self._as_json = as_json
        self._found: dict[str, object] = {}

    def add(self, name: str, found: object, text: str) -> None:
        """A result for machines, and for people."""
        self._found[name] = found
        if not self._as_json:
            print(f"\n{text}\n", flush=True)

    def end(self) -> None:
        """All results were added."""
        if self._as_json:
            print(json.dumps(self._found, indent=1))


@contextmanager
def results(args: argparse.Namespace) -> Iterator[Results]:
    """Where results go, with an empty folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="epochal-bench-", ignore_cleanup_errors=True) as folder:
        found = Results(Path(folder), as_json=args.json)
        yield found
    found.end()


def titled(text: str) -> str:
    """A title, which is progress too."""
    note(text)
    return text
