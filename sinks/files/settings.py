"""The options of a rolling-file sink as texts, the way Spark's settings and options carry them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from epochal.sinks.config.texts import parse_bool, parse_int
from epochal.sinks.files.policies.buckets import UNITS, TimeBucket
from epochal.sinks.files.policies.completion import Complete
from epochal.sinks.files.policies.rolling import Rolling
from epochal.sinks.files.sink import RollingFileSink
from epochal.txn.errors import OptionError

_TIME = re.compile(rf"({'|'.join(UNITS)})\(\s*([^,()]+?)\s*(?:,\s*([^,()]+?)\s*)?\)")


def parse_buckets(text: str) -> list[str | TimeBucket]:
    """Columns and time buckets.

    >>> parse_buckets("region, hour(ordered_at, Europe/Berlin)")
    ['region', TimeBucket(column='ordered_at', unit='hour', timezone='Europe/Berlin', name=None)]
    """
    found: list[str | TimeBucket] = []
    for part in re.split(r",(?![^(]*\))", text):
        match = _TIME.fullmatch(part.strip())
        if match:
            found.append(TimeBucket(match[2], match[1], timezone=match[3] or "UTC"))
        elif part.strip():
            found.append(part.strip())
    return found


ROLLING = "rolling."  # rolling.max_bytes=64 MB
LIMITS: Mapping[str, Callable[[str], object]] = {
    "max_bytes": str,
    "max_rows": parse_int,
    "max_age": str,
    "inactivity": str,
    "merge_below": str,
}
MARKER = "marker."  # marker.by=watermark
PARSERS: Mapping[str, Callable[[str], object]] = {
    "path": str,
    "format": str,
    "bucket_by": parse_buckets,
    "drop_bucket_columns": parse_bool,
    "max_rows_per_file": parse_int,
    **{f"{ROLLING}{limit}": parse for limit, parse in LIMITS.items()},
    "compression": str,
    "marker": str,
    f"{MARKER}by": str,
    f"{MARKER}delay": str,
    "digest": parse_bool,
}
REQUIRED = ("path",)
NESTED = "options"  # options.<key> goes to Spark's writer


def build(name: str, values: Mapping[str, object], nested: Mapping[str, str]) -> RollingFileSink:
    """The sink that parsed settings describe."""
    grouped = (ROLLING, MARKER)
    arguments: dict[str, Any] = {k: v for k, v in values.items() if k != "path" and not k.startswith(grouped)}
    if limits := _below(ROLLING, values):
        arguments["rolling"] = Rolling(**limits)
    if completion := _below(MARKER, values):
        if "marker" in values:
            raise OptionError(f"sink {name!r}", [f"marker and {MARKER}by are two kinds of marker: set one of them"])
        arguments["marker"] = Complete(**completion)
    return RollingFileSink(str(values["path"]), name=name, options=dict(nested), **arguments)


def _below(start: str, values: Mapping[str, object]) -> dict[str, Any]:
    return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}
