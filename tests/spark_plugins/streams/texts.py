"""A stream without faults, as texts, for tests that break it."""

from __future__ import annotations

from pathlib import Path

from epochal.spark_plugins.streams.definition import StreamDefinition, define
from epochal.spark_plugins.streams.reading import Given, from_file

GOOD = """\
[spark]
sql.shuffle.partitions = 8
"speculation.interval" = "200ms"

[streams.orders]
checkpoint = "checkpoints/orders"
sql = "SELECT * FROM source"
trigger = "available_now"

[streams.orders.source]
format = "json"
path = "incoming"
schema = "id BIGINT, region STRING, ts TIMESTAMP"
options = { maxFilesPerTrigger = 1, multiLine = true, "kafka.group.id" = "orders" }

[streams.orders.watermark]
column = "ts"
delay = "10 minutes"

[streams.orders.sinks.archive]
type = "files"
path = "archive/orders"
bucket_by = ["region", "hour(ts, Europe/Berlin)"]
rolling.max_age = "5 min"

[streams.orders.sinks.lake]
type = "delta"
path = "lake/orders"
"""

# The same, as spark-submit takes it.
GOOD_PROPERTIES = """\
# session
spark.sql.shuffle.partitions = 8
spark.speculation.interval: 200ms

spark.epochal.orders.checkpoint   checkpoints/orders
spark.epochal.orders.sql          SELECT * \\
                                  FROM source
spark.epochal.orders.trigger      available_now
spark.epochal.orders.source.format  json
spark.epochal.orders.source.path    incoming
spark.epochal.orders.source.schema  id BIGINT, region STRING, ts TIMESTAMP
spark.epochal.orders.source.options.maxFilesPerTrigger  1
spark.epochal.orders.source.options.multiLine   true
spark.epochal.orders.source.options.kafka.group.id   orders
spark.epochal.orders.watermark.column  ts
spark.epochal.orders.watermark.delay   10 minutes
spark.epochal.orders.sinks           archive, lake
spark.epochal.orders.archive.type    files
spark.epochal.orders.archive.path    archive/orders
spark.epochal.orders.archive.bucket_by  region, hour(ts, Europe/Berlin)
spark.epochal.orders.archive.rolling.max_age  5 min
spark.epochal.orders.lake.type   delta
spark.epochal.orders.lake.path   lake/orders
"""


def read(folder: Path, text: str, name: str = "streams.toml") -> Given:
    """What a file with this text describes."""
    (folder / name).write_text(text)
    return from_file(str(folder / name))


def faults(folder: Path, text: str, name: str = "streams.toml") -> list[str]:
    """Everything that its texts show to be wrong."""
    given = read(folder, text, name)
    return [*given.faults, *(fault for stream in define(given) for fault in stream.faults)]


def defined(folder: Path, text: str, name: str = "streams.toml") -> StreamDefinition:
    """Its only stream."""
    (stream,) = define(read(folder, text, name))
    return stream
