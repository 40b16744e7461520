"""The options of a Cassandra sink, checked all at once."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from epochal.sinks.cassandra.cluster.endpoint import Endpoint
from epochal.sinks.cassandra.cluster.limits import LONGEST_TTL
from epochal.sinks.config.options import Faults

MODES = ("upsert", "accumulate")
NULLS = ("tombstone", "unset")
TIMESTAMPS = ("exact", "truncate")
TOTALS = ("sum", "count", "min", "max")
LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM")
OVERLAPPING = ("QUORUM", "ALL", "LOCAL_QUORUM")  # a read sees what a write of the same level was told to be in
UNITS = {"s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86_400, "day": 86_400}
_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
_DURATION = re.compile(r"(\d+)\s*([a-z]+?)s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How rows are written."""

    mode: str
    order_by: tuple[str, ...]
    delete_when: str | None
    drop: tuple[str, ...]
    totals: Mapping[str, str]
    mark: str
    nulls: str
    timestamps: str
    ttl: int | None
    expires_at: str | None
    max_row_bytes: int
    in_flight: int
    batch_rows: int
    tasks: int | None


def split_table(table: object, faults: Faults) -> tuple[str, str]:
    """Keyspace and table; names are as Cassandra keeps them, in their own case."""
    keyspace, _, name = table.partition(".") if isinstance(table, str) else ("", "", "")
    good = _NAME.fullmatch(keyspace) is not None and _NAME.fullmatch(name) is not None
    faults.check(good, f"table={table!r}: keyspace.table, letters, digits and '_' in both")
    return keyspace, name


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


def check_endpoint(
    faults: Faults,
    *,
    contact_points: object,
    port: object,
    datacenter: object,
    consistency: object,
    tls: object,
    files: Mapping[str, object],
    user: object,
    password: object,
) -> None:
    """Everything about the connection that can be wrong without trying it."""
    installed = all(importlib.util.find_spec(package) for package in ("cassandra", "pandas"))
    faults.check(installed, "Cassandra's packages are not installed: pip install 'epochal[cassandra]'")
    points = [*contact_points] if isinstance(contact_points, Sequence) and not isinstance(contact_points, str) else []
    good = bool(points) and all(isinstance(point, str) and point.strip() for point in points)
    faults.check(good, f"contact_points={contact_points!r}: a list of hosts, such as ['127.0.0.1']")
    whole = isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65_536
    faults.check(whole, f"port={port!r}: a number from 1 to 65535")
    faults.one_of("consistency", consistency, LEVELS)
    faults.check(datacenter is None or (isinstance(datacenter, str) and datacenter != ""), "datacenter: a name")
    faults.check(isinstance(tls, bool), f"tls={tls!r}: True or False")
    for name, path in files.items():
        faults.check(path is None or (isinstance(path, str) and path != ""), f"{name}: the path of a PEM file")
        faults.check(path is None or tls is True, f"{name}: only with tls=True")
    both = (user is None) == (password is None)
    faults.check(both, "user and password: give both or neither (or set them in the environment)")
    for name, secret in (("user", user), ("password", password)):
        faults.check(secret is None or (isinstance(secret, str) and secret != ""), f"{name}: a text")


def check_rows(faults: Faults, options: Options, endpoint: Endpoint, ttl: object) -> None:
    """Everything about the rows that can be wrong without seeing any."""
    faults.one_of("mode", options.mode, MODES)
    faults.one_of("nulls", options.nulls, NULLS)
    faults.one_of("timestamps", options.timestamps, TIMESTAMPS)
    faults.check(ttl is None or options.ttl is not None, f"ttl={ttl!r}: seconds, or a text such as '30 days'")
    faults.check(options.ttl is None or options.ttl <= LONGEST_TTL, f"ttl={ttl!r}: 20 years at most")
    faults.check(options.ttl is None or options.expires_at is None, "ttl and expires_at: only one of them")
    for name in ("max_row_bytes", "in_flight", "batch_rows"):
        faults.above_zero(name, getattr(options, name))
    faults.check(options.tasks is None or options.tasks > 0, f"tasks={options.tasks!r}: a number above 0")
    condition = options.delete_when
    faults.check(
        condition is None or (isinstance(condition, str) and condition.strip() != ""),
        f"delete_when={condition!r}: a SQL condition, such as \"op = 'D'\"",
    )
    if options.mode == "accumulate":
        faults.check(bool(options.totals), "totals: accumulating needs them, such as {'amount': 'sum'}")
        for name, how in options.totals.items():
            faults.one_of(f"totals[{name!r}]", how, TOTALS)
        faults.check(
            endpoint.consistency in OVERLAPPING,
            f"consistency={endpoint.consistency!r}: totals are read before they are written, which needs one of "
            f"{', '.join(OVERLAPPING)}",
        )
        only_upsert = {
            "order_by": options.order_by,
            "delete_when": options.delete_when,
            "ttl": options.ttl,
            "expires_at": options.expires_at,
        }
        for name, value in only_upsert.items():
            faults.check(not value, f"{name}: only for mode='upsert'")
    else:
        faults.check(not options.totals, "totals: only for mode='accumulate'")
