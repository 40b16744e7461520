"""A TOML file of streams as flat texts.

::

    [spark]                            # settings of the session: spark.sql.shuffle.partitions
    sql.shuffle.partitions = 8

    [streams.orders]
    checkpoint = "checkpoints/orders"

    [streams.orders.source]
    format = "json"

    [streams.orders.sinks.lake]        # the sink lake: lake.type, lake.path, and "lake" in sinks
    type = "delta"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.config.texts import ListText, NumberText

SPARK, STREAMS, SINKS = "spark", "streams", "sinks"
_SINK = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")  # as a sink's name, without dots: they separate settings
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a file."""

    spark: Mapping[str, str]
    streams: Mapping[str, Mapping[str, str]]


def read(text: str, faults: Faults) -> Tables:
    """The tables of a TOML file; what is wrong with them is noted. ValueError if it is not TOML."""
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ValueError(f"is not TOML: {fault}") from None
    for name in whole:
        faults.check(
            name in (SPARK, STREAMS),
            f"{name}: the tables are [spark] and [streams.NAME]{nearest(name, (SPARK, STREAMS))}",
        )
    return Tables(
        _spark(_table(whole.get(SPARK, {}), SPARK, faults), faults),
        {
            name: _stream(_table(stream, f"{STREAMS}.{name}", faults), f"{STREAMS}.{name}", faults)
            for name, stream in _table(whole.get(STREAMS, {}), STREAMS, faults).items()
        },
    )


def _spark(table: Mapping[str, Any], faults: Faults) -> dict[str, str]:
    found = _flat(table, SPARK, faults)
    for key in found:
        if key.startswith("spark.spark."):
            faults.add(f"{key}: leave out the second 'spark.': the table has it")
        elif key.startswith("spark.epochal.") and key.count(".") > 2:
            faults.add(f"{key}: write the settings of a stream into [streams.{key.split('.')[2]}]")
    return found


def _stream(table: Mapping[str, Any], where: str, faults: Faults) -> dict[str, str]:
    """The texts of a stream. The tables of its sinks are a level higher as settings: `sinks` lists their names."""
    own = dict(table)
    sinks = own.pop(SINKS, {})
    if not isinstance(sinks, dict) or any(not isinstance(sink, dict) for sink in sinks.values()):
        faults.add(f"{where}.{SINKS}: give each sink a table with its name, such as [{where}.{SINKS}.archive]")
        sinks = {}
    texts = {key.removeprefix(f"{where}."): text for key, text in _flat(own, where, faults).items()}
    for name, sink in sinks.items():
        place = f"{where}.{SINKS}.{name}"
        if not faults.check(
            _SINK.fullmatch(name) is not None,
            f"{place}: a sink's name is a letter, then up to 63 letters, digits, '_' or '-'",
        ):
            continue
        if name in own:
            faults.add(f"{place}: {where}.{name} has the same name; give the sink another one")
            continue
        texts |= {f"{name}.{key.removeprefix(f'{place}.')}": text for key, text in _flat(sink, place, faults).items()}
    names = [name for name in sinks if _SINK.fullmatch(name)]
    return {**texts, SINKS: ", ".join(names)} if names else texts


def _flat(table: Mapping[str, Any], where: str, faults: Faults) -> dict[str, str]:
    """The values of a table and of those in it, each under the names on the way, with dots between them."""
    found: dict[str, str] = {}
    for name, value in table.items():
        key = f"{where}.{name}"
        inner = _flat(value, key, faults) if isinstance(value, dict) else {key: _text(value, key, faults)}
        for twice in inner.keys() & found.keys():
            faults.add(f"{twice}: given twice, with dots in a name and with tables")
        found |= {key: text for key, text in inner.items() if text is not None}
    return found


def _text(value: object, key: str, faults: Faults) -> str | None:
    """A value as a Spark setting has it; None if there is no such text, which is noted."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return NumberText(str(value).lower())
    if isinstance(value, int | float):
        return NumberText(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        commas = [one for one in value if _COMMA_OUTSIDE.search(one)]
        faults.check(
            not commas, f"{key}: {', '.join(map(repr, commas))} has a comma, which separates the texts of a list"
        )
        return ListText(", ".join(value))
    kind = "a list of texts" if isinstance(value, list) else "a text, a number, true or false, or a list of texts"
    faults.add(f"{key}: must be {kind}; a {_kind(value)} is none")
    return None


def _kind(value: object) -> str:
    if not isinstance(value, list):
        return type(value).__name__
    return "list of tables" if any(isinstance(one, dict) for one in value) else "list of other values"


def _table(value: object, where: str, faults: Faults) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    faults.add(f"{where}: must be a table, such as [{where}]" + (".NAME" if where == STREAMS else ""))
    return {}
