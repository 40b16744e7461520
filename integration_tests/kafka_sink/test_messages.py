"""What becomes of rows: keys, values, headers, partitions and times; and what is refused before an epoch is decided."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import BadRows, KafkaSink, Refused, RollingFileSink
from epochal.participant import Expected, RowDigest, Scope
from epochal.sinks.dead_letters import DeadLetters
from epochal.spark_plugins.jars import JarSet, fetched
from epochal.testing.contract import claim_for
from epochal.testing.servers import KafkaCluster
from epochal.txn.audit_comparison import compare_with_store
from epochal.txn.model import Attempt, Batch, Outcome
from integration_tests.kafka_sink.consuming import Target
from integration_tests.kafka_sink.epochs import LINEAGE, frame, held_at, stage, write

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return str(tmp_path / "staged")


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    found = [(1, "a", 1_700_000_000_000, b"\0x"), (2, None, 1_700_000_000_001, None)]
    return spark.createDataFrame(found, "id long, word string, at long, raw binary").coalesce(1)


def by_id(messages: list[Message]) -> dict[int, Message]:
    return {json.loads(message.value() or b"")["id"]: message for message in messages}


def test_a_row_is_a_json_object_without_nulls_and_has_no_key_by_default(
    target: Target, rows: DataFrame, staging: str
) -> None:
    write(target.sink(staging=staging, drop=["raw"]), 0, rows)
    found = by_id(target.messages())

    assert {number: json.loads(one.value() or b"") for number, one in found.items()} == {
        1: {"id": 1, "word": "a", "at": 1_700_000_000_000},
        2: {"id": 2, "at": 1_700_000_000_001},
    }
    assert [one.key() for one in found.values()] == [None, None]
    assert [one.headers() for one in found.values()] == [None, None]


def test_names_of_columns_are_never_read_as_sql(spark: SparkSession, target: Target, staging: str) -> None:
    # Spark replaces ${...} in a text of SQL, by its settings and by the driver's environment.
    names = ["id", "${env:PATH}", "${spark.app.name}", "a.b", "a`b", "it's"]
    write(target.sink(staging=staging), 0, spark.createDataFrame([(1, *names[1:])], names))

    (message,) = target.messages()
    assert json.loads(message.value() or b"") == {"id": 1} | {name: name for name in names[1:]}


def test_every_part_of_a_message_is_an_expression(target: Target, rows: DataFrame, staging: str) -> None:
    sink = target.sink(
        key="word",
        value="IF(id = 1, to_json(struct(id)), '{\"id\":2}')",
        headers="array(named_struct('key', 'raw', 'value', raw), named_struct('key', 'n', 'value', binary('1')))",
        partition="id - 1",
        timestamp="timestamp_millis(at)",
        epoch_headers=True,
        compression="lz4",
        staging=staging,
    )
    write(sink, 0, rows)
    one, two = (by_id(target.messages())[number] for number in (1, 2))
    ours = [("epochal-lineage", LINEAGE.encode()), ("epochal-epoch", b"0")]

    assert (one.key(), one.value(), one.partition()) == (b"a", b'{"id":1}', 0)
    assert (two.key(), two.value(), two.partition()) == (None, b'{"id":2}', 1)
    assert one.headers() == [("raw", b"\0x"), ("n", b"1"), *ours]
    assert two.headers() == [("raw", None), ("n", b"1"), *ours]
    assert [message.timestamp()[1] for message in (one, two)] == [1_700_000_000_000, 1_700_000_000_001]


def test_keys_go_where_sparks_own_sink_sends_them(
    spark: SparkSession, broker: KafkaCluster, target: Target, staging: str
) -> None:
    other = f"{target.topic}-spark"
    broker.create_topic(other, partitions=2)
    numbers = frame(spark, *range(50))
    write(target.sink(key="CAST(number AS STRING)", staging=staging), 0, numbers)
    plain = numbers.selectExpr("CAST(number AS STRING) AS key", "to_json(struct(*)) AS value").write.format("kafka")
    plain.option("kafka.bootstrap.servers", target.bootstrap).option("topic", other).save()

    places = [{m.key(): m.partition() for m in Target(target.bootstrap, t).messages()} for t in (target.topic, other)]
    assert places[0] == places[1]
    assert {*places[0].values()} == {0, 1}


def test_a_binary_value_is_sent_as_it_is_and_a_null_is_a_tombstone(
    target: Target, rows: DataFrame, staging: str
) -> None:
    write(target.sink(key="CAST(id AS STRING)", value="raw", staging=staging), 0, rows)

    assert {message.key(): message.value() for message in target.messages()} == {b"1": b"\0x", b"2": None}


ORDER = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "word", "type": ["null", "string"], "default": null}]}"""


def test_avro_without_sparks_package_for_it_is_refused_with_its_name(
    spark: SparkSession, target: Target, rows: DataFrame
) -> None:
    (fault,) = target.sink(value="to_avro(struct(id, word))").check_frame(rows)

    assert fault.endswith(f"start with spark.jars.packages=org.apache.spark:spark-avro_2.13:{spark.version}")


@pytest.mark.matrix  # the package is fetched
def test_avro_is_an_expression_too(spark: SparkSession, target: Target, staging: str) -> None:
    from pyspark.sql import Row

    # Of Spark 4.2.0 this one package could not be fetched where this was tried.
    avro = JarSet(
        title="Spark's Avro functions",
        size="0.2 MB",
        packages=("org.apache.spark:spark-avro_2.13:4.1.1",),
        excluded="org.scala-lang*:*,org.tukaani:*,org.slf4j:*,com.*:*,org.apache.spark:spark-tags_2.13",
    )
    session = spark.newSession()
    session.sql(f"ADD JAR '{fetched(avro)[0]}'")
    found = session.createDataFrame([(1, "a"), (2, None)], "id long not null, word string").coalesce(1)
    write(target.sink(value=f"to_avro(struct(id, word), '{ORDER}')", staging=staging), 0, found)
    sent = session.createDataFrame([(message.value(),) for message in target.messages()], "value binary")

    assert {m.value() for m in target.messages()} == {b"\x02\x02\x02a", b"\x04\x00"}
    assert {*sent.selectExpr(f"from_avro(value, '{ORDER}', map()) AS it").select("it.*").collect()} == {
        Row(id=1, word="a"),
        Row(id=2, word=None),
    }
    with pytest.raises(Exception, match="Cannot find field 'other' in Avro schema"):
        stage(target.sink(value=f"to_avro(struct(id, 'x' AS other), '{ORDER}')", staging=staging), 1, found)


def test_rows_choose_among_the_topics_and_all_of_them_are_in_one_epoch(
    spark: SparkSession, broker: KafkaCluster, target: Target, staging: str
) -> None:
    other = Target(target.bootstrap, f"{target.topic}-odd")
    broker.create_topic(other.topic, partitions=3)
    sink = KafkaSink(
        [target.topic, other.topic],
        bootstrap_servers=[target.bootstrap],
        topic_by=f"IF(number % 2 = 1, '{other.topic}', '{target.topic}')",
        value="CAST(number AS STRING)",
        partition="IF(number = 5, 2, NULL)",
        staging=staging,
    )
    write(sink, 0, frame(spark, *range(6)))

    assert sorted(message.value() or b"" for message in target.messages()) == [b"0", b"2", b"4"]
    assert sorted(message.value() or b"" for message in other.messages()) == [b"1", b"3", b"5"]
    assert {message.partition() for message in other.messages() if message.value() == b"5"} == {2}
    with pytest.raises(BadRows, match="some rows cannot be messages: its topic is not"):
        stage(replaced(sink, topic_by="'elsewhere'"), 1, frame(spark, 5))


def replaced(sink: KafkaSink, **options: Any) -> KafkaSink:
    """The sink with other options."""
    return dataclasses.replace(sink, **options)


def test_messages_are_in_the_order_of_the_rows(spark: SparkSession, target: Target, staging: str) -> None:
    sink = target.sink(value="CAST(number AS STRING)", partition="0", staging=staging)
    numbers = [*range(300, 0, -1)]
    write(sink, 0, frame(spark, *numbers))
    write(sink, 1, frame(spark, 0))

    assert [int(message.value() or b"") for message in target.messages()] == [*numbers, 0]


# What is refused.


@pytest.fixture
def strict(broker: KafkaCluster) -> Iterator[Target]:
    """A topic that takes little: small messages with keys, of the last hour."""
    name = f"strict-{uuid.uuid4().hex}"
    limits = {"max.message.bytes": "2000", "cleanup.policy": "compact", "message.timestamp.after.max.ms": "1000"}
    broker.create_topic(name, partitions=2, settings=limits)
    yield Target(broker.bootstrap, name)
    broker.delete_topic(name)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("too large", {"value": "IF(id = 1, repeat('x', 2000), 'x')"}, "larger than max.message.bytes of its topic (2000)"),
    (
        "headers too large",
        {"headers": "array(named_struct('key','a','value',CAST(repeat('x', 2000) AS BINARY)))"},
        "larger",
    ),
    ("no key", {"key": "IF(id = 1, NULL, 'k')"}, "it has no key, and its topic is compacted"),
    ("no partition", {"partition": "IF(id = 1, 2, 0)"}, "its topic has no such partition (2 partitions)"),
    ("negative partition", {"partition": "-id"}, "its topic has no such partition"),
    ("a header without a key", {"headers": "array(named_struct('key', word, 'value', raw))"}, "a header has no key"),
    ("before 1970", {"timestamp": "timestamp_millis(id - 1)"}, "its time is not after the beginning of 1970"),
    (
        "in the future",
        {"timestamp": "timestamp_millis(at + 10000000000000)"},
        "further in the future than message.timest",
    ),
]


@pytest.mark.parametrize(("options", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_row_that_cannot_be_a_message_is_refused_before_the_epoch_is_decided(
    strict: Target, rows: DataFrame, staging: str, options: dict[str, Any], reason: str
) -> None:
    sink = strict.sink(**{"key": "CAST(id AS STRING)", "staging": staging, **options})
    with pytest.raises(BadRows, match="rows cannot be messages") as refused:
        stage(sink, 0, rows)

    assert reason in str(refused.value)
    assert strict.messages(committed=False) == []


def test_the_largest_message_that_is_not_refused_can_be_sent(spark: SparkSession, strict: Target, staging: str) -> None:
    sizes = [*range(1700, 2000, 4)]
    made = frame(spark, *sizes).selectExpr("number", "repeat('x', int(number)) AS value")
    sink = strict.sink(key="CAST(number AS STRING)", value="value", epoch_headers=False, staging=staging)
    letters = sink.rejected(made)
    refused = {row.number for row in letters.collect()}
    write(sink, 0, made.where(made.number < min(refused)))

    assert refused
    assert min(refused) > 1800
    assert len(strict.messages()) == len([size for size in sizes if size < min(refused)])


def test_dead_letters_and_messages_are_the_input(strict: Target, rows: DataFrame, staging: str, tmp_path: Path) -> None:
    letters = RollingFileSink(str(tmp_path / "letters"), format="json", name="letters")
    sink = strict.sink(key="word", dead_letters=letters, staging=staging)
    beside = DeadLetters(sink, letters)
    attempt, handle = stage(sink, 0, rows.drop("raw"))
    claim_for(beside, LINEAGE)
    staged = beside.stage(Batch(attempt=attempt, rows=rows.drop("raw"), offsets="0"))
    sink.commit(attempt, handle)
    beside.commit(attempt, staged.handle)
    (file,) = (tmp_path / "letters").glob("*.json")

    assert [message.key() for message in strict.messages()] == [b"a"]
    assert json.loads(file.read_text()) == {
        "id": 2,
        "at": 1_700_000_000_001,
        "_error": "it has no key, and its topic is compacted",
    }


def test_faults_of_a_frame_come_together_and_before_anything_is_written(target: Target, rows: DataFrame) -> None:
    sink = target.sink(key="id", value="wrod", headers="word", partition="word", timestamp="at", topic_by="id")

    faults = sink.check_frame(rows)
    assert [fault.partition("=")[0] for fault in faults] == [
        "topic_by",
        "key",
        "value",
        "headers",
        "partition",
        "timestamp",
    ]
    assert "it is bigint, and must be string or binary; cast it" in faults[1]
    assert "wrod" in faults[2]
    assert target.sink(key="word", drop=["raw"]).check_frame(rows) == []


def test_a_topic_that_is_missing_is_refused_and_not_made(broker: KafkaCluster, rows: DataFrame) -> None:
    sink = KafkaSink("nowhere", bootstrap_servers=[broker.bootstrap])
    for call in (lambda: sink.check_frame(rows), lambda: sink.open(LINEAGE)):
        with pytest.raises(Refused, match=r"there is no topic 'nowhere'. Nothing was written. Create it first"):
            call()


def test_an_epoch_that_a_transaction_cannot_take_is_refused_with_what_to_do(
    spark: SparkSession, target: Target, staging: str
) -> None:
    sink = target.sink(transaction_timeout="1 s", send_rate="10 kB", staging=staging)
    write(sink, 0, frame(spark, *range(20)))
    with pytest.raises(Refused, match=r"100 messages with .* bytes: at send_rate='10 kB'.*maxOffsetsPerTrigger"):
        stage(sink, 1, frame(spark, *range(100)))


def test_a_timeout_that_the_brokers_do_not_allow_is_refused_at_the_start(
    spark: SparkSession, target: Target, staging: str
) -> None:
    with pytest.raises(Refused, match=r"INVALID_TRANSACTION_TIMEOUT.*shorter transaction_timeout, or a longer"):
        stage(target.sink(transaction_timeout="1 h", staging=staging), 0, frame(spark, 1))


def test_a_ledger_topic_that_would_lose_marks_is_refused(
    spark: SparkSession, broker: KafkaCluster, target: Target, staging: str
) -> None:
    name = f"ledger-{uuid.uuid4().hex}"
    broker.create_topic(name, partitions=1)
    with pytest.raises(Refused, match=r"one partition and cleanup.policy=compact"):
        stage(target.sink(ledger_topic=name, staging=staging), 0, frame(spark, 1))


# The audit.


def audited(sink: KafkaSink, epochs: dict[int, RowDigest], *, fast: bool = False) -> Any:
    expected = Expected(since=0, epochs=epochs, through=max(epochs))
    return compare_with_store(expected, sink.audit(Scope(lineage=LINEAGE, expected=expected, fast=fast)))


def staged_digests(sink: KafkaSink, spark: SparkSession, *sizes: int) -> dict[int, RowDigest]:
    found = {}
    for epoch, size in enumerate(sizes):
        attempt = Attempt(LINEAGE, epoch, 1)
        if epoch == 0:
            stage(sink, 0, frame(spark, 0))
        staged = sink.stage(Batch(attempt=attempt, rows=frame(spark, *range(size)), offsets=f"{epoch:064x}"))
        sink.commit(attempt, staged.handle)
        found[epoch] = RowDigest(staged.rows, staged.digest)
    return found


def test_the_audit_proves_every_epoch_and_sees_what_is_missing(
    spark: SparkSession, target: Target, staging: str
) -> None:
    sink = target.sink(digest=True, key="word", staging=staging)
    epochs = staged_digests(sink, spark, 5, 0, 7)
    exact = audited(sink, epochs)
    wrong = audited(sink, {**epochs, 2: RowDigest(8, epochs[2].digest)})
    missing = audited(sink, {**epochs, 3: RowDigest(1, epochs[2].digest)})

    assert exact.verdict.value == "exact", exact
    assert exact.found == epochs[0] + epochs[2]
    assert wrong.verdict.value == missing.verdict.value == "differs"
    assert audited(sink, epochs, fast=True).verdict.value == "consistent"


def test_the_audit_tells_others_messages_apart_if_ours_name_their_epoch(
    spark: SparkSession, broker: KafkaCluster, target: Target, staging: str, tmp_path: Path
) -> None:
    found = {}
    for headers in (False, True):
        topic = Target(target.bootstrap, f"{target.topic}-{headers}")
        broker.create_topic(topic.topic)
        sink = topic.sink(epoch_headers=headers, staging=f"{staging}-{headers}")
        attempt, handle = stage(sink, 0, frame(spark, 1, 2))
        with held_at("before-send", tmp_path / "gate", (sink, attempt, handle)) as commit:
            broker.send(topic.topic, ["foreign"])
        assert commit.ended() is Outcome.COMMITTED
        write(sink, 1, frame(spark, 3))
        found[headers] = audited(sink, {0: RowDigest(2), 1: RowDigest(1)})

    assert found[True].verdict.value == "exact"
    assert found[False].verdict.value == "not provable"
    assert "epoch 0: others write to the topic too" in found[False].unproven[0]
