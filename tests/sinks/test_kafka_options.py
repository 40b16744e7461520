"""Options of a Kafka sink: what is refused at once, what the journal gets, and what nobody sees."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from epochal import KafkaSink, OptionError
from epochal.participant import SinkUnavailable
from epochal.sinks.kafka.cluster.endpoint import KEY_PASSWORD, PASSWORD, TLS, USER
from epochal.spark_plugins.conf import writer_from_settings

SERVERS = ["broker1:9092", "broker2:9093"]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (USER, PASSWORD, KEY_PASSWORD, TLS, "EPOCHAL_TRUSTED_HOSTS", "EPOCHAL_CASSANDRA_HOSTS"):
        monkeypatch.delenv(name, raising=False)


def made(topic: Any = "orders", **options: Any) -> KafkaSink:
    return KafkaSink(topic, bootstrap_servers=SERVERS, **options)


def test_all_faults_come_in_one_error() -> None:
    with pytest.raises(OptionError) as raised:
        KafkaSink(
            ["a b", "__consumer_offsets"],
            bootstrap_servers="broker:9092",
            compression="zst",  # type: ignore[arg-type]
            transaction_timeout="1 ms",
            send_rate="fast",
            ca_file="ca.pem",
            user="writer",
            drop=["x"],
            value="x",
        )

    text = str(raised.value)
    assert len(raised.value.faults) == 11
    for part in ("a b", "Kafka's own", "list of host:port", "'zstd'", "1 second", "64 MB", "topic_by", "tls=True"):
        assert part in text
    assert "user and password: give both or neither" in text
    assert "user and password: only with sasl=" in text
    assert "drop: only without value=" in text


@pytest.mark.parametrize("topic", ["..", "", "a/b", "x" * 250, [], [1], ["a", "a"]])
def test_what_cannot_be_a_topic_is_refused(topic: Any) -> None:
    with pytest.raises(OptionError):
        made(topic, topic_by="kind")


def test_a_target_is_the_same_in_every_order_of_its_topics() -> None:
    one, other = made(["b", "a"], topic_by="kind"), made(["a", "b"], topic_by="kind")

    assert one.place == other.place == "a,b"
    assert one.target == other.target == "kafka:broker1:9092,broker2:9093/a,b"


def test_it_is_built_from_settings_and_again_from_its_description() -> None:
    given = {
        "spark.epochal.orders.sinks": "out",
        "spark.epochal.orders.out.type": "kafka",
        "spark.epochal.orders.out.topic": "orders, refunds",
        "spark.epochal.orders.out.topic_by": "kind",
        "spark.epochal.orders.out.bootstrap_servers": "broker1:9092, broker2:9093",
        "spark.epochal.orders.out.key": "customer",
        "spark.epochal.orders.out.transaction_timeout": "10 min",
        "spark.epochal.orders.out.epoch_headers": "true",
        "spark.epochal.orders.out.drop": "kind",
    }
    (sink,) = writer_from_settings(given, "orders").sinks
    assert isinstance(sink, KafkaSink)
    rebuilt = KafkaSink.from_description(sink.describe())

    assert (sink.topics, sink.bootstrap_servers) == (("orders", "refunds"), tuple(SERVERS))
    assert (sink.timeout, sink.epoch_headers, sink.drop, sink.key) == (600, True, ("kind",), "customer")
    assert rebuilt.describe() == sink.describe()
    assert rebuilt.target == sink.target


def test_the_journal_has_what_a_commit_needs_and_no_more() -> None:
    description = made(["a", "b"], topic_by="kind", key="id", partition="p", epoch_headers=True).describe()

    assert not {"key", "partition", "epoch_headers", "staging"} & {*description}
    assert KafkaSink.from_description(description).place == "a,b"


def test_no_secret_is_in_a_description_an_error_or_a_repr() -> None:
    sink = made(user="writer", password="hunter2", sasl="PLAIN", tls=True, key_password="hunter3")
    with pytest.raises(OptionError) as raised:
        made(user="writer", password=" ", sasl="PLAIN")

    for text in (repr(sink), str(sink.describe()), repr(sink.endpoint()), str(raised.value)):
        assert "hunter" not in text
    assert "writer" not in str(sink.describe())


def test_secrets_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER, "writer")
    monkeypatch.setenv(PASSWORD, "hunter2")
    settings = made(sasl="SCRAM-SHA-512", tls=True, ca_file="/ca.pem").endpoint().settings()

    assert settings["security.protocol"] == "sasl_ssl"
    assert (settings["sasl.username"], settings["sasl.password"]) == ("writer", "hunter2")
    assert (settings["sasl.mechanism"], settings["ssl.ca.location"]) == ("SCRAM-SHA-512", "/ca.pem")


@pytest.mark.parametrize(
    ("options", "protocol"),
    [({}, "plaintext"), ({"tls": True}, "ssl"), ({"sasl": "PLAIN"}, "sasl_plaintext")],
)
def test_the_protocol_follows_from_what_is_asked_for(options: dict[str, Any], protocol: str) -> None:
    assert made(**options).endpoint().settings()["security.protocol"] == protocol


def test_brokers_that_only_a_journal_names_get_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER, "writer")
    monkeypatch.setenv(PASSWORD, "hunter2")
    endpoint = made(sasl="PLAIN", tls=True).endpoint(from_journal=True)
    with pytest.raises(SinkUnavailable, match="--trust broker1:9092,broker2:9093"):
        endpoint.with_secrets()
    monkeypatch.setenv("EPOCHAL_TRUSTED_HOSTS", "broker1")
    with pytest.raises(SinkUnavailable, match="--trust broker2:9093,"):
        endpoint.with_secrets()
    monkeypatch.setenv("EPOCHAL_TRUSTED_HOSTS", "broker1,broker2:9093")

    assert endpoint.with_secrets().password == "hunter2"


def test_a_password_is_not_sent_in_plain_text_because_a_journal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER, "writer")
    monkeypatch.setenv(PASSWORD, "hunter2")
    monkeypatch.setenv("EPOCHAL_TRUSTED_HOSTS", "broker1,broker2")
    endpoint = made(sasl="PLAIN").endpoint(from_journal=True)
    with pytest.raises(SinkUnavailable, match="not encrypted"):
        endpoint.with_secrets()
    monkeypatch.setenv(TLS, "off")

    assert endpoint.with_secrets().password == "hunter2"
    assert made().endpoint(from_journal=True).with_secrets().servers == tuple(SERVERS)


def test_secrets_keep_it_from_spark_connect(tmp_path: Path) -> None:
    assert made(staging=str(tmp_path)).connect_faults() == []
    (fault,) = made(user="writer", password="hunter2", sasl="PLAIN").connect_faults()
    assert fault.startswith("user and password: would be sent")
    assert "hunter2" not in fault


def test_a_pickled_sink_is_the_same_sink() -> None:
    sink = made(["a", "b"], topic_by="kind", staging="/staged")

    assert pickle.loads(pickle.dumps(sink)).describe() == sink.describe()


def test_complete_output_is_refused() -> None:
    from epochal import Refused

    with pytest.raises(Refused, match="gives all rows again"):
        made().check_output_mode("complete")
    made().check_output_mode("append")
    made().check_output_mode("update")


def test_a_password_before_a_broker_is_refused_and_not_shown() -> None:
    with pytest.raises(OptionError, match="list of host:port") as raised:
        KafkaSink("orders", bootstrap_servers=["writer:hunter2@broker:9092"])

    assert "hunter2" not in str(raised.value)


def test_lanes_belong_to_epochs_in_parts_and_are_few() -> None:
    for lanes, wrong in ((0, "lanes=0: a whole number"), (65, "from 1 to 64"), (True, "lanes=True")):
        with pytest.raises(OptionError, match=wrong):
            made(transactions="parts", lanes=lanes)
    with pytest.raises(OptionError, match="lanes: only with transactions='parts'"):
        made(lanes=4)
    with pytest.raises(OptionError, match="transactions='two': must be one of 'one', 'parts'"):
        made(transactions="two")

    assert (made().lanes_of_epochs, made(transactions="parts").lanes_of_epochs) == (0, 8)
    assert made(transactions="parts", lanes=3).lanes_of_epochs == 3


def test_lanes_come_from_settings_too() -> None:
    given = {
        "spark.epochal.orders.sinks": "out",
        "spark.epochal.orders.out.type": "kafka",
        "spark.epochal.orders.out.topic": "orders",
        "spark.epochal.orders.out.bootstrap_servers": "broker1:9092",
        "spark.epochal.orders.out.transactions": "parts",
        "spark.epochal.orders.out.lanes": "16",
    }
    (sink,) = writer_from_settings(given, "orders").sinks

    assert isinstance(sink, KafkaSink)
    assert sink.lanes_of_epochs == 16
