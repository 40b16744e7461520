"""Does a frame fit a table, column by column? On schemas as Spark and Delta both write them in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epochal.sinks.config.options import nearest

Schema = Mapping[str, Any]

# What every Delta reader and writer has known from the beginning, and one that came later.
PLAIN = {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp"}
NTZ = "timestamp_ntz"
SPECIAL = frozenset(" ,;{}()\n\t=")
FILLED = ("delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")


@dataclass(frozen=True, slots=True)
class Fit:
    """What is wrong with a frame's columns, and which of them the table does not have yet."""

    faults: tuple[str, ...]
    new: tuple[str, ...] = ()


def fit(table: Schema, frame: Schema, *, add_columns: bool) -> Fit:
    """Compare a frame with the table that it is to be written to."""
    has = {field["name"]: field for field in frame["fields"]}
    wants = {field["name"]: field for field in table["fields"]}
    faults, new = [], []
    for name, field in wants.items():
        if name not in has:
            if not is_filled(field):
                faults.append(
                    f"{name}: the table has it ({spell(field['type'])}), the frame does not{_case(name, has)}"
                )
        elif is_filled(field):
            faults.append(f"{name}: Delta fills it in; leave it out of the frame")
        elif bare(field["type"]) != bare(has[name]["type"]):
            faults.append(f"{name}: {spell(has[name]['type'])} in the frame, {spell(field['type'])} in the table")
    for name, field in has.items():
        if name in wants:
            continue
        if add_columns and name.lower() not in {other.lower() for other in wants}:
            new.append(name)
        else:
            faults.append(f"{name}: not in the table{_case(name, wants) or nearest(name, wants)}")
        if field["type"] == "void":
            faults.append(f"{name}: it has no type (it is null everywhere); cast it")
    return Fit(tuple(faults), tuple(new))


def is_filled(field: Mapping[str, Any]) -> bool:
    """Whether Delta itself gives the column its values: generated, identity or default."""
    return any(key in field.get("metadata", {}) for key in FILLED)


def nullable(schema: Schema) -> dict[str, Any]:
    """The schema of a new table: a stream promises nothing about nulls, and carries no metadata."""
    return {
        "type": "struct",
        "fields": [
            {"name": f["name"], "type": bare(f["type"]), "nullable": True, "metadata": {}} for f in schema["fields"]
        ],
    }


def bare(kind: Any) -> Any:
    """A type without what it says about nulls and without metadata."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return nullable(kind)
    if kind["type"] == "array":
        return {"type": "array", "elementType": bare(kind["elementType"]), "containsNull": True}
    if kind["type"] == "map":
        key, value = bare(kind["keyType"]), bare(kind["valueType"])
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return dict(kind)  # a user-defined type: equal to itself only


def leaf_types(kind: Any) -> Iterator[str]:
    """The plain types that a type is made of."""
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            yield from leaf_types(field["type"])
    elif kind["type"] == "array":
        yield from leaf_types(kind["elementType"])
    elif kind["type"] == "map":
        yield from leaf_types(kind["keyType"])
        yield from leaf_types(kind["valueType"])
    else:
        yield str(kind["type"])


def is_plain(kind: str, *, ntz: bool = True) -> bool:
    """Whether it is one of Delta's first types."""
    return kind in PLAIN or kind.startswith("decimal") or (ntz and kind == NTZ)


def unmakable(schema: Schema, partition_by: Sequence[str]) -> list[str]:
    """What keeps a table of such columns from being made, or from being written to later."""
    names = [field["name"] for field in schema["fields"]]
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    faults = [
        f"{name!r}: Delta has no names with any of ' ,;{{}}()=', tabs or line ends"
        for name in names
        if SPECIAL & {*name}
    ]
    faults += [f"partition_by: {name!r} is not in the frame" for name in partition_by if name not in kinds]
    faults += [
        f"partition_by: {name!r} is {spell(kinds[name])}, a partition needs a plain value"
        for name in partition_by
        if name in kinds and (not isinstance(kinds[name], str) or kinds[name] in ("binary", "variant"))
    ]
    if names and set(names) <= set(partition_by):
        faults.append("partition_by: a column that is not in it is needed too")
    lower = [name.lower() for name in names]
    faults += [f"{name!r}: twice, but for its spelling" for name in names if lower.count(name.lower()) > 1]
    return faults


def promises(schema: Schema) -> list[str]:
    """Every field that must not be null, or whose metadata asks something of writers."""
    return list(_promises("", schema))


def _promises(where: str, kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            name = f"{where}{field['name']}"
            asks = [key for key in field.get("metadata", {}) if key != "comment"]
            if not field["nullable"]:
                yield f"{name} is NOT NULL"
            elif asks:
                yield f"{name} has {asks[0]}"
            yield from _promises(f"{name}.", field["type"])
    elif kind["type"] == "array":
        if not kind["containsNull"]:
            yield f"{where}element is NOT NULL"
        yield from _promises(f"{where}element.", kind["elementType"])
    elif kind["type"] == "map":
        if not kind["valueContainsNull"]:
            yield f"{where}value is NOT NULL"
        yield from _promises(f"{where}key.", kind["keyType"])
        yield from _promises(f"{where}value.", kind["valueType"])


def spell(kind: Any) -> str:
    """A type as people write it.

    >>> spell({"type": "array", "elementType": "long", "containsNull": True})
    'array<bigint>'
    """
    if isinstance(kind, str):
        return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{f['name']}: {spell(f['type'])}" for f in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"array<{spell(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{spell(kind['keyType'])}, {spell(kind['valueType'])}>"
    return str(kind["type"])


def _case(name: str, others: Mapping[str, Any]) -> str:
    same = [other for other in others if other.lower() == name.lower()]
    return f" (but {same[0]!r}: names must be spelled alike)" if same else ""
