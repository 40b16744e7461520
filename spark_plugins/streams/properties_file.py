"""A properties file, as Java and so spark-submit reads it: ``key value``, ``key=value`` or ``key: value``, one a line.

A line that ends in a backslash goes on in the next one; ``#`` and ``!`` begin comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from epochal.sinks.config.options import Faults

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read(text: str, faults: Faults) -> dict[str, str]:
    r"""The settings of a file; one that is there twice is noted, where Java would silently take the last.

    >>> read("a.b  1\n# no\nc = x \\\n    y", Faults("file"))
    {'a.b': '1', 'c': 'x y'}
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        key, value = (_plain(entry[1]), _plain(entry[2])) if entry is not None else (line, "")
        faults.check(key not in found, f"{key}: given twice")
        found[key] = value.strip()  # as Spark does
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """The lines with those that go on joined, without comments and blank lines."""
    begun = ""
    for line in re.split(r"\r\n|\r|\n", text):
        rest = line.lstrip(" \t\f")
        if not begun and (not rest or rest[0] in "#!"):
            continue
        ends = len(rest) - len(rest.rstrip("\\"))
        begun += rest[:-1] if ends % 2 else rest
        if not ends % 2:
            yield begun
            begun = ""
    if begun:
        yield begun


def _plain(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _CHARACTERS.get(found[1], found[1]), text
    )
