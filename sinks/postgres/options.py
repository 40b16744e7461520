"""The options of a PostgreSQL sink: each is declared once, here."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from epochal.participant import Faults, Option, Participant, SinkName, SinkOptions, declared

Mode = Literal["append", "upsert", "accumulate"]
Total = Literal["sum", "count", "min", "max"]
_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_TABLE = re.compile(rf"(?:{_PART}\.)?{_PART}")


def names_of(table: str) -> tuple[str, str] | None:
    """Schema and name, as they are in the catalog; None if a text names no table.

    >>> names_of("orders"), names_of("shop.Orders"), names_of('shop."a.b"'), names_of("a.b.c")
    (('public', 'orders'), ('shop', 'Orders'), ('shop', 'a.b'), None)
    """
    found = _TABLE.fullmatch(table)
    if found is None:
        return None
    parts = [(quoted or "").replace('""', '"') or plain for quoted, plain in (found.group(1, 2), found.group(3, 4))]
    return parts[0] or "public", parts[1]


def check_table(faults: Faults, option: str, value: Any) -> Any:
    """A table, with or without its schema."""
    good = isinstance(value, str) and "\0" not in value and names_of(value) is not None
    faults.check(good, f'{option}={value!r}: table or schema.table; a name with a dot in double quotes: shop."a.b"')
    return value


def check_hosts(faults: Faults, option: str, value: Any) -> Any:
    """Hosts of one cluster."""
    good = isinstance(value, Sequence) and not isinstance(value, str | bytes) and bool(value)
    good = good and all(isinstance(host, str) and re.fullmatch(r"[^\s,/@]+", host) for host in value)
    what = option if "@" in str(value) else f"{option}={value!r}"  # what stands before it may be a password
    faults.check(good, f"{what}: a list of hosts, such as ['127.0.0.1'], without users and passwords")
    return tuple(value) if good else value


def check_database(faults: Faults, option: str, value: Any) -> Any:
    """A name; what else libpq takes for a database may hold a password."""
    good = isinstance(value, str) and bool(value) and "://" not in value and "=" not in value
    faults.check(good, f"{option}: the name of a database; hosts, user and password are options of their own")
    return value


def check_schema(faults: Faults, option: str, value: Any) -> Any:
    """The name of a schema. Queries with parameters cannot have a % in them."""
    good = isinstance(value, str) and bool(value) and "%" not in value and "\0" not in value
    faults.check(good, f"{option}={value!r}: the name of a schema, without '%'")
    return value


def check_port(faults: Faults, option: str, value: Any) -> Any:
    """A port."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65_536
    faults.check(good, f"{option}={value!r}: a number from 1 to 65535")
    return value


def check_totals(faults: Faults, option: str, value: Any) -> Any:
    """How each column is added up."""
    if not faults.check(isinstance(value, Mapping), f"{option}: a dictionary, such as {{'amount': 'sum'}}"):
        return None
    for name, how in value.items():
        faults.one_of(f"{option}[{name!r}]", how, get_args(Total))
    return dict(value)


def check_sink(faults: Faults, option: str, value: Any) -> Any:
    """Another sink."""
    faults.check(hasattr(value, "stage"), f"{option}={value!r}: a sink, or None")
    return value


@declared
@dataclass(frozen=True, eq=False, repr=False)
class PostgresOptions(SinkOptions):
    """How rows become those of a table, and where it is."""

    kind: ClassVar[str] = "postgres"

    table: Annotated[
        str,
        Option(
            "`schema.table`, or a table of the schema `public`; it must exist. Names are case-sensitive",
            check=check_table,
            journal=True,
        ),
    ]
    _: KW_ONLY
    hosts: Annotated[
        Sequence[str],
        Option(
            "the server; of several, the one that accepts writes",
            check=check_hosts,
            shown_type="list of hosts",
            journal=True,
        ),
    ] = ("127.0.0.1",)
    port: Annotated[int, Option("the same on all hosts", check=check_port, journal=True)] = 5432
    database: Annotated[str, Option("the database", check=check_database, journal=True)] = "postgres"
    user: Annotated[
        str | None,
        Option(
            "or `EPOCHAL_POSTGRES_USER`; see [secrets](#secrets)",
            expects="a text",
            secret="login",
            shown_default="environment",
        ),
    ] = None
    password: Annotated[
        str | None,
        Option("or `EPOCHAL_POSTGRES_PASSWORD`", expects="a text", secret=True, shown_default="environment"),
    ] = None
    sslmode: Annotated[
        Literal["disable", "prefer", "require", "verify-ca", "verify-full"],
        Option("TLS, in libpq's words; `verify-full` is the only one that no other server can pass", journal=True),
    ] = "prefer"
    ca_file: Annotated[
        str | None,
        Option(
            "the authority that signed the server's certificate, in PEM",
            expects="the path of a PEM file",
            journal=True,
        ),
    ] = None
    name: SinkName = "postgres"
    mode: Annotated[
        Mode,
        Option("insert rows; replace them by `keys`; or add each epoch to `totals`, see [below](#modes)", journal=True),
    ] = "append"
    keys: Annotated[
        Sequence[str], Option("upsert, accumulate: columns that identify a row; they have a unique index", journal=True)
    ] = ()
    order_by: Annotated[
        Sequence[str], Option("upsert: of several rows of a key in one epoch the last by these wins; ties are refused")
    ] = ()
    delete_when: Annotated[
        str | None,
        Option("upsert: a SQL condition; the row deletes its key", expects="a SQL condition, such as \"op = 'D'\""),
    ] = None
    drop: Annotated[Sequence[str], Option("columns that are there for `order_by` and `delete_when` only")] = ()
    totals: Annotated[
        Mapping[str, Total] | None,
        Option(
            'accumulate: how to add up each column, such as `{"amount": "sum"}`',
            check=check_totals,
            shown_type='dictionary of `"sum"`, `"count"`, `"min"` or `"max"`',
            journal=True,
        ),
    ] = None
    epoch_column: Annotated[
        str | None,
        Option(
            "append: a bigint column that gets the number of the epoch, by which `epochal audit` counts rows",
            expects="the name of a column",
            journal=True,
        ),
    ] = None
    digest: Annotated[
        bool, Option("append: digest the rows of each epoch, for `epochal audit`; needs `epoch_column`", journal=True)
    ] = False
    dead_letters: Annotated[
        Participant[Any] | None,
        Option(
            "for rows whose values no column can hold, with the reason in `_error`; any sink; not by Spark settings",
            check=check_sink,
            shown_type="sink",
            setting=False,
        ),
    ] = None
    ledger_schema: Annotated[str, Option("the schema of epochal's own tables", check=check_schema, journal=True)] = (
        "epochal"
    )

    def __repr__(self) -> str:
        return f"PostgresSink({self.table!r}, mode={self.mode!r}, name={self.name!r})"

    @property
    def total_columns(self) -> Mapping[str, Total]:
        return self.totals or {}

    def check_together(self, faults: Faults) -> None:
        installed = importlib.util.find_spec("psycopg") is not None
        faults.check(installed, "PostgreSQL's driver is not installed: pip install 'epochal[postgres]'")
        only = {
            "order_by": ("upsert",),
            "delete_when": ("upsert",),
            "keys": ("upsert", "accumulate"),
            "totals": ("accumulate",),
            "epoch_column": ("append",),
            "digest": ("append",),
        }
        for name, modes in only.items():
            fits = self.mode in modes or not getattr(self, name)
            faults.check(fits, f"{name}: only for mode={' or '.join(map(repr, modes))}")
        if self.mode in ("upsert", "accumulate"):
            faults.check(bool(self.keys), f"keys: mode={self.mode!r} needs them, such as ['id']")
        if self.mode == "accumulate":
            faults.check(bool(self.totals), "totals: mode='accumulate' needs them, such as {'amount': 'sum'}")
            both = sorted(set(self.keys) & set(self.total_columns))
            faults.check(not both, f"keys and totals: {', '.join(both)} in both")
        faults.check(not self.digest or bool(self.epoch_column), "digest: needs epoch_column")
        dropped = sorted(set(self.keys) & set(self.drop))
        faults.check(not dropped, f"keys and drop: {', '.join(dropped)} in both")
        faults.check(self.ca_file is None or self.sslmode != "disable", "ca_file: not with sslmode='disable'")
