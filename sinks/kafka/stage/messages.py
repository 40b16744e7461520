"""Rows as messages, in SQL: Spark's own code encodes and checks them, and no row passes through Python.

A message has the columns below. `_error` says why a row cannot be one, without a word of the row itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from epochal.participant import digest_text, marked, quoted
from epochal.sinks.kafka.cluster.clients import UNLIMITED, Topic
from epochal.sinks.kafka.layout import HEADERS, KEY, PARTITION, TIME, TOPIC, VALUE
from epochal.sinks.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame

SIZE, ERROR = "_size", "_error"
LARGEST, HIGH, LOW = "largest", "high", "low"  # HIGH and LOW: halves of a digest
# More than a batch of one message has around key, value and headers.
AROUND, AROUND_HEADER = 128, 16
BYTES_OF_LINEAGE = 2 * (AROUND_HEADER + 64)
TYPES = {
    "topic_by": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("tinyint", "smallint", "int", "bigint"),
    "timestamp": ("timestamp",),
}


def faults_of(frame: DataFrame, options: KafkaOptions) -> list[str]:
    """What is wrong with a frame's columns. Spark analyses the expressions, and runs nothing."""
    from pyspark.errors import PySparkException

    faults = [
        f"{name}: drop= names it, and it is not in the frame" for name in options.drop if name not in frame.columns
    ]
    for name, types in TYPES.items():
        expression = getattr(options, name)
        if expression is None:
            continue
        try:
            found = frame.selectExpr(expression).schema.fields
        except PySparkException as fault:
            faults.append(f"{name}={expression!r}: {_told(fault, frame)}")
            continue
        kind = found[0].dataType.simpleString() if len(found) == 1 else "several columns"
        if kind not in types:
            faults.append(f"{name}={expression!r}: it is {kind}, and must be {' or '.join(types)}; cast it")
    if options.value is None and not columns_of(frame, options):
        faults.append("value: the frame has no columns for a JSON object")
    taken = [name for name in frame.columns if name in (TOPIC, KEY, VALUE, HEADERS, PARTITION, TIME, ERROR, SIZE)]
    faults += [f"{name}: epochal's own name; rename the column" for name in taken]
    return faults


def _told(fault: PySparkException, frame: DataFrame) -> str:
    if "AVRO_NOT_LOADED" in (fault.getCondition() or ""):
        package = f"org.apache.spark:spark-avro_2.13:{frame.sparkSession.version}"
        return f"Spark's functions for Avro are in a package of their own; start with spark.jars.packages={package}"
    return str(fault.getMessage()).partition("\n")[0]


def columns_of(frame: DataFrame, options: KafkaOptions) -> list[str]:
    """The columns of the JSON object."""
    return [name for name in frame.columns if name not in options.drop]


def checked(frame: DataFrame, options: KafkaOptions, topics: Mapping[str, Topic], now_ms: int) -> DataFrame:
    """The frame's own columns, and those of messages with the reason why a row cannot be one, or null."""
    from pyspark.sql import functions as f

    # As text where it can be: each call to build a column costs a fraction of a millisecond, in every epoch.
    if options.value is None:
        value = _json_of(columns_of(frame, options)).cast("binary")
    else:
        value = f.expr(options.value).cast("binary")
    made = {TOPIC: f.expr(f"'{options.topics[0]}'" if options.topic_by is None else options.topic_by), VALUE: value}
    made |= {KEY: f.expr("CAST(NULL AS BINARY)" if options.key is None else options.key).cast("binary")}
    if options.headers is not None:
        made[HEADERS] = f.expr(options.headers)
    if options.partition is not None:
        made[PARTITION] = f.expr(options.partition).cast("bigint")
    if options.timestamp is not None:
        made[TIME] = f.unix_millis(f.expr(options.timestamp))
    reasons = list(_reasons(options, topics, now_ms))
    each = ", ".join(f"IF({wrong}, '{reason}', NULL)" for wrong, reason in reasons)
    error = f"CASE WHEN {' OR '.join(f'({wrong})' for wrong, _ in reasons)} THEN concat_ws('; ', {each}) END"
    sized = frame.withColumns(made).selectExpr("*", f"{_size(options)} AS {SIZE}")
    return sized.selectExpr("*", f"{error} AS {ERROR}")


def _json_of(columns: list[str]) -> Column:
    """A JSON object of columns."""
    from pyspark.sql import functions as f

    names = ", ".join(map(quoted, columns))
    if "${" not in names:
        return f.expr(f"to_json(struct({names}), map('ignoreNullFields', 'true'))")
    # In a text, Spark would replace it by a setting or by a variable of the environment, between backquotes too.
    structure = f.struct(*(f.col(quoted(name)) for name in columns))
    return f.to_json(structure, {"ignoreNullFields": "true"})


def messages(checked_rows: DataFrame, options: KafkaOptions) -> DataFrame:
    """The columns that are staged: no more than are sent.

    Without dead letters a row that cannot be a message ends the job.
    """
    names = [TOPIC] if len(options.topics) > 1 else []
    names += [KEY]
    names += [HEADERS] if options.headers is not None else []
    names += [PARTITION] if options.partition is not None else []
    names += [TIME] if options.timestamp is not None else []
    value = VALUE
    if options.dead_letters is None:
        reason = marked(f"some rows cannot be messages: ', {ERROR}, '. Filter them out, or give dead_letters=")
        fail = f"raise_error(concat('{reason}'))"
        value = f"IF({ERROR} IS NULL, {VALUE}, {fail}) AS {VALUE}"
    return checked_rows.selectExpr(*names, value)


def digest_sums() -> list[Column]:
    """Aggregates of staged messages that add up to their digest."""
    from pyspark.sql import functions as f

    lengths = [f.coalesce(f.octet_length(f.col(name)), f.lit(-1)).cast("string") for name in (KEY, VALUE)]
    parts = [f.coalesce(f.col(name), f.lit(b"")) for name in (KEY, VALUE)]
    hashed = f.sha2(f.concat(f.concat_ws(",", *lengths, f.lit("")).cast("binary"), *parts), 256)
    halves = ((HIGH, 1), (LOW, 9))
    return [f.sum(f.conv(f.substring(hashed, at, 8), 16, 10).cast("bigint")).alias(name) for name, at in halves]


def largest(options: KafkaOptions) -> list[Column]:
    """An aggregate of staged messages: the bytes of the largest."""
    from pyspark.sql import functions as f

    return [f.max(f.expr(_size(options))).alias(LARGEST)]


def digest_of(found: Mapping[str, Any]) -> str:
    """The digest that the aggregates have come to."""
    return digest_text((int(found.get(HIGH) or 0) << 32) + int(found.get(LOW) or 0))


def around(options: KafkaOptions) -> int:
    """How many bytes of a batch a message takes at most, uncompressed, besides its key, value and headers."""
    return AROUND + (BYTES_OF_LINEAGE if options.epoch_headers else 0)


def _size(options: KafkaOptions) -> str:
    """How many bytes of a batch a message takes at most, uncompressed."""
    size = " + ".join([f"{around(options)}L", *(f"coalesce(octet_length({part}), 0)" for part in (KEY, VALUE))])
    if options.headers is None:
        return size
    header = " + ".join(f"coalesce(octet_length(one.{part}), 0)" for part in ("key", "value"))
    return f"{size} + coalesce(aggregate({HEADERS}, 0L, (total, one) -> total + {header} + {AROUND_HEADER}), 0)"


def _reasons(options: KafkaOptions, topics: Mapping[str, Topic], now_ms: int) -> Iterable[tuple[str, str]]:
    """When a row cannot be a message, and why. No character in the names of topics has a meaning in a text of SQL."""
    known = [topics[name] for name in options.topics]

    def of_topic(value: Mapping[str, int | bool]) -> str:
        """What holds for the topic of a row; null if that is not one of the sink's."""
        if options.topic_by is None:
            return str(value[known[0].name])
        cases = " ".join(f"WHEN '{topic.name}' THEN {value[topic.name]}" for topic in known)
        return f"CASE {TOPIC} {cases} END"

    if options.topic_by is not None:
        among = ", ".join(f"'{topic.name}'" for topic in known)
        names = ", ".join(topic.name for topic in known)
        yield f"NOT coalesce({TOPIC} IN ({among}), false)", f"its topic is not {names}"
    limits = {topic.name: topic.max_bytes for topic in known}
    yield (
        f"{SIZE} > {of_topic(limits)}",
        f"it is larger than max.message.bytes of its topic ({_spelled(limits.values())})",
    )
    if any(topic.compacted for topic in known):
        compacted = of_topic({topic.name: topic.compacted for topic in known})
        yield f"{compacted} AND {KEY} IS NULL", "it has no key, and its topic is compacted"
    if options.partition is not None:
        counts = {topic.name: topic.partitions for topic in known}
        outside = f"{PARTITION} < 0 OR {PARTITION} >= {of_topic(counts)}"
        yield outside, f"its topic has no such partition ({_spelled(counts.values())} partitions)"
    if options.headers is not None:
        nameless = f"exists({HEADERS}, one -> one IS NULL OR one.key IS NULL)"
        yield f"coalesce({nameless}, false)", "a header has no key"
    if options.timestamp is not None:
        # The client takes 0 for no time.
        yield f"{TIME} <= 0", "its time is not after the beginning of 1970"
        ahead = {topic.name: now_ms + topic.ahead_ms if topic.takes_time else UNLIMITED for topic in known}
        if min(ahead.values()) < UNLIMITED:
            yield (
                f"{TIME} > {of_topic(ahead)}",
                "its time is further in the future than message.timestamp.after.max.ms of its topic allows",
            )


def _spelled(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(numbers)))
