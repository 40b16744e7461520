"""What an EpochWriter can be made of, and the public face."""

from __future__ import annotations

import subprocess
import sys

import pytest

import epochal
from epochal import CassandraSink, EpochWriter, OptionError, RollingFileSink


def test_all_faults_of_a_writer_come_in_one_error() -> None:
    with pytest.raises(OptionError) as caught:
        EpochWriter(
            RollingFileSink("a"),
            RollingFileSink("b"),
            "not a sink",  # type: ignore[arg-type]  # that is the point
            commit="egaer",  # type: ignore[arg-type]  # that is the point
            max_pending=0,
            settle_timeout=-1,
            adopt="41",
            new="x@y",
            journal="",
            observers=["not a function"],  # type: ignore[list-item]  # that is the point
            metrics="statsd",
        )

    text = str(caught.value)
    assert len(caught.value.faults) == 10
    assert "observers: a list of functions that take an event, not ['not a function']" in text
    assert "metrics='statsd': must be 'prometheus', 'prometheus://127.0.0.1:9464' or 'opentelemetry'" in text
    assert "'files' is the name of several" in text
    assert "did you mean 'eager'?" in text
    assert "'not a sink' is not a sink" in text


def test_a_writer_needs_a_sink() -> None:
    with pytest.raises(OptionError, match="give one at least"):
        EpochWriter()


def test_a_class_is_no_sink() -> None:
    with pytest.raises(OptionError, match=r"sinks: RollingFileSink is a class; give a sink that was made of it"):
        EpochWriter(RollingFileSink)  # type: ignore[arg-type]  # that is the point


def test_dead_letters_of_dead_letters_are_refused() -> None:
    last = RollingFileSink("last", name="last")
    letters = CassandraSink("shop.bad", name="bad", dead_letters=last)

    with pytest.raises(OptionError, match=r"CassandraSink\('shop.bad'.* has dead_letters= of its own"):
        EpochWriter(CassandraSink("shop.orders", dead_letters=letters))


def test_the_public_names_are_these() -> None:
    assert sorted(epochal.__all__) == [
        "BadRows",
        "Bucket",
        "CassandraSink",
        "Complete",
        "Connection",
        "Cut",
        "CutFrames",
        "CutGone",
        "CutSink",
        "DataLost",
        "DeltaSink",
        "EpochQuery",
        "EpochWriter",
        "EpochalError",
        "FencedOut",
        "ForeignTarget",
        "JournalCorrupt",
        "JournalLost",
        "KafkaSink",
        "NotSettled",
        "OffsetsChanged",
        "OptionError",
        "Participant",
        "PostgresSink",
        "PublishedEpoch",
        "Refused",
        "Rewound",
        "Rolling",
        "RollingFileSink",
        "SettlingFailed",
        "SparkGone",
        "StatePolicy",
        "TimeBucket",
        "Tuning",
        "TwoDrivers",
        "TwoJournals",
        "UnsupportedQuery",
        "__version__",
        "cause_of",
        "cut",
        "delta_settings",
        "epoch_version",
        "kafka_settings",
        "local_disk_settings",
        "published",
        "read_cut",
        "rocksdb_settings",
        "s3_settings",
        "session",
        "standby",
    ]
    assert all(hasattr(epochal, name) for name in epochal.__all__)


@pytest.mark.parametrize(
    ("package", "sink", "store", "extra"),
    [
        ("numpy", "CassandraSink", "Cassandra's packages are", "cassandra"),
        ("confluent_kafka", "KafkaSink", "Kafka's package is", "kafka"),
        ("psycopg", "PostgresSink", "PostgreSQL's packages are", "postgres"),
        ("deltalake", "epoch_version", "Delta's packages are", "delta"),
    ],
)
def test_everything_is_imported_without_the_packages_of_a_store(
    package: str, sink: str, store: str, extra: str
) -> None:
    code = f"""
import sys
sys.modules["{package}"] = None  # as if it was not installed
from epochal import *
assert "EpochWriter" in globals() and "DeltaSink" in globals()
assert "{sink}" not in globals()
try:
    from epochal import {sink}
except ModuleNotFoundError as missing:
    print(missing)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    message = f"{store} not installed ({package} is missing): pip install 'epochal[{extra}]'"
    assert run.stdout.strip() == message, run.stderr


def test_importing_epochal_does_not_load_spark() -> None:
    code = "import sys, epochal.testing; print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])"

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"
