"""The options of a Cassandra sink as texts, the way Spark's settings and options carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from epochal.sinks.cassandra.sink import CassandraSink
from epochal.sinks.config.texts import parse_bool, parse_int, parse_names


def _duration(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text


PARSERS: Mapping[str, Callable[[str], object]] = {
    "table": str,
    "contact_points": parse_names,
    "port": parse_int,
    "mode": str,
    "order_by": parse_names,
    "delete_when": str,
    "drop": parse_names,
    "mark": str,
    "nulls": str,
    "timestamps": str,
    "ttl": _duration,
    "expires_at": str,
    "datacenter": str,
    "consistency": str,
    "user": str,
    "password": str,
    "tls": parse_bool,
    "ca_file": str,
    "cert_file": str,
    "key_file": str,
    "staging": str,
    "max_row_bytes": parse_int,
    "in_flight": parse_int,
    "batch_rows": parse_int,
    "tasks": parse_int,
}
REQUIRED = ("table",)
NESTED = "totals"  # totals.<column> is sum, count, min or max


def build(name: str, values: Mapping[str, object], nested: Mapping[str, str]) -> CassandraSink:
    """The sink that parsed settings describe."""
    arguments: dict[str, Any] = {key: value for key, value in values.items() if key != "table"}
    return CassandraSink(str(values["table"]), name=name, totals=dict(nested) or None, **arguments)
