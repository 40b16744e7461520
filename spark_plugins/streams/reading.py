"""Which streams a file or Spark's settings describe: names and texts, nothing understood yet.

Every form becomes the same flat texts, so that a stream means the same wherever it is written::

    [streams.orders.sinks.lake]            spark.epochal.orders.sinks      lake
    type = "delta"                         spark.epochal.orders.lake.type  delta

The texts of a stream are kept without ``spark.epochal.<stream>.``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from epochal.sinks.config.options import Faults, nearest
from epochal.spark_plugins.streams import properties_file, toml_file
from epochal.txn.errors import OptionError
from epochal.txn.object_paths import is_s3

PREFIX = "spark.epochal."
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
NAME_RULE = "a letter, then up to 63 letters, digits, '_' or '-'"
SESSION_WIDE = ("spark.epochal.localDisk",)  # settings of epochal that are not a stream's


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the settings of a stream and of its sinks are written where they come from, for messages."""

    stream: str
    sink: str

    def stream_prefix(self, stream: str) -> str:
        """What stands before an option of a stream."""
        return self.stream.format(stream=stream)

    def sink_prefix(self, stream: str, sink: str) -> str:
        """What stands before an option of a sink."""
        return self.sink.format(stream=stream, sink=sink)


AS_SETTINGS = Spelling(f"{PREFIX}{{stream}}.", f"{PREFIX}{{stream}}.{{sink}}.")
AS_TOML = Spelling("streams.{stream}.", "streams.{stream}.sinks.{sink}.")


@dataclass(frozen=True, slots=True)
class Given:
    """What was read: the texts of each stream, and the settings of the session that is to be made."""

    what: str  # the file, or Spark's settings
    streams: Mapping[str, Mapping[str, str]]
    spelling: Spelling
    spark: Mapping[str, str] = field(default_factory=dict)
    is_file: bool = False
    faults: Sequence[str] = ()
    of_session: frozenset[tuple[str, str]] = frozenset()  # streams and options that the session's settings gave

    def only(self, names: Collection[str]) -> Given:
        """The streams that the user named; all if none were. A name that is not there is a fault."""
        if not names:
            return self
        faults = [
            f"--stream {name}: {self.what} has no such stream"
            + (nearest(name, self.streams) or f"; there is {', '.join(map(repr, self.streams)) or 'none'}")
            for name in names
            if name not in self.streams
        ]
        chosen = {name: own for name, own in self.streams.items() if name in names}
        return replace(self, streams=chosen, faults=(*self.faults, *faults))

    def overlaid(self, settings: Mapping[str, str]) -> Given:
        """The same with the session's own settings of these streams, which win: spark-submit's ``--conf``."""
        theirs = {name: own for name, own in _by_stream(settings, {}).items() if name in self.streams}
        merged = {name: {**own, **theirs.get(name, {})} for name, own in self.streams.items()}
        pairs = frozenset((name, option) for name, own in theirs.items() for option in own)
        return replace(self, streams=merged, of_session=pairs)

    @property
    def names_s3(self) -> bool:
        """Whether a stream reads, writes or keeps something on S3."""
        return any(is_s3(text) for own in self.streams.values() for text in own.values())

    def is_in_file(self, stream: str, option: str) -> bool:
        """Whether a file has this text."""
        return self.is_file and (stream, option) not in self.of_session


def from_file(path: str) -> Given:
    """The streams of a TOML or properties file. OptionError if it cannot be read as one."""
    kind = Path(path).suffix
    if kind not in (".toml", ".properties", ".conf"):
        raise OptionError(path, ["is neither FILE.toml nor FILE.properties (or .conf, as spark-defaults.conf)"])
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, PermissionError) as fault:
        raise OptionError(path, [f"cannot be read: {fault.strerror}"]) from None
    except UnicodeDecodeError as fault:
        raise OptionError(path, [f"is not UTF-8: {fault.reason} at byte {fault.start}"]) from None
    faults = Faults(path)
    try:
        if kind == ".toml":
            tables = toml_file.read(text, faults)
            given = Given(path, _checked(tables.streams, faults), AS_TOML, tables.spark, is_file=True)
        else:
            settings = properties_file.read(text, faults)
            given = _from_texts(path, settings, faults)
    except ValueError as fault:
        raise OptionError(path, [str(fault)]) from None
    if not given.streams and not faults.found:
        how = "[streams.NAME]" if kind == ".toml" else f"{PREFIX}NAME.source.format"
        faults.add(f"no stream: begin one with {how}")
    return replace(given, faults=faults.found)


def from_settings(settings: Mapping[str, str]) -> Given:
    """The streams of a session's settings."""
    faults = Faults("Spark's settings")
    streams = _checked(_by_stream(settings, {}), faults)
    if not streams and not faults.found:
        faults.add(f"no stream: begin one with {PREFIX}NAME.source.format, or name a file")
    return Given("Spark's settings", streams, AS_SETTINGS, faults=faults.found)


def _from_texts(path: str, settings: Mapping[str, str], faults: Faults) -> Given:
    others: dict[str, str] = {}
    streams = _checked(_by_stream(settings, others), faults)
    for key in others:
        faults.check(
            key.startswith("spark."), f"{key}: every setting begins with 'spark.'{nearest(key, ['spark.' + key])}"
        )
        if key.startswith(PREFIX) and key not in SESSION_WIDE:
            faults.add(f"{key}: neither {PREFIX}<stream>.<option> nor one of {', '.join(SESSION_WIDE)}")
    return Given(path, streams, AS_SETTINGS, others, is_file=True)


def _by_stream(settings: Mapping[str, str], others: dict[str, str]) -> dict[str, dict[str, str]]:
    """The settings of each stream; `others` gets what belongs to none."""
    streams: dict[str, dict[str, str]] = {}
    for key, text in settings.items():
        stream, dot, option = key.removeprefix(PREFIX).partition(".") if key.startswith(PREFIX) else ("", "", "")
        if dot:
            streams.setdefault(stream, {})[option] = text
        else:
            others[key] = text
    return streams


def _checked(streams: Mapping[str, Mapping[str, str]], faults: Faults) -> dict[str, Mapping[str, str]]:
    """The streams with good names."""
    return {
        name: own
        for name, own in streams.items()
        if faults.check(NAME.fullmatch(name) is not None, f"stream {name!r}: a name is {NAME_RULE}")
    }
