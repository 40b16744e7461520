"""A writer from Spark's settings alone.

::

    spark.epochal.orders.sinks            archive, lake
    spark.epochal.orders.commit           checkpoint
    spark.epochal.orders.archive.type     files
    spark.epochal.orders.archive.path     /data/archive/orders
    spark.epochal.orders.archive.format   json
    spark.epochal.orders.archive.bucket_by           region, hour(ordered_at, Europe/Berlin)
    spark.epochal.orders.archive.options.lineSep     ;
    spark.epochal.orders.lake.type        delta
    spark.epochal.orders.lake.path        /data/lake/orders
    spark.epochal.orders.lake.properties.delta.checkpointInterval    10

All that is wrong comes in one error, with the nearest right names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.config.texts import parse_bool, parse_int, parse_names
from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.errors import OptionError
from epochal.txn.participant import Participant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "spark.epochal."


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number of seconds") from None


WRITER_PARSERS: Mapping[str, Callable[[str], object]] = {
    "commit": str,
    "journal": str,
    "max_pending": parse_int,
    "settle_timeout": _seconds,
    "adopt": parse_names,
    "new": parse_names,
    "cache": parse_bool,
}


@dataclass(frozen=True, slots=True)
class SinkKind:
    """How a kind of sink is built from settings."""

    parsers: Mapping[str, Callable[[str], object]]
    required: tuple[str, ...]
    nested: str
    build: Callable[[str, Mapping[str, object], Mapping[str, str]], Participant[DataFrame]]


KINDS = ("cassandra", "delta", "files")


def kind_of(name: str) -> SinkKind:
    """A kind of sink. Loaded when it is asked for: each needs packages of its own extra."""
    settings: Any = import_module(f"epochal.sinks.{name}.settings")
    return SinkKind(settings.PARSERS, settings.REQUIRED, settings.NESTED, settings.build)


def writer_from_conf(spark: SparkSession, stream: str) -> EpochWriter:
    """The writer of a stream that the session's settings describe."""
    return writer_from_settings(dict(spark.conf.getAll), stream)


def writer_from_settings(settings: Mapping[str, str], stream: str) -> EpochWriter:
    """The same from plain texts. Settings that are not under ``spark.epochal.<stream>.`` are passed over."""
    prefix = f"{PREFIX}{stream}."
    faults = Faults(f"settings of {prefix}*")
    own = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    names = parse_names(own.pop("sinks", ""))
    if not names:
        streams = {m[1] for key in settings if (m := re.match(r"spark\.epochal\.([^.]+)\.sinks$", key))}
        faults.add(f"{prefix}sinks: name the sinks, such as 'archive'{nearest(stream, streams)}")
    sinks = [sink for name in names if (sink := _sink(name, own, prefix, faults)) is not None]
    for name in names:
        faults.check(name not in WRITER_PARSERS, f"{prefix}sinks: {name!r} is the name of a writer's option")
    writer_options: dict[str, Any] = {}
    known = [*WRITER_PARSERS, "sinks", *names]
    for key, text in own.items():
        head = key.partition(".")[0]
        if head in names:
            continue
        if key in WRITER_PARSERS:
            _parse(prefix, key, text, WRITER_PARSERS[key], writer_options, faults)
        else:
            hint = nearest(head, known)
            faults.add(f"{prefix}{key}: neither an option of the writer nor of a sink in {prefix}sinks{hint}")
    try:
        writer = EpochWriter(*sinks, **writer_options)
    except OptionError as error:
        for fault in error.faults if sinks else error.faults[1:]:
            faults.add(f"{prefix.rstrip('.')}: {fault}")
    faults.done()
    return writer


def _sink(name: str, own: Mapping[str, str], prefix: str, faults: Faults) -> Participant[DataFrame] | None:
    given = {k.removeprefix(f"{name}."): v for k, v in own.items() if k.startswith(f"{name}.")}
    where = f"{prefix}{name}."
    kind_name = given.pop("type", "")
    if kind_name not in KINDS:
        faults.one_of(f"{where}type", kind_name, KINDS)
        return None
    try:
        kind = kind_of(kind_name)
    except ModuleNotFoundError as missing:
        faults.add(f"{where}type={kind_name}: {missing}")
        return None
    values: dict[str, object] = {}
    nested: dict[str, str] = {}
    sound = True
    for key, text in given.items():
        if key.startswith(f"{kind.nested}."):
            nested[key.removeprefix(f"{kind.nested}.")] = text
        elif key in kind.parsers:
            sound &= _parse(where, key, text, kind.parsers[key], values, faults)
        else:
            sound = faults.check(False, f"{where}{key}: no option of a {kind_name} sink{nearest(key, kind.parsers)}")
    for key in kind.required:
        sound &= faults.check(key in given, f"{where}{key}: missing")
    if not sound:
        return None
    try:
        return kind.build(name, values, nested)
    except OptionError as error:
        for fault in error.faults:
            faults.add(f"{where}{fault}")
        return None


def _parse(
    where: str, key: str, text: str, parser: Callable[[str], object], into: dict[str, Any], faults: Faults
) -> bool:
    try:
        into[key] = parser(text)
    except OptionError as error:
        return faults.check(False, f"{where}{key}={text!r}: {'; '.join(error.faults)}")
    except ValueError as error:
        return faults.check(False, f"{where}{key}={text!r}: {error}")
    return True
