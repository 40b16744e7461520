"""CQL's types as a tree, and its names as they are spelled in statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COLLECTIONS = ("list", "set", "map")
_TOKEN = re.compile(r'\s*("(?:[^"]|"")*"|[A-Za-z0-9_.]+|[<>,])')


@dataclass(frozen=True, slots=True)
class Cql:
    """One type: a plain one by its name, or a list, set, map, tuple, vector or udt with its parts."""

    name: str
    parts: tuple[Cql, ...] = ()
    fields: tuple[str, ...] = ()  # of a udt
    size: int = 0  # of a vector
    frozen: bool = False
    label: str = ""  # as the table's description has it

    def __str__(self) -> str:
        return self.label or self.name


FindUdt = Callable[[str], tuple[tuple[str, ...], tuple[str, ...]]]


def parse(text: str, find_udt: FindUdt) -> Cql:
    """A type from its text; `find_udt` gives the fields' names and types of a user-defined one.

    >>> parse("map<text, frozen<list<int>>>", lambda name: ((), ())).parts[1].name
    'list'
    """
    tokens = _TOKEN.findall(text)
    kind, rest = _parse(tokens, find_udt)
    if rest:
        raise ValueError(f"{text}: not a type of CQL")
    return Cql(kind.name, kind.parts, kind.fields, kind.size, kind.frozen, text)


def _parse(tokens: list[str], find_udt: FindUdt) -> tuple[Cql, list[str]]:
    name, rest = tokens[0], tokens[1:]
    parts: list[Cql] = []
    size = 0
    if rest[:1] == ["<"]:
        rest = rest[1:]
        while True:
            if rest[0].isdecimal():
                size, rest = int(rest[0]), rest[1:]
            else:
                part, rest = _parse(rest, find_udt)
                parts.append(part)
            separator, rest = rest[0], rest[1:]
            if separator == ">":
                break
    if name == "frozen":
        inner = parts[0]
        return Cql(inner.name, inner.parts, inner.fields, inner.size, True), rest
    if parts:
        return Cql(name, tuple(parts), (), size, name in ("tuple", "vector")), rest
    if name in PLAIN:
        return Cql(PLAIN[name]), rest
    fields, kinds = find_udt(_plain_name(name))
    return Cql("udt", tuple(parse(kind, find_udt) for kind in kinds), fields, label=name), rest


def walk(kind: Cql) -> Iterator[Cql]:
    """A type and all that is in it."""
    yield kind
    for part in kind.parts:
        yield from walk(part)


def quoted(name: str) -> str:
    """A name in a statement, whatever is in it: in quotes, and quotes in it doubled."""
    return '"' + name.replace('"', '""') + '"'


def _plain_name(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


PLAIN = {
    name: {"varchar": "text"}.get(name, name)
    for name in (
        *("ascii", "bigint", "blob", "boolean", "counter", "date", "decimal", "double", "duration", "float", "inet"),
        *("int", "smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint"),
    )
}
