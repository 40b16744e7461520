"""The options of a Cassandra sink: each is declared once, here and in `Connection`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, get_args

from epochal.sinks.cassandra.cluster.endpoint import Connection
from epochal.sinks.cassandra.cluster.limits import LONGEST_TTL
from epochal.sinks.config.declaring import CheckedOptions, Option, SinkName, SinkOptions, declarations, declared
from epochal.sinks.config.options import Faults
from epochal.sinks.storage.paths import spark_path
from epochal.txn.participant import Participant

Mode = Literal["upsert", "accumulate"]
Total = Literal["sum", "count", "min", "max"]
OVERLAPPING = ("QUORUM", "ALL", "LOCAL_QUORUM")  # a read sees every acknowledged write of the same level
UNITS = {"s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86_400, "day": 86_400}
_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
_DURATION = re.compile(r"(\d+)\s*([a-z]+?)s?")
_OF_CONNECTION = declarations(Connection)


def check_table(faults: Faults, option: str, table: Any) -> Any:
    """Keyspace and table; names are case-sensitive."""
    keyspace, _, name = table.partition(".") if isinstance(table, str) else ("", "", "")
    good = _NAME.fullmatch(keyspace) is not None and _NAME.fullmatch(name) is not None
    faults.check(good, f"{option}={table!r}: keyspace.table, letters, digits and '_' in both")
    return table


def seconds(value: object) -> int | None:
    """A duration as a number of seconds or as people write it.

    >>> seconds("30 days"), seconds("5 min"), seconds(90), seconds("soon")
    (2592000, 300, 90, None)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    unit = UNITS.get(found[2])
    return int(found[1]) * unit or None if unit else None


def check_ttl(faults: Faults, option: str, value: Any) -> Any:
    """How long a row lives."""
    found = seconds(value)
    faults.check(found is not None, f"{option}={value!r}: seconds, or a text such as '30 days'")
    faults.check(found is None or found <= LONGEST_TTL, f"{option}={value!r}: 20 years at most")
    return value


def parse_ttl(text: str) -> int | str:
    """Seconds, or a text with a unit, as Spark settings have it."""
    return int(text) if text.strip().isdecimal() else text


def check_totals(faults: Faults, option: str, value: Any) -> dict[str, Total]:
    """How each column is added up."""
    if not faults.check(isinstance(value, Mapping), f"{option}: a dictionary, such as {{'amount': 'sum'}}"):
        return {}
    for name, how in value.items():
        faults.one_of(f"{option}[{name!r}]", how, get_args(Total))
    return dict(value)


def check_sink(faults: Faults, option: str, value: Any) -> Any:
    """Another sink."""
    faults.check(hasattr(value, "stage"), f"{option}={value!r}: a sink, or None")
    return value


@declared
@dataclass(frozen=True, kw_only=True)
class Tuning(CheckedOptions):
    """How much is sent at once, and by how many.

    >>> Tuning(in_flight=64)
    Tuning(max_row_bytes=4194304, in_flight=64, batch_rows=50, tasks=None)
    """

    max_row_bytes: Annotated[
        int,
        Option(
            "a larger row is refused; so is one that the server's `max_mutation_size` does not allow",
            shown_default="`4194304` (4 MiB)",
        ),
    ] = 4 * 1024 * 1024
    in_flight: Annotated[int, Option("concurrent requests of a task")] = 32
    batch_rows: Annotated[int, Option("rows of a partition in one request")] = 50
    tasks: Annotated[int | None, Option("tasks that sort and write an epoch", shown_default="cores")] = None


@declared
@dataclass(frozen=True, eq=False, repr=False)
class CassandraOptions(SinkOptions):
    """How rows become those of a table, and where it is."""

    kind: ClassVar[str] = "cassandra"

    table: Annotated[str, Option("`keyspace.table`; it must exist", check=check_table, journal=True)]
    _: KW_ONLY
    contact_points: Annotated[
        Sequence[str] | None,
        Option(
            "short for `connection=Connection(contact_points=)`",
            check=_OF_CONNECTION["contact_points"].option.check,
            shown_type="list of hosts",
            shown_default='`["127.0.0.1"]`',
        ),
    ] = None
    port: Annotated[
        int | None,
        Option(
            "short for `connection=Connection(port=)`",
            check=_OF_CONNECTION["port"].option.check,
            shown_default="`9042`",
        ),
    ] = None
    connection: Annotated[
        Connection,
        Option(
            "where the cluster is, how to speak to it, and who speaks, see [below](#connection)",
            expects="a Connection, such as Connection(contact_points=['127.0.0.1'])",
            flat=True,
            journal=True,
        ),
    ] = Connection()  # noqa: RUF009  # it is frozen
    name: SinkName = "cassandra"
    mode: Annotated[
        Mode, Option("write rows by primary key, or add each epoch to `totals`, see [below](#accumulate)", journal=True)
    ] = "upsert"
    order_by: Annotated[
        Sequence[str], Option("of several rows of a key in one epoch the last by these wins; ties are refused")
    ] = ()
    delete_when: Annotated[
        str | None,
        Option("a SQL condition; the row deletes its key", expects="a SQL condition, such as \"op = 'D'\""),
    ] = None
    drop: Annotated[
        Sequence[str], Option("columns that are there for `order_by`, `delete_when` and `expires_at` only")
    ] = ()
    totals: Annotated[
        Mapping[str, Total] | None,
        Option(
            'accumulate: how to add up each column, such as `{"amount": "sum"}`',
            check=check_totals,
            shown_type='dictionary of `"sum"`, `"count"`, `"min"` or `"max"`',
            journal=True,
        ),
    ] = None
    mark: Annotated[
        str,
        Option(
            "accumulate: a text column of the table that records the last epoch in a row's totals",
            expects="the name of a text column",
        ),
    ] = "epochal"
    nulls: Annotated[
        Literal["tombstone", "unset"], Option('`"unset"` leaves a column as it is where a row has null')
    ] = "tombstone"
    timestamps: Annotated[
        Literal["exact", "truncate"],
        Option('Cassandra stores milliseconds: a row with microseconds is refused, or cut with `"truncate"`'),
    ] = "exact"
    ttl: Annotated[
        int | str | None,
        Option(
            'seconds, or a text such as `"30 days"`, from staging on, by the server\'s clock',
            check=check_ttl,
            parse=parse_ttl,
        ),
    ] = None
    expires_at: Annotated[
        str | None, Option("a timestamp column: when the row expires", expects="the name of a timestamp column")
    ] = None
    dead_letters: Annotated[
        Participant[Any] | None,
        Option(
            "for the rows that the table cannot hold, with the reason in `_error`; any sink, also one with a rolling "
            "policy; not by Spark settings",
            check=check_sink,
            shown_type="sink",
            setting=False,
        ),
    ] = None
    staging: Annotated[
        str | None,
        Option(
            "a folder that driver and executors can reach, also on [S3](objects.md)",
            expects="a folder or URI",
            shown_default="beside the journal",
            journal=True,
            restore=spark_path,
        ),
    ] = None
    tuning: Annotated[
        Tuning,
        Option(
            "how much is sent at once, see [below](#tuning)",
            expects="a Tuning, such as Tuning(in_flight=64)",
            flat=True,
        ),
    ] = Tuning()  # it is frozen

    def __repr__(self) -> str:
        return f"CassandraSink({self.table!r}, mode={self.mode!r}, name={self.name!r})"

    @property
    def names(self) -> tuple[str, str]:
        """Keyspace and table."""
        keyspace, _, name = self.table.partition(".")
        return keyspace, name

    @property
    def cluster(self) -> Connection:
        """The connection, however it was given."""
        short = {"contact_points": self.contact_points, "port": self.port}
        given: dict[str, Any] = {name: value for name, value in short.items() if value is not None}
        return replace(self.connection, **given) if given else self.connection

    @property
    def total_columns(self) -> Mapping[str, Total]:
        return self.totals or {}

    @property
    def lifetime(self) -> int | None:
        """How many seconds a row lives."""
        return seconds(self.ttl)

    def check_together(self, faults: Faults) -> None:
        installed = all(importlib.util.find_spec(package) for package in ("cassandra", "pandas"))
        faults.check(installed, "Cassandra's packages are not installed: pip install 'epochal[cassandra]'")
        for name in ("contact_points", "port"):
            twice = getattr(self, name) is not None and self.connection != Connection()
            faults.check(not twice, f"{name}: not together with connection=; use connection=Connection({name}=...)")
        faults.check(self.ttl is None or self.expires_at is None, "ttl and expires_at: only one of them")
        if self.mode != "accumulate":
            faults.check(not self.totals, "totals: only for mode='accumulate'")
            return
        faults.check(bool(self.totals), "totals: mode='accumulate' needs them, such as {'amount': 'sum'}")
        level = getattr(self.connection, "consistency", None)
        faults.check(
            level in OVERLAPPING,
            f"consistency={level!r}: totals are read before they are written, which needs one of "
            f"{', '.join(OVERLAPPING)}",
        )
        for name in ("order_by", "delete_when", "ttl", "expires_at"):
            faults.check(not getattr(self, name), f"{name}: only for mode='upsert'")
