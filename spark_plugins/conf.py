"""A writer from Spark's settings alone.

::

    spark.epochal.orders.sinks            archive, lake, serving
    spark.epochal.orders.commit           checkpoint
    spark.epochal.orders.metrics          prometheus://127.0.0.1:9464
    spark.epochal.orders.archive.type     files
    spark.epochal.orders.archive.path     /data/archive/orders
    spark.epochal.orders.archive.format   json
    spark.epochal.orders.archive.bucket_by           region, hour(ordered_at, Europe/Berlin)
    spark.epochal.orders.archive.options.lineSep     ;
    spark.epochal.orders.lake.type        delta
    spark.epochal.orders.lake.path        /data/lake/orders
    spark.epochal.orders.lake.properties.delta.checkpointInterval    10

    spark.epochal.orders.serving.type     cassandra
    spark.epochal.orders.serving.table    shop.orders
    spark.epochal.orders.serving.connection.user     writer

The types are the kinds of sinks that are installed (`epochal.sinks.config.kinds`), the settings their declared options.
All that is wrong comes in one error, with the nearest right names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, cast

from epochal.sinks.config.declaring import SinkOptions
from epochal.sinks.config.kinds import class_of, kinds
from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.config.settings import Settings
from epochal.sinks.config.texts import parse_names
from epochal.spark_plugins.streams.reading import PREFIX
from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.errors import OptionError
from epochal.txn.participant import Participant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def writer_from_conf(spark: SparkSession, stream: str) -> EpochWriter:
    """The writer of a stream that the session's settings describe."""
    return writer_from_settings(dict(spark.conf.getAll), stream)


def writer_from_settings(settings: Mapping[str, str], stream: str) -> EpochWriter:
    """The same from plain texts. Settings that are not under ``spark.epochal.<stream>.`` are passed over."""
    prefix = f"{PREFIX}{stream}."
    faults = Faults(f"settings of {prefix}*")
    own = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    if not parse_names(own.get("sinks", "")):
        streams = {m[1] for key in settings if (m := re.match(r"spark\.epochal\.([^.]+)\.sinks$", key))}
        near = [key for key in own if nearest(key, ["sinks"])]
        hint = f", not {prefix}{near[0]}" if near else nearest(stream, streams)
        faults.add(f"{prefix}sinks: name the sinks, such as 'archive'{hint}")
        for key in near:
            del own[key]
    _, writer = parts_of(own, prefix, faults)
    faults.done()
    assert writer is not None  # else there were faults
    writer.stream = stream
    return writer


def parts_of(
    own: Mapping[str, str],
    prefix: str,
    faults: Faults,
    *,
    sink_prefix: Callable[[str], str] | None = None,
    others: Collection[str] = (),
) -> tuple[list[Participant[DataFrame]], EpochWriter | None]:
    """The sinks and the writer that a stream's own settings describe. What is wrong is noted.

    Then there is no writer, and no sink whose own settings are wrong.
    `prefix` and `sink_prefix` are for messages: how a setting of the stream, or of one of its sinks, is written.
    `others` are options of the stream that are not the writer's: no sink can have their names.
    """
    before = len(faults.found)
    names = parse_names(own.get("sinks", ""))
    prefix_of = sink_prefix or (lambda name: f"{prefix}{name}.")
    sinks = [sink for name in names if (sink := _sink(name, own, prefix_of(name), faults)) is not None]
    settings = Settings(EpochWriter, prefix, faults)
    taken = {key.partition(".")[0] for key in settings.names}
    for name in dict.fromkeys(names):
        faults.check(
            name not in taken,
            f"{prefix}sinks: {name!r} is the name of a writer's option",
        )
        faults.check(name not in others, f"{prefix}sinks: {name!r} is the name of a stream's option")
    of_writer = {key: text for key, text in own.items() if key != "sinks" and key.partition(".")[0] not in names}
    known = [*settings.names, *others, "sinks", *names]
    for key in [key for key in of_writer if key not in settings.names]:
        del of_writer[key]
        # The whole name, or its beginning: a sink's name may be what is misspelt.
        hint = nearest(key, known) or nearest(key.partition(".")[0], [name for name in known if "." not in name])
        kinds_of_options = "of the stream, of the writer nor" if others else "of the writer nor"
        faults.add(f"{prefix}{key}: neither an option {kinds_of_options} of a sink in {prefix}sinks{hint}")
    options = settings.arguments(of_writer, "the writer")
    try:
        writer = EpochWriter(*sinks, **(options or {}))
    except OptionError as error:
        for fault in error.faults if sinks else error.faults[1:]:
            faults.add(f"{prefix.rstrip('.')}: {fault}")
        return sinks, None
    return sinks, writer if len(faults.found) == before else None


def _sink(name: str, own: Mapping[str, str], where: str, faults: Faults) -> Participant[DataFrame] | None:
    given = {k.removeprefix(f"{name}."): v for k, v in own.items() if k.startswith(f"{name}.")}
    near = [key for key in given if nearest(key, ["type"])]
    if "type" not in given and near:
        faults.add(f"{where}{near[0]}: no option of a sink{nearest(near[0], ['type'])}")
        return None
    kind = given.pop("type", "")
    try:
        found = class_of(kind)
    except ModuleNotFoundError as missing:
        faults.add(f"{where}type={kind}: {missing}")
        return None
    if found is None:
        faults.one_of(f"{where}type", kind, kinds())
        return None
    if not (isinstance(found, type) and issubclass(found, SinkOptions)):
        faults.add(f"{where}type={kind}: this kind of sink does not declare its options, so settings cannot give them")
        return None
    arguments = Settings(found, where, faults).arguments(given, f"a {kind} sink")
    if arguments is None:
        return None
    try:
        return cast("Participant[DataFrame]", found(**{**arguments, "name": name}))
    except OptionError as error:
        for fault in error.faults:
            faults.add(f"{where}{fault}")
        return None
