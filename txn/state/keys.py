"""How typed state is spelled in a sink's flat state: one string key for each entry.

==========================  ==========================================================
key                         entry
==========================  ==========================================================
``target``                  the value called ``target``, or the head of that list
``open day=2026-11-16/``    the entry ``day=2026-11-16/`` of the map ``open``
``marks #000000000017``     element 17 of the list ``marks``
==========================  ==========================================================

Names that begin with an underscore are bookkeeping: a sink that has nothing else has no rows that wait to be shown.

The head of a list is ``{"first": 3, "next": 18}``: its elements have the numbers from `first` up to `next`, exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


def holds_rows(state: Iterable[str]) -> bool:
    """Whether a state has more than bookkeeping, by its keys: rows that wait to be shown.

    >>> holds_rows({"_stamp": 1}), holds_rows({"_stamp": 1, "open day=1/": 1})
    (False, True)
    """
    return any(not key.startswith("_") for key in state)


def checked_name(name: str) -> str:
    """A name of state, unchanged; ValueError if it could be taken for part of a key."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name state: begin with a letter, go on with letters, digits, underscore, dot or hyphen"
        )
    return name


def entry_key(name: str, key: str) -> str:
    """The flat key of a map's entry.

    >>> entry_key("open", "day=2026-11-16/")
    'open day=2026-11-16/'
    """
    return f"{name} {key}"


def element_key(name: str, number: int) -> str:
    """The flat key of a list's element.

    >>> element_key("marks", 17)
    'marks #000000000017'
    """
    return f"{name} #{number:012d}"


def key_of_entry(name: str, flat: str) -> str | None:
    """The key of an entry of this map, or None if the flat key is another state's.

    >>> key_of_entry("open", "open day=1/"), key_of_entry("open", "opened day=1/")
    ('day=1/', None)
    """
    prefix = f"{name} "
    return flat[len(prefix) :] if flat.startswith(prefix) else None
