"""A stream as it is configured: its source, its query, its writer. Whatever is wrong is noted, all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from epochal.sinks.config.declaring import declarations
from epochal.sinks.config.options import Faults
from epochal.sinks.config.settings import Settings
from epochal.sinks.config.texts import parse_names
from epochal.sinks.dead_letters import with_dead_letters
from epochal.spark_plugins.conf import parts_of
from epochal.spark_plugins.streams import secrets
from epochal.spark_plugins.streams.options import Source, StreamOptions, Watermark
from epochal.spark_plugins.streams.reading import Given
from epochal.spark_plugins.writer import EpochWriter
from epochal.txn.errors import OptionError
from epochal.txn.participant import Participant

T = TypeVar("T")
OWN = tuple(declarations(StreamOptions))
GROUPS = ("source", "watermark")


@dataclass(frozen=True)
class StreamDefinition:
    """One stream. A part that is None is at fault, or not given: a watermark need not be.

    For checks there is what is known of a stream at fault: its own options as `texts`, and the `sinks` that could be
    made.
    """

    name: str
    prefix: str  # what stands before a setting's name in messages
    source: Source | None
    watermark: Watermark | None
    options: StreamOptions | None
    writer: EpochWriter | None
    secrets: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()
    sinks: tuple[Participant[Any], ...] = ()  # with those that take what others reject
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def checkpoint(self) -> str | None:
        return self.options.checkpoint if self.options is not None else self.texts.get("checkpoint")

    @property
    def sql(self) -> str | None:
        return self.options.sql if self.options is not None else self.texts.get("sql")

    @property
    def output_mode(self) -> str | None:
        """Spark's output mode; None if another was given."""
        mode = self.options.output_mode if self.options is not None else self.texts.get("output_mode", "append")
        return mode if mode in ("append", "update", "complete") else None

    @property
    def query_name(self) -> str:
        """The query's name in Spark."""
        return (self.options.query_name if self.options is not None else None) or self.name

    def whole(self) -> tuple[Source, StreamOptions, EpochWriter]:
        """The parts of a stream without faults."""
        if self.source is None or self.options is None or self.writer is None:
            raise OptionError(f"stream {self.name!r}", self.faults)
        return self.source, self.options, self.writer


def define(given: Given, redaction: str = secrets.DEFAULT) -> list[StreamDefinition]:
    """All streams."""
    return [_define(given, name, redaction) for name in given.streams]


def _define(given: Given, name: str, redaction: str) -> StreamDefinition:
    faults = Faults(name)
    resolved = secrets.resolve(given, name, faults, redaction)
    prefix = given.spelling.stream_prefix(name)
    grouped = {group: _below(resolved.own, group) for group in GROUPS}
    rest = {key: text for key, text in resolved.own.items() if key.partition(".")[0] not in (*OWN, *GROUPS)}
    own = {key: text for key, text in resolved.own.items() if key.partition(".")[0] in OWN}
    for group in GROUPS:
        faults.check(
            group not in resolved.own, f"{prefix}{group}: has options of its own, such as {_example(prefix, group)}"
        )
    options = _made(StreamOptions, own, prefix, "a stream", faults)
    source = _made(Source, grouped["source"], f"{prefix}source.", "a source", faults)
    watermark = None
    if grouped["watermark"]:
        watermark = _made(Watermark, grouped["watermark"], f"{prefix}watermark.", "a watermark", faults)
    if not parse_names(rest.get("sinks", "")):
        faults.add(f"{prefix}sinks: missing; a stream needs one sink at least")
    sink_prefix: Callable[[str], str] = lambda sink: given.spelling.sink_prefix(name, sink)  # noqa: E731
    sinks, writer = parts_of(rest, prefix, faults, sink_prefix=sink_prefix, others=(*OWN, *GROUPS))
    if writer is not None:
        writer.stream = name
    known = writer.sinks if writer is not None else with_dead_letters(tuple(sinks))
    return StreamDefinition(
        name, prefix, source, watermark, options, writer, resolved.secrets, faults.found, known, own
    )


def _example(prefix: str, group: str) -> str:
    return f"{prefix}{group}.{'format' if group == 'source' else 'column'}"


def _below(own: Mapping[str, str], group: str) -> dict[str, str]:
    return {key.removeprefix(f"{group}."): text for key, text in own.items() if key.startswith(f"{group}.")}


def _made(kind: type[T], given: Mapping[str, str], where: str, noun: str, faults: Faults) -> T | None:
    """An object of declared options; None if they are at fault."""
    arguments: dict[str, Any] | None = Settings(kind, where, faults).arguments(given, noun)
    if arguments is None:
        return None
    try:
        return kind(**arguments)
    except OptionError as error:
        for fault in error.faults:
            faults.add(f"{where}{fault}")
        return None
