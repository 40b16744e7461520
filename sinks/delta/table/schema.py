"""Compares a frame with a table, column by column. Schemas are JSON, as Spark and Delta both write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epochal.sinks.config.options import nearest, other_case
from epochal.sinks.spark.types import spell

Schema = Mapping[str, Any]

# The types that every Delta reader and writer knows, and one that was added later.
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
                    f"{name}: the table has it ({spell(field['type'])}), the frame does not{other_case(name, has)}"
                )
        elif is_filled(field):
            faults.append(f"{name}: Delta generates its values; leave it out of the frame")
        else:
            faults += _differences(name, bare(has[name]["type"]), bare(field["type"]))
    for name, field in has.items():
        if name in wants:
            continue
        if add_columns and name.lower() not in {other.lower() for other in wants}:
            new.append(name)
        else:
            faults.append(f"{name}: not in the table{other_case(name, wants) or nearest(name, wants)}")
        if field["type"] == "void":
            faults.append(f"{name}: it has no type (all its values are null); cast it")
    return Fit(tuple(faults), tuple(new))


def _differences(name: str, frame: Any, table: Any) -> list[str]:
    """Where two types differ, each place by its name: `address.zip`, `items.element.price`."""
    if frame == table:
        return []
    kinds = {one["type"] if isinstance(one, dict) else one for one in (frame, table)}
    if kinds == {"struct"}:
        has, wants = ({field["name"]: field["type"] for field in one["fields"]} for one in (frame, table))
        found = [f"{name}.{inner}: the table has it, the frame does not" for inner in wants if inner not in has]
        found += [f"{name}.{inner}: not in the table{nearest(inner, wants)}" for inner in has if inner not in wants]
        for inner in wants:
            found += _differences(f"{name}.{inner}", has[inner], wants[inner]) if inner in has else []
        return found or [f"{name}: its fields are in another order in the table: {', '.join(wants)}"]
    if kinds == {"array"}:
        return _differences(f"{name}.element", frame["elementType"], table["elementType"])
    if kinds == {"map"}:
        keys = _differences(f"{name}.key", frame["keyType"], table["keyType"])
        return keys + _differences(f"{name}.value", frame["valueType"], table["valueType"])
    return [f"{name}: {spell(frame)} in the frame, {spell(table)} in the table"]


def is_filled(field: Mapping[str, Any]) -> bool:
    """Whether Delta itself gives the column its values: generated, identity or default."""
    return any(key in field.get("metadata", {}) for key in FILLED)


def nullable(schema: Schema) -> dict[str, Any]:
    """The schema of a new table: any column may be null, and none has metadata."""
    return {
        "type": "struct",
        "fields": [
            {"name": f["name"], "type": bare(f["type"]), "nullable": True, "metadata": {}} for f in schema["fields"]
        ],
    }


def bare(kind: Any) -> Any:
    """A type without its nullability and metadata."""
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
    """Whether it is a type that every Delta writer knows."""
    return kind in PLAIN or kind.startswith("decimal") or (ntz and kind == NTZ)


def creation_faults(schema: Schema, partition_by: Sequence[str]) -> list[str]:
    """What keeps a table with these columns from being created, or from being written to later."""
    names = [field["name"] for field in schema["fields"]]
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    faults = [
        f"{name!r}: Delta does not allow any of ' ,;{{}}()=', tabs or line ends in names"
        for name in names
        if SPECIAL & {*name}
    ]
    faults += [
        f"partition_by: {name!r} is not in the frame, which has {', '.join(names)}{nearest(name, names)}"
        for name in partition_by
        if name not in kinds
    ]
    faults += [
        f"partition_by: {name!r} is {spell(kinds[name])}, a partition needs a plain value"
        for name in partition_by
        if name in kinds and (not isinstance(kinds[name], str) or kinds[name] in ("binary", "variant"))
    ]
    if names and set(names) <= set(partition_by):
        faults.append(f"partition_by: at least one of the columns {', '.join(names)} must not be in it")
    lower = [name.lower() for name in names]
    faults += [f"{name!r}: two columns differ in case only" for name in names if lower.count(name.lower()) > 1]
    return faults


def constraints(schema: Schema) -> list[str]:
    """Every field that must not be null, or whose metadata demands something of writers."""
    return list(_constraints("", schema))


def _constraints(where: str, kind: Any) -> Iterator[str]:
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
            yield from _constraints(f"{name}.", field["type"])
    elif kind["type"] == "array":
        if not kind["containsNull"]:
            yield f"{where}element is NOT NULL"
        yield from _constraints(f"{where}element.", kind["elementType"])
    elif kind["type"] == "map":
        if not kind["valueContainsNull"]:
            yield f"{where}value is NOT NULL"
        yield from _constraints(f"{where}key.", kind["keyType"])
        yield from _constraints(f"{where}value.", kind["valueType"])
