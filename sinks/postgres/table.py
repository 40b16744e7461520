"""The table as it is now: its columns, their types, and what only an insert can know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg

from epochal.participant import Refused
from epochal.sinks.postgres.layout import quoted

# Fully checked by Spark before a row is copied; the others by the server, which copies rows into a typed table.
CHECKED = {
    *("bool", "int2", "int4", "int8", "numeric", "float4", "float8", "text", "varchar", "bpchar", "uuid", "bytea"),
    *("date", "timestamp", "timestamptz", "enum"),
}
LONG = 2_000  # bytes of a row that surely fit into an index
OF_THE_SERVER = ("json", "jsonb", "citext", "inet", "cidr", "macaddr", "macaddr8")

RELATION = """
SELECT c.oid::bigint, c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
       (SELECT system_identifier::text FROM pg_control_system()), current_database(), current_setting('fsync'),
       c.relispartition OR EXISTS (SELECT FROM pg_constraint k
           WHERE k.conrelid = c.oid AND k.contype IN ('c', 'f', 'x')),
       EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal) OR c.relkind = 'p',
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE NOT has_table_privilege(c.oid, p)),
       ARRAY(SELECT rulename::text FROM pg_rewrite w WHERE w.ev_class = c.oid AND w.ev_type <> '1'),
       ARRAY(SELECT p.oid::regclass::text FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid
             WHERE p.relpersistence <> 'p' OR p.relkind NOT IN ('r', 'p')),
       has_database_privilege(current_database(), 'TEMPORARY'),
       c.relnatts > 250 OR EXISTS (
           SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND (a.attgenerated <> '' OR a.attlen = -1 AND a.attstorage = 'p')
       ) OR EXISTS (
           SELECT FROM pg_index i WHERE i.indrelid = c.oid AND (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL)),
       EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
               WHERE i.indrelid = c.oid AND a.attlen = -1 AND a.atttypid <> 'numeric'::regtype),
       current_setting('server_encoding') = 'UTF8'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
COLUMNS = """
SELECT a.attname,
       -- With its schema, whatever the search_path: that may be another one when the epoch is committed.
       CASE WHEN pg_type_is_visible(b.oid) AND bn.nspname <> 'pg_catalog' THEN quote_ident(bn.nspname) || '.' ELSE ''
       END || format_type(a.atttypid, a.atttypmod), a.atttypid::bigint, a.atttypmod,
       a.attnotnull OR t.typnotnull,  -- COPY leaves nulls in a column of a domain that it is not given
       a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL, a.attgenerated <> '' OR a.attidentity = 'a',
       (SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
        JOIN pg_namespace n ON n.oid = l.collnamespace
        WHERE l.oid = a.attcollation AND a.attcollation <> t.typcollation)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'b' AND t.typlen = -1 AND t.typelem <> 0 THEN t.typelem ELSE t.oid END
JOIN pg_namespace bn ON bn.oid = b.typnamespace
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
TYPES = """
WITH RECURSIVE used(oid) AS (
    SELECT atttypid FROM pg_attribute WHERE attrelid = %s AND attnum > 0
    UNION
    SELECT b.oid FROM used u JOIN pg_type t ON t.oid = u.oid JOIN pg_type b ON b.oid IN (t.typbasetype, t.typelem)
)
SELECT t.oid::bigint, t.typname, t.typtype::text, t.typbasetype::bigint, t.typtypmod,
       CASE WHEN t.typlen = -1 AND t.typcategory = 'A' THEN t.typelem::bigint ELSE 0 END,
       ARRAY(SELECT enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid)
FROM used JOIN pg_type t ON t.oid = used.oid
"""
# Unique indexes: their columns, whether ON CONFLICT can name them, their names, and whether their columns are compared
# as `=` compares them.
UNIQUE = """
SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number ORDER BY k.place),
       i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AND i.indisvalid, c.relname,
       NOT coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false) AND NOT EXISTS (
           SELECT FROM generate_series(0, i.indnkeyatts - 1) n JOIN pg_opclass o ON o.oid = i.indclass[n]
           LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
           WHERE NOT o.opcdefault OR i.indcollation[n] IS DISTINCT FROM a.attcollation
           -- One for char(n) may be that of a text, and then ignores spaces.
           OR NOT (o.opcintype IN (a.atttypid, 'anyenum'::regtype)
                   OR a.atttypid = 'varchar'::regtype AND o.opcintype = 'text'::regtype))
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s AND i.indisunique
"""


@dataclass(frozen=True, slots=True)
class Type:
    """A type without its domains: what its values must be."""

    name: str
    modifier: int = -1  # as pg_attribute has it
    labels: tuple[str, ...] = ()
    element: Type | None = None

    @property
    def length(self) -> int | None:
        """The most characters of a varchar or char."""
        return self.modifier - 4 if self.name in ("varchar", "bpchar") and self.modifier >= 4 else None

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a numeric; None if it has no limit."""
        if self.name != "numeric" or self.modifier < 4:
            return None
        precision, scale = (self.modifier - 4) >> 16 & 0xFFFF, (self.modifier - 4) & 0x7FF
        return precision, scale - 2048 if scale >= 1024 else scale

    @property
    def fraction(self) -> int:
        """The digits of a second that a timestamp keeps."""
        return self.modifier if self.name in ("timestamp", "timestamptz") and self.modifier >= 0 else 6


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    spelled: str  # its type as SQL has it
    type: Type
    required: bool  # not null
    has_default: bool
    generated: bool
    collation: str | None
    is_domain: bool

    @property
    def declared(self) -> str:
        """Its type for a staged table."""
        return self.spelled + (f" COLLATE {self.collation}" if self.collation else "")

    @property
    def is_checked(self) -> bool:
        """Whether Spark checks everything about its values."""
        return self.type.name in CHECKED and not self.is_domain


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index."""

    columns: tuple[str, ...]
    usable: bool  # for ON CONFLICT
    name: str = ""
    compares: bool = False  # by the columns' own `=`

    @property
    def plain(self) -> bool:
        """Whether two rows of equal columns, and only they, are refused."""
        return self.usable and self.compares


@dataclass(frozen=True)
class Table:
    """The table of a sink."""

    schema: str
    name: str
    oid: int
    identity: str
    columns: Mapping[str, Column]
    unique: Sequence[Unique]
    has_checks: bool  # check, foreign key or exclusion constraints, or it is a partition
    has_triggers: bool  # or is partitioned
    lacking: Sequence[str]  # privileges
    fsync: bool
    has_temporary: bool = False  # whether this user may make temporary tables
    computes: bool = False  # columns or indexes from others, which may fail; or a row may be too large for it
    indexes_texts: bool = False  # or other values that may be too large for an index
    is_utf8: bool = True

    @property
    def can_compare(self) -> bool:
        """Whether rows of this table can be compared with those of a temporary one."""
        return self.has_temporary and "SELECT" not in self.lacking

    @cached_property
    def sql(self) -> str:
        """Its full name, quoted."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def may_fail(self, longest: int) -> bool:
        """Whether an insert may break something other than a constraint, with rows of so many bytes."""
        return self.computes or (self.indexes_texts and longest > LONG)

    def fills(self, names: Sequence[str]) -> bool:
        """Whether other columns have defaults; their functions and sequences may be out of this user's reach."""
        others = (column for name, column in self.columns.items() if name not in names)
        return any(column.has_default and not column.generated for column in others)

    def needs_trial(self, keys: Sequence[str], longest: int = 0) -> bool:
        """Whether only an insert can know if rows fit: constraints other than the unique one of the keys."""
        unique = [index for index in self.unique if not keys or set(index.columns) != set(keys)]
        return self.has_checks or self.has_triggers or bool(unique) or self.may_fail(longest)


def read(db: psycopg.Connection[Any], schema: str, name: str) -> Table:
    """The table as it is. Refused if there is none, or it can never be a target."""
    found = db.execute(RELATION, (schema, name)).fetchone()
    what = f"the table {quoted(schema)}.{quoted(name)}"
    if found is None:
        raise Refused(f"{what} does not exist; create it (names are case-sensitive). Nothing was written")
    (
        oid,
        kind,
        persistence,
        secured,
        system,
        database,
        fsync,
        checks,
        triggers,
        lacking,
        rules,
        fleeting,
        *more,
    ) = found
    if kind not in ("r", "p"):
        raise Refused(f"{what} is no table (views and foreign tables cannot be written to). Nothing was written")
    if persistence != "p":
        raise Refused(
            f"{what} is not logged: a crash of the server empties it. ALTER TABLE ... SET LOGGED. Nothing was written"
        )
    if fleeting:
        # A foreign server commits by itself: the epoch could be there and not in the ledger, and be written again.
        raise Refused(
            f"{what} has partitions that are foreign tables or not logged, {', '.join(fleeting)}: their rows would not "
            "be written with the epoch, or not survive a crash. Detach them, or SET LOGGED. Nothing was written"
        )
    if rules:
        raise Refused(
            f"{what} has rules, {', '.join(map(quoted, rules))}: they change what is written, and COPY passes them by. "
            "Use triggers instead. Nothing was written"
        )
    if secured:
        raise Refused(f"row-level security applies to this user on {what}; exempt it (BYPASSRLS). Nothing was written")
    types = {row[0]: row for row in db.execute(TYPES, (oid,))}
    columns = {}
    for column, spelled, kind_oid, modifier, required, default, generated, collation in db.execute(COLUMNS, (oid,)):
        columns[column] = Column(
            column,
            spelled,
            _type(types, kind_oid, modifier),
            required=required,
            has_default=default,
            generated=generated,
            collation=collation,
            is_domain=types[kind_oid][2] == "d",
        )
    unique = [Unique(tuple(names), *rest) for names, *rest in db.execute(UNIQUE, (oid,))]
    return Table(
        schema,
        name,
        oid,
        f"{system}/{database}/{oid}",
        columns,
        unique,
        checks,
        triggers,
        lacking,
        fsync == "on",
        *more,
    )


def _type(types: Mapping[int, Any], oid: int, modifier: int) -> Type:
    _, name, kind, base, own_modifier, element, labels = types[oid]
    if kind == "d":
        return _type(types, base, own_modifier)
    if element:
        return Type("array", element=_type(types, element, modifier))
    return Type("enum", labels=tuple(labels)) if kind == "e" else Type(name, modifier)
