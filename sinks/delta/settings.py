"""The options of a Delta sink as texts, the way Spark's settings and options carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from epochal.sinks.config.texts import parse_bool, parse_names
from epochal.sinks.delta.sink import DeltaSink

PARSERS: Mapping[str, Callable[[str], object]] = {
    "path": str,
    "mode": str,
    "partition_by": parse_names,
    "evolve": str,
    "keys": parse_names,
    "order_by": parse_names,
    "delete_when": str,
    "drop": parse_names,
    "digest": parse_bool,
}
REQUIRED = ("path",)
NESTED = "properties"  # properties.<key> is a property of a new table


def build(name: str, values: Mapping[str, object], nested: Mapping[str, str]) -> DeltaSink:
    """The sink that parsed settings describe."""
    arguments: dict[str, Any] = {key: value for key, value in values.items() if key != "path"}
    return DeltaSink(str(values["path"]), name=name, properties=dict(nested), **arguments)
