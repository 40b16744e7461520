"""A writer from settings: what is understood, and what is said of what is not. No session needed."""

from __future__ import annotations

import pytest

from epochal import CassandraSink, Connection, Tuning
from epochal.sinks.files.options import parse_buckets
from epochal.sinks.files.policies.buckets import TimeBucket
from epochal.spark_plugins.conf import writer_from_settings
from epochal.txn.errors import OptionError
from epochal.txn.participant import description_of

GOOD = {
    "spark.epochal.orders.sinks": "archive, copy",
    "spark.epochal.orders.commit": "eager",
    "spark.epochal.orders.max_pending": "3",
    "spark.epochal.orders.recovery_objective": "10 s",
    "spark.epochal.orders.settle_timeout": "2.5",
    "spark.epochal.orders.archive.type": "files",
    "spark.epochal.orders.archive.path": "/data/archive",
    "spark.epochal.orders.archive.format": "csv",
    "spark.epochal.orders.archive.bucket_by": "region, hour(ts, Europe/Berlin)",
    "spark.epochal.orders.archive.options.header": "true",
    "spark.epochal.orders.copy.type": "files",
    "spark.epochal.orders.copy.path": "/data/copy",
    "spark.epochal.payments.sinks": "ignored",
    "spark.app.name": "ignored",
}


def test_every_sink_that_is_named_takes_part() -> None:
    writer = writer_from_settings(GOOD, "orders")

    assert [sink.name for sink in writer.sinks] == ["archive", "copy"]
    assert "format='csv'" in repr(writer.sinks[0])
    assert "eager" in repr(writer)


def test_settings_turn_metrics_on_and_name_the_stream() -> None:
    writer = writer_from_settings(GOOD | {"spark.epochal.orders.metrics": "prometheus://127.0.0.1:0"}, "orders")
    with pytest.raises(OptionError, match=r"spark\.epochal\.orders: metrics='prometheus:9464': must be 'prometheus'"):
        writer_from_settings(GOOD | {"spark.epochal.orders.metrics": "prometheus:9464"}, "orders")

    assert (writer.stream, writer._settings.metrics) == ("orders", "prometheus://127.0.0.1:0")


def test_a_rolling_policy_is_read_and_its_faults_are_told_with_the_others() -> None:
    limits = {"max_bytes": "64 MB", "max_rows": "1000", "max_age": "5 min", "inactivity": "90 s", "merge_below": "4 MB"}
    rolling = {f"spark.epochal.orders.copy.rolling.{name}": value for name, value in limits.items()}

    sink = writer_from_settings(GOOD | rolling, "orders").sinks[1]
    with pytest.raises(OptionError) as caught:
        writer_from_settings(GOOD | {"spark.epochal.orders.copy.rolling.max_age": "soon"}, "orders")

    assert description_of(sink).keeps_open
    assert "spark.epochal.orders.copy.rolling.max_age='soon': a time above 0, such as 30" in str(caught.value)


def test_buckets_are_columns_and_units_of_time() -> None:
    found = parse_buckets(" region , day(ts),hour(at, Europe/Berlin)")

    assert found == ["region", TimeBucket("ts", "day"), TimeBucket("at", "hour", timezone="Europe/Berlin")]


def test_names_that_are_nearly_right_are_told() -> None:
    settings = {
        "spark.epochal.orders.sinks": "archive",
        "spark.epochal.orders.archive.typ": "files",
        "spark.epochal.orders.archive.path": "/data",
    }
    with pytest.raises(OptionError, match=r"orders\.archive\.typ: no option of a sink; did you mean 'type'\?"):
        writer_from_settings(settings, "orders")
    with pytest.raises(OptionError) as caught:
        writer_from_settings({"spark.epochal.orders.sink": "archive"}, "orders")

    assert caught.value.faults == (
        "spark.epochal.orders.sinks: name the sinks, such as 'archive', not spark.epochal.orders.sink",
    )


def test_a_misspelt_unit_of_a_time_bucket_is_told() -> None:
    settings = GOOD | {"spark.epochal.orders.archive.bucket_by": "region, huor(ts)"}
    with pytest.raises(OptionError, match=r"'huor\(ts\)': a time bucket is written as .*; did you mean 'hour'\?"):
        writer_from_settings(settings, "orders")


def test_all_that_is_wrong_comes_in_one_error_with_the_nearest_right_names() -> None:
    settings = {
        "spark.epochal.orders.sinks": "archive,copy,third",
        "spark.epochal.orders.comit": "eager",
        "spark.epochal.orders.max_pending": "many",
        "spark.epochal.orders.archive.type": "files",
        "spark.epochal.orders.archive.path": "/data",
        "spark.epochal.orders.archive.fromat": "csv",
        "spark.epochal.orders.copy.type": "fils",
        "spark.epochal.orders.third.type": "files",
        "spark.epochal.orders.third.max_rows_per_file": "1e3",
        "spark.epochal.orders.arcive.compression": "gzip",
    }

    with pytest.raises(OptionError) as caught:
        writer_from_settings(settings, "orders")

    text = str(caught.value)
    assert "did you mean 'commit'?" in text
    assert "spark.epochal.orders.max_pending='many': must be a whole number" in text
    assert "did you mean 'format'?" in text
    assert "did you mean 'files'?" in text
    assert "spark.epochal.orders.third.path: missing" in text
    assert "spark.epochal.orders.third.max_rows_per_file='1e3': must be a whole number" in text
    assert "did you mean 'archive'?" in text
    assert len(caught.value.faults) == 7


def test_faults_of_the_sink_and_of_the_writer_carry_their_setting() -> None:
    settings = {
        "spark.epochal.orders.sinks": "archive",
        "spark.epochal.orders.commit": "lazy",
        "spark.epochal.orders.archive.type": "files",
        "spark.epochal.orders.archive.path": "/data",
        "spark.epochal.orders.archive.format": "parqet",
        "spark.epochal.orders.archive.bucket_by": "hour(ts, Mars/Olympus)",
    }

    with pytest.raises(OptionError) as caught:
        writer_from_settings(settings, "orders")

    assert "spark.epochal.orders.archive.bucket_by='hour(ts, Mars/Olympus)'" in str(caught.value)
    assert "commit='lazy'" in str(caught.value)


def test_a_stream_that_has_no_sinks_gets_the_nearest_one_that_has() -> None:
    with pytest.raises(OptionError, match="did you mean 'orders'"):
        writer_from_settings(GOOD, "order")


def test_a_sink_cannot_have_the_name_of_a_writers_option() -> None:
    settings = {
        "spark.epochal.s.sinks": "cache",
        "spark.epochal.s.cache.type": "files",
        "spark.epochal.s.cache.path": "/d",
    }

    with pytest.raises(OptionError, match="name of a writer's option"):
        writer_from_settings(settings, "s")


def test_a_delta_sink_takes_all_its_options_from_settings() -> None:
    prefix = "spark.epochal.orders."
    writer = writer_from_settings(
        {
            f"{prefix}sinks": "lake",
            f"{prefix}lake.type": "delta",
            f"{prefix}lake.path": "/data/lake",
            f"{prefix}lake.mode": "upsert",
            f"{prefix}lake.keys": "order_id, line",
            f"{prefix}lake.order_by": "changed_at",
            f"{prefix}lake.delete_when": "op = 'D'",
            f"{prefix}lake.drop": "op",
            f"{prefix}lake.partition_by": "day",
            f"{prefix}lake.properties.delta.checkpointInterval": "20",
        },
        "orders",
    )

    assert repr(writer.sinks[0]) == "DeltaSink('/data/lake', mode='upsert', name='lake')"


def test_a_delta_sinks_faults_name_their_settings() -> None:
    settings = {
        "spark.epochal.orders.sinks": "lake",
        "spark.epochal.orders.lake.type": "delta",
        "spark.epochal.orders.lake.path": "/data/lake",
        "spark.epochal.orders.lake.mode": "upsert",
    }

    with pytest.raises(OptionError, match=r"spark\.epochal\.orders\.lake\.keys: an upsert needs them"):
        writer_from_settings(settings, "orders")


def serving(**given: str) -> dict[str, str]:
    own = {"type": "cassandra", "table": "shop.orders", **{k.replace("__", "."): v for k, v in given.items()}}
    return {"spark.epochal.s.sinks": "serving", **{f"spark.epochal.s.serving.{k}": v for k, v in own.items()}}


@pytest.mark.parametrize(
    "given",
    [
        {"contact_points": "db1, db2", "user": "me", "password": "hunter2", "tls": "true", "in_flight": "8"},
        {
            "connection__contact_points": "db1,db2",
            "connection__user": "me",
            "connection__password": "hunter2",
            "connection__tls": "true",
            "tuning__in_flight": "8",
        },
        {
            "contact_points": "db1,db2",
            "connection__user": "me",
            "user": "me",
            "connection__password": "hunter2",
            "tls": "true",
            "tuning__in_flight": "8",
        },
    ],
    ids=["flat", "grouped", "both"],
)
def test_the_options_of_a_group_may_be_set_with_its_name_or_without(given: dict[str, str]) -> None:
    (sink,) = writer_from_settings(serving(**given), "s").sinks

    assert isinstance(sink, CassandraSink)
    assert sink.cluster == Connection(contact_points=["db1", "db2"], user="me", password="hunter2", tls=True)
    assert sink.tuning == Tuning(in_flight=8)


def test_a_password_that_is_set_twice_is_a_fault_that_shows_neither() -> None:
    with pytest.raises(OptionError) as raised:
        writer_from_settings(serving(user="me", password="hunter2", connection__password="hunter3"), "s")

    where = "spark.epochal.s.serving."
    assert raised.value.faults == (f"{where}connection.password: differs from {where}password; set one of them",)


def test_faults_of_a_group_name_the_settings_as_they_were_spelled() -> None:
    with pytest.raises(OptionError) as raised:
        writer_from_settings(serving(port="0", connection__consistency="SOME", tuning__tasks="0"), "s")

    where = "spark.epochal.s.serving."
    assert [fault.partition("=")[0] for fault in raised.value.faults] == [
        f"{where}port",
        f"{where}connection.consistency",
        f"{where}tuning.tasks",
    ]


def test_totals_and_a_time_to_live_are_set_as_texts() -> None:
    (adding,) = writer_from_settings(serving(mode="accumulate", totals__amount="sum", totals__n="count"), "s").sinks
    (dying,) = writer_from_settings(serving(ttl="3600"), "s").sinks

    assert isinstance(adding, CassandraSink)
    assert adding.totals == {"amount": "sum", "n": "count"}
    assert isinstance(dying, CassandraSink)
    assert dying.lifetime == 3600
