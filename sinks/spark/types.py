"""Spark's types, as its schemas have them in JSON."""

from __future__ import annotations

from typing import Any

SHORT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def spell(kind: Any) -> str:
    """A type as people write it.

    >>> spell({"type": "array", "elementType": "long", "containsNull": True})
    'array<bigint>'
    """
    if isinstance(kind, str):
        return SHORT.get(kind, kind)
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{f['name']}: {spell(f['type'])}" for f in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"array<{spell(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{spell(kind['keyType'])}, {spell(kind['valueType'])}>"
    return str(kind["type"])
