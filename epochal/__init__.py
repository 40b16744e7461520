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
    from epochal.spark_plugins.causes import cause_of
    from epochal.spark_plugins.cuts import Cut, CutFrames, CutSink, cut, read_cut
    from epochal.spark_plugins.jars import delta_settings
    from epochal.spark_plugins.kafka import kafka_settings
    from epochal.spark_plugins.local_disk import local_disk_settings
    from epochal.spark_plugins.query import EpochQuery
    from epochal.spark_plugins.session import session
    from epochal.spark_plugins.state_policy import StatePolicy
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
    "NotSettled",
    "OffsetsChanged",
    "OptionError",
    "Participant",
    "PublishedEpoch",
    "Refused",
    "Rewound",
    "Rolling",
    "RollingFileSink",
    "SettlingFailed",
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
    "session",
]

if any(find_spec(package) is None for package in ("numpy", "pyarrow")):  # which the Cassandra sink loads
    # `from epochal import *` would fail, and with it every program that needs no Cassandra. By name they are found, and
    # say what to install.
    __all__[:] = [name for name in __all__ if name not in ("CassandraSink", "Connection", "Tuning")]

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
    "session": "epochal.spark_plugins.session",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'epochal' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
