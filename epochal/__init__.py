"""Exactly-once sinks for PySpark Structured Streaming.

Importing this loads neither Spark nor any store: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from epochal._version import __version__
from epochal.txn.errors import (
    BadRows,
    CutGone,
    DataLost,
    EpochalError,
    FencedOut,
    ForeignTarget,
    JournalCorrupt,
    JournalLost,
    NotSettled,
    OffsetsChanged,
    OptionError,
    Refused,
    Rewound,
    SettlingFailed,
    SparkGone,
    TwoDrivers,
    TwoJournals,
    UnsupportedQuery,
)
from epochal.txn.participant import Participant

if TYPE_CHECKING:
    from epochal.sinks.cassandra import CassandraSink, Connection, Tuning
    from epochal.sinks.delta import DeltaSink
    from epochal.sinks.delta.reading import epoch_version
    from epochal.sinks.files import Bucket, Complete, PublishedEpoch, Rolling, RollingFileSink, TimeBucket, published
    from epochal.sinks.kafka import KafkaSink
    from epochal.sinks.postgres import PostgresSink
    from epochal.spark_plugins.causes import cause_of
    from epochal.spark_plugins.cuts import Cut, CutFrames, CutSink, cut, read_cut
    from epochal.spark_plugins.jars import delta_settings
    from epochal.spark_plugins.kafka import kafka_settings
    from epochal.spark_plugins.local_disk import local_disk_settings
    from epochal.spark_plugins.query import EpochQuery
    from epochal.spark_plugins.s3 import s3_settings
    from epochal.spark_plugins.session import session
    from epochal.spark_plugins.standby.standing_by import standby
    from epochal.spark_plugins.state_policy import StatePolicy
    from epochal.spark_plugins.stateful import rocksdb_settings
    from epochal.spark_plugins.writer import EpochWriter

__all__ = [
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

# What the modules of some names load. Without it `from epochal import *` would fail, and with it every program that
# needs no such store. By name they are found, and say what to install.
_LOADED = {
    ("numpy", "pyarrow"): ("CassandraSink", "Connection", "Tuning"),
    ("deltalake",): ("epoch_version",),  # a DeltaSink can be named without it
    ("confluent_kafka",): ("KafkaSink",),
    ("psycopg",): ("PostgresSink",),
}
for _packages, _names in _LOADED.items():
    if any(find_spec(package) is None for package in _packages):
        __all__[:] = [name for name in __all__ if name not in _names]

_HOMES = {
    "Bucket": "epochal.sinks.files",
    "CassandraSink": "epochal.sinks.cassandra",
    "Connection": "epochal.sinks.cassandra",
    "Complete": "epochal.sinks.files",
    "Cut": "epochal.spark_plugins.cuts",
    "CutFrames": "epochal.spark_plugins.cuts",
    "CutSink": "epochal.spark_plugins.cuts",
    "DeltaSink": "epochal.sinks.delta",
    "EpochQuery": "epochal.spark_plugins.query",
    "EpochWriter": "epochal.spark_plugins.writer",
    "KafkaSink": "epochal.sinks.kafka",
    "PostgresSink": "epochal.sinks.postgres",
    "PublishedEpoch": "epochal.sinks.files",
    "Rolling": "epochal.sinks.files",
    "RollingFileSink": "epochal.sinks.files",
    "StatePolicy": "epochal.spark_plugins.state_policy",
    "TimeBucket": "epochal.sinks.files",
    "Tuning": "epochal.sinks.cassandra",
    "cause_of": "epochal.spark_plugins.causes",
    "cut": "epochal.spark_plugins.cuts",
    "delta_settings": "epochal.spark_plugins.jars",
    "epoch_version": "epochal.sinks.delta.reading",
    "kafka_settings": "epochal.spark_plugins.kafka",
    "local_disk_settings": "epochal.spark_plugins.local_disk",
    "published": "epochal.sinks.files",
    "read_cut": "epochal.spark_plugins.cuts",
    "rocksdb_settings": "epochal.spark_plugins.stateful",
    "s3_settings": "epochal.spark_plugins.s3",
    "session": "epochal.spark_plugins.session",
    "standby": "epochal.spark_plugins.standby.standing_by",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'epochal' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
