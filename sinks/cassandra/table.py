"""What a table looks like, and whether a frame fits it, column by column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from epochal.sinks.cassandra.cluster import cql
from epochal.sinks.cassandra.cluster.connection import ClusterSession
from epochal.sinks.cassandra.cluster.cql import Cql
from epochal.sinks.cassandra.cluster.faults import translated
from epochal.sinks.cassandra.options import CassandraOptions
from epochal.sinks.config.options import nearest
from epochal.txn.errors import Refused

# Which types of Spark a column takes. Nothing that could lose a digit: a cast is the user's to write.
TAKES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), ("byte", "short", "integer", "long")),
    **dict.fromkeys(("text", "ascii", "uuid", "timeuuid", "inet"), ("string",)),
    "blob": ("binary",),
    "boolean": ("boolean",),
    "date": ("date",),
    "decimal": ("decimal", "byte", "short", "integer", "long"),
    "double": ("double", "float"),
    "float": ("float",),
    "time": ("long", "time"),
    "timestamp": ("timestamp",),
    "varint": ("byte", "short", "integer", "long", "decimal"),
}
_WHOLE = {"bigint", "varint"}
_ORDERED = {"tinyint", "smallint", "int", "float", "date", "timestamp", "text"} | _WHOLE
ADDABLE: Mapping[str, set[str]] = {
    "sum": _WHOLE | {"decimal", "double"},
    "count": _WHOLE,
    "min": _ORDERED | {"decimal", "double"},
    "max": _ORDERED | {"decimal", "double"},
}
SORTABLE = {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the server describes it now."""

    keyspace: str
    name: str
    columns: Mapping[str, Cql]
    partition_key: tuple[str, ...]
    clustering_key: tuple[str, ...]
    static: frozenset[str]
    default_ttl: int
    identity: str = ""  # what it is, whatever node was asked and however it was spelled

    @property
    def key(self) -> tuple[str, ...]:
        return self.partition_key + self.clustering_key

    @property
    def full_name(self) -> str:
        return f"{cql.quoted(self.keyspace)}.{cql.quoted(self.name)}"


def read(connection: ClusterSession, keyspace_name: str, name: str) -> Table:
    """The table as the server describes it now; refused if there is none, or it could never be exactly once."""
    cluster = connection.session.cluster
    known = cluster.metadata.keyspaces
    try:
        # Asked for each epoch: the driver hears of changes, but seconds later.
        if keyspace_name not in known:
            cluster.refresh_keyspace_metadata(keyspace_name)
        if keyspace_name in known:
            cluster.refresh_table_metadata(keyspace_name, name)
    except Exception as fault:
        raise translated(fault, f"the description of {keyspace_name}.{name}") from fault
    if keyspace_name not in known or name not in known[keyspace_name].tables:
        what, near = "keyspace", list(known)
        if keyspace_name in known:
            listing = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
            what, near = "table", [found for (found,) in connection.session.execute(listing, [keyspace_name])]
        hint = nearest(name if what == "table" else keyspace_name, near)
        raise Refused(
            f"{keyspace_name}.{name}: there is no such {what}{hint}. Nothing was written. Create it first, or is this "
            f"the wrong cluster? ({connection.endpoint.place})"
        )
    keyspace = known[keyspace_name]
    found = keyspace.tables[name]

    def udt(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if kind not in keyspace.user_types:
            cluster.refresh_user_type_metadata(keyspace_name, kind)
        if kind not in keyspace.user_types:
            raise ValueError(kind)
        described = keyspace.user_types[kind]
        return tuple(described.field_names), tuple(described.field_types)

    columns: dict[str, Cql] = {}
    for column in found.columns.values():
        try:
            columns[column.name] = cql.parse(column.cql_type, udt)
        except ValueError:
            columns[column.name] = Cql("custom", label=column.cql_type)
    where = f"{keyspace.name}.{name}"
    if any(kind.name == "counter" for kind in columns.values()):
        raise Refused(
            f"{where} has counter columns, and a counter that is incremented once more after a crash counts twice. "
            "Nothing was written. Use mode='accumulate' with bigint columns: exactly-once totals"
        )
    return Table(
        keyspace.name,
        name,
        columns,
        tuple(column.name for column in found.partition_key),
        tuple(column.name for column in found.clustering_key),
        frozenset(column.name for column in found.columns.values() if column.is_static),
        int(found.options.get("default_time_to_live") or 0),
        identity(connection, keyspace.name, name),
    )


def identity(connection: ClusterSession, keyspace: str, name: str) -> str:
    """What a table is, by the server's own word: another one of the same name is another."""
    asked = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    try:
        (found,) = connection.session.execute(asked, [keyspace, name]).one() or ("",)
    except Exception as fault:
        raise translated(fault, f"the description of {keyspace}.{name}") from fault
    return f"cassandra {connection.session.cluster.metadata.cluster_name} {found}"


def misfits(table: Table, schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with a frame's columns; `schema` is Spark's, as JSON, without dropped columns."""
    has = {field["name"]: field["type"] for field in schema["fields"]}
    faults = [f"{name}: part of the primary key, and not in the frame" for name in table.key if name not in has]
    for name, kind in has.items():
        if name not in table.columns:
            faults.append(f"{name}: not in the table{_case(name, table.columns) or nearest(name, table.columns)}")
            continue
        wants = table.columns[name]
        if name in table.static:
            faults.append(
                f"{name}: static, and rows of one partition could differ in it; write it by a sink of its own"
            )
        elif wants.name == "list" and not wants.frozen:
            faults.append(f"{name}: {wants} is not frozen, and a list that is written once more grows; make it frozen")
        else:
            faults += [f"{name}{fault}" for fault in _misfit(wants, kind)]
    if all(name in table.columns for name in has) and len({n.lower() for n in has}) != len(has):
        faults.append("columns that differ in case only cannot be told apart by Spark")
    return faults


def unfit_totals(table: Table, schema: Mapping[str, Any], options: CassandraOptions) -> list[str]:
    """What keeps a frame from being added to the table's totals."""
    has = {field["name"]: field["type"] for field in schema["fields"]}
    counted = {name for name, how in options.total_columns.items() if how == "count"}
    wanted = {*table.key, *options.total_columns} - counted
    faults = [f"{name}: not in the frame{_case(name, has) or nearest(name, has)}" for name in sorted(wanted - set(has))]
    faults += [f"{name}: neither a key nor a total; put it into drop" for name in has if name not in wanted | counted]
    for name in table.key:
        faults += [f"{name}{fault}" for fault in _misfit(table.columns[name], has.get(name))] if name in has else []
    for name, how in options.total_columns.items():
        kind = table.columns.get(name)
        if kind is None or name in table.key:
            faults.append(f"{name}: {'not in the table' if kind is None else 'part of the key'}, so it can be no total")
        elif kind.name not in ADDABLE[how]:
            faults.append(f"{name}: {how} needs one of {', '.join(sorted(ADDABLE[how]))}, and it is {kind}")
        elif how != "count" and name in has:
            faults += [f"{name}{fault}" for fault in _misfit(kind, _summed(has[name], how))]
    mark = table.columns.get(options.mark)
    if mark is None or mark.name != "text":
        faults.append(
            f"{options.mark}: accumulating keeps its mark there; ALTER TABLE {table.full_name} ADD {options.mark} text"
        )
    return faults


def _summed(kind: Any, how: str) -> Any:
    """The type of a frame's total."""
    return "long" if how == "sum" and kind in ("byte", "short", "integer", "long") else kind


def unsortable(schema: Mapping[str, Any], order_by: Iterable[str]) -> list[str]:
    """What is wrong with the columns that say which row of a key is the last."""
    has = {field["name"]: field["type"] for field in schema["fields"]}
    faults = []
    for name in order_by:
        kind = has.get(name)
        if kind is None:
            faults.append(f"order_by: {name!r} is not in the frame{nearest(name, has)}")
        elif not isinstance(kind, str) or (kind not in SORTABLE and not kind.startswith("decimal")):
            faults.append(f"order_by: {name!r} is {spell(kind)}, and has no order")
    return faults


def _misfit(wants: Cql, kind: Any) -> list[str]:
    """What keeps a type of Spark from being written as a type of CQL; each begins where a column's name ends."""
    wrong = [f": {spell(kind)} in the frame, {wants} in the table"]
    if wants.name in TAKES:
        plain = kind.partition("(")[0] if isinstance(kind, str) else ""
        return [] if plain in TAKES[wants.name] else wrong
    if isinstance(kind, str):
        return wrong
    if wants.name in ("list", "set", "vector") and kind["type"] == "array":
        return _inside(wants.parts[0], kind["elementType"], "element")
    if wants.name == "map" and kind["type"] == "map":
        return _inside(wants.parts[0], kind["keyType"], "key") + _inside(wants.parts[1], kind["valueType"], "value")
    if wants.name == "tuple" and kind["type"] == "struct" and len(kind["fields"]) == len(wants.parts):
        pairs = zip(wants.parts, kind["fields"], strict=True)
        return [fault for part, field in pairs for fault in _inside(part, field["type"], field["name"])]
    if wants.name == "udt" and kind["type"] == "struct":
        parts = dict(zip(wants.fields, wants.parts, strict=True))
        faults = []
        for field in kind["fields"]:
            if field["name"] not in parts:
                faults.append(f".{field['name']}: not in the type {wants}{nearest(field['name'], parts)}")
            else:
                faults += _inside(parts[field["name"]], field["type"], field["name"])
        return faults
    return wrong


def _inside(wants: Cql, kind: Any, where: str) -> list[str]:
    return [f".{where}{fault}" for fault in _misfit(wants, kind)]


def spell(kind: Any) -> str:
    """A type of Spark as people write it."""
    if isinstance(kind, str):
        return {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{spell(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{spell(kind['keyType'])}, {spell(kind['valueType'])}>"
    return str(kind["type"])


def _case(name: str, others: Collection[str]) -> str:
    same = [other for other in others if other.lower() == name.lower()]
    return f" (but {same[0]!r}: names must be spelled alike)" if same else ""
