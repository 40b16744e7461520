"""The kinds of sinks, by their names in Spark settings and journals.

Another package adds a kind with an entry point of `GROUP`: its name is the kind, its value the sink's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from epochal.txn.model import Json
from epochal.txn.participant import Participant

GROUP = "epochal.sinks"
# For a checkout that is not installed and so has no entry points. Each is loaded when it is needed: it needs the
# packages of its own extra.
BUILT_IN = {
    "cassandra": "epochal.sinks.cassandra:CassandraSink",
    "delta": "epochal.sinks.delta:DeltaSink",
    "files": "epochal.sinks.files:RollingFileSink",
    "kafka": "epochal.sinks.kafka:KafkaSink",
    "postgres": "epochal.sinks.postgres:PostgresSink",
    "directory": "epochal.testing.directory:DirectoryParticipant",
}


class SinkClass(Protocol):
    """What an entry point of `GROUP` names.

    A class that derives from `epochal.sinks.config.declaring.SinkOptions` can be built from Spark settings too.
    """

    def __call__(self, *given: Any, **options: Any) -> Participant[Any]: ...

    def from_description(self, description: Mapping[str, Json], /) -> Participant[Any]:
        """The participant that a journal describes."""


def kinds() -> list[str]:
    """The names of all kinds that are installed."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def class_of(kind: str) -> SinkClass | None:
    """The class of a kind of sink; None if there is no such kind."""
    for point in entry_points(group=GROUP, name=kind):
        return cast("SinkClass", point.load())
    if kind not in BUILT_IN:
        return None
    module, _, name = BUILT_IN[kind].partition(":")
    return cast("SinkClass", getattr(import_module(module), name))
