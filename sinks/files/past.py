"""A target as an epoch left it: the files of its manifest up to that epoch, read as they were written.

Each start records in the journal how to read what it writes (`Reading`): the columns, and those of the writer's options
that a reader needs. So there is a schema before the first file, and text formats need no guess. Files of starts that
wrote differently are read apart and united by the names of their columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from epochal.sinks.files import manifest
from epochal.sinks.files.compaction import live, records
from epochal.sinks.files.compaction.records import CompactionDone, Joined
from epochal.sinks.files.formats import joining
from epochal.sinks.files.layout import Layout, ending_of
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.options import FileOptions
from epochal.sinks.spark.values import quoted
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.register import Lineages, Register
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn.errors import CutGone
from epochal.txn.model import Json, canonical
from epochal.txn.past import NoPast, SinkAt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEY = "reading"  # in a sink's description
BY_THEMSELVES = ("parquet", "orc", "avro")  # formats whose files say which columns they have
ENDINGS = {"txt": "text", **{name: name for name in ("parquet", "orc", "avro", "json", "csv", "xml")}}
_QUOTES = ("quote", "escape", "chartoescapequoteescaping")
_TIMES = ("dateformat", "timestampformat", "timestampntzformat", "timezone", "locale", "encoding", "charset")
# The writer's options that a reader needs too. Others are for the writer alone, or might be secrets.
SHARED = {
    "csv": ("sep", "delimiter", "header", "nullvalue", "emptyvalue", "linesep", *_QUOTES, *_TIMES),
    "json": ("linesep", *_TIMES),
    "text": ("linesep",),
    "xml": ("rowtag", "attributeprefix", "valuetag", "nullvalue", "arrayelementname", *_TIMES),
}
# A row that does not fit its columns is an error, not a row of nulls. Values of CSV may have several lines.
READERS = {
    "csv": {"mode": "FAILFAST", "multiLine": "true"},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
}


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read what one start writes."""

    format: str
    columns: Mapping[str, Any] | None = None  # a schema as Spark has it in JSON
    options: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()  # columns that are not in the files but in the names of their folders
    encrypted: bool = False

    def to_json(self) -> dict[str, Json]:
        value: dict[str, Json] = {"columns": None if self.columns is None else dict(self.columns)}
        if self.options:
            value["options"] = dict(self.options)
        if self.folders:
            value["folders"] = list(self.folders)
        return {**value, "encrypted": True} if self.encrypted else value

    @staticmethod
    def of(settings: Mapping[str, Json]) -> Reading:
        """The reading in a description; of older versions only the format."""
        format_ = str(settings.get("format", "parquet"))
        match settings.get(KEY):
            case {"columns": dict(columns), **rest}:
                options, folders = rest.get("options", {}), rest.get("folders", [])
                return Reading(
                    format_,
                    columns,
                    {str(key): str(value) for key, value in options.items()} if isinstance(options, dict) else {},
                    tuple(map(str, folders)) if isinstance(folders, list) else (),
                    bool(rest.get("encrypted")),
                )
        return Reading(format_)


def reading_of(options: FileOptions, schema: StructType) -> Reading:
    """How to read what a sink writes of frames with these columns."""
    shared = SHARED.get(options.format, ())
    kept = {name: value for name, value in options.writer_options.items() if name.lower() in shared}
    columns = json.loads(schema.json())
    return Reading(options.format, _plain(columns), kept, tuple(options.folder_columns), options.encrypts)


@dataclass(frozen=True)
class Past:
    """One target at one epoch of a stream."""

    files: SinkFiles
    layout: Layout
    at: SinkAt

    def pin(self) -> dict[str, Json]:
        """The number and the bytes of the files, and the streams whose rows they hold."""
        self._check_readings()
        entries, others = self._entries()
        listed = [file for entry in entries for file in entry.files]
        lineages: list[Json] = list(dict.fromkeys(entry.lineage for entry in entries))
        pin: dict[str, Json] = {"files": len(listed), "bytes": sum(length for _, length in listed), "streams": lineages}
        return {**pin, "others": list(others)} if others else pin

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows. CutGone if files of the epoch were joined with later ones, or removed."""
        from pyspark.errors import AnalysisException

        self._check_readings()
        groups: dict[bytes, tuple[Reading, list[str]]] = {}
        for entry in self._entries()[0]:
            for path, _ in entry.files:
                reading = self._reading(entry, path)
                keys = [part.partition("=")[0] for part in path.split("/")[:-1]] if reading.folders else []
                group = canonical([reading.format, reading.to_json(), list(keys)])
                groups.setdefault(group, (reading, []))[1].append(path)
        try:
            frames = [self._load(spark, reading, paths) for reading, paths in groups.values()]
        except AnalysisException as fault:
            if "PATH_NOT_FOUND" not in str(fault):
                raise
            raise CutGone(
                f"{self.layout.target}: a file that its manifest lists was removed while it was read, by `epochal "
                "compact` or by another program. Read again; to compact beside readers give it --grace"
            ) from fault
        newest = Reading.of(self.at.description.settings)
        if newest.columns is not None:
            frames.append(spark.createDataFrame([], _schema(newest.columns)))
        whole = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        names = [field_["name"] for field_ in newest.columns["fields"]] if newest.columns is not None else []
        return whole.select(*(quoted(name) for name in dict.fromkeys([*names, *whole.columns])))

    def _load(self, spark: SparkSession, reading: Reading, paths: Sequence[str]) -> DataFrame:
        reader = spark.read.options(**joining.STRICT).format(joining.source_of(reading.format))
        reader = reader.options(**{**READERS.get(reading.format, {}), **reading.options})
        if reading.columns is not None:
            reader = reader.schema(_schema(reading.columns))
        elif reading.format in joining.MERGED:
            reader = reader.option("mergeSchema", "true")
        if reading.folders:  # else Spark takes no column from the names of folders
            reader = reader.option("basePath", spark_path(self.layout.target))
        frame = reader.load([spark_path(self.layout.published(path)) for path in paths])
        if reading.columns is None:
            return frame
        return frame.select(*(quoted(field_["name"]) for field_ in reading.columns["fields"]))

    def _entries(self) -> tuple[list[PublishedEpoch], list[str]]:
        """The epochs of the cut with the files that hold their rows now; and other streams that write here."""
        register = Register(self.files, self.layout.lineages).read()
        query = self.at.lineage.partition("~")[0]
        replaced = _replaced(register, self.at.lineage, query)
        # Compactions are read before manifests: the epochs whose files they joined are then all in the manifests.
        done = records.read(self.files, self.layout).done
        entries, others = [], set()
        for entry in manifest.published(self.files, self.layout.target):
            if entry.lineage == self.at.lineage:
                if entry.epoch <= self.at.epoch:
                    entries.append(entry)
            elif entry.lineage in replaced or _is_earlier(entry.lineage, self.at.lineage, query):
                entries.append(entry)  # it can write no more: all of it was there before
            else:
                others.add(entry.lineage)
        kept, crossing = self._compactions(done, {(entry.lineage, entry.entry) for entry in entries})
        self._check_replaced(entries, crossing)
        return live.after(entries, kept), sorted(others)

    def _compactions(
        self, done: Iterable[CompactionDone], entries: set[tuple[str, str]]
    ) -> tuple[list[CompactionDone], list[Joined]]:
        """The compactions within the cut; and the joined files that hold rows of later epochs too."""
        kept, crossing = [], []
        for compaction in done:
            within = tuple(one for one in compaction.files if (one.lineage, one.entry) in entries)
            kept.append(CompactionDone(compaction.number, within, compaction.at))
            crossing += [one for one in compaction.files if one not in within]
        return kept, crossing

    def _check_replaced(self, entries: Sequence[PublishedEpoch], crossing: Sequence[Joined]) -> None:
        """Files of the cut that were joined with later ones can be read only while their grace lasts."""
        own = {path for entry in entries for path, _ in entry.files}
        replaced = {path: one for one in crossing for path, _ in one.replaced if path in own}
        lengths = self.files.lengths([self.layout.published(path) for path in replaced])
        for (path, one), length in zip(replaced.items(), lengths, strict=True):
            if length is None:
                raise CutGone(
                    f"{self.layout.target}: epoch {self.at.epoch} can no longer be read: `epochal compact` has joined "
                    f"{path} with files of later epochs, up to {int(one.entry[:12])}, and removed it. Take a cut of "
                    "that epoch or later; to compact beside readers give it --grace"
                )

    def _reading(self, entry: PublishedEpoch, path: str) -> Reading:
        """How an epoch's file was written: as its start says, or the first one after it that the journal still has."""
        format_ = next((ENDINGS[part] for part in ending_of(path).split(".") if part in ENDINGS), "")
        own = [Reading.of(one.settings) for number, one in self.at.starts.items() if number >= entry.generation]
        known = [*(own if entry.lineage == self.at.lineage else ()), *self._readings()]
        fitting = [one for one in known if one.format == format_]
        if format_ not in BY_THEMSELVES:  # starts of older versions have recorded nothing: later ones may have
            fitting.sort(key=lambda one: one.columns is None)
        return fitting[0] if fitting else Reading(format_ or known[0].format)

    def _readings(self) -> list[Reading]:
        """How the newest start reads, then the others."""
        return [Reading.of(one.settings) for one in (self.at.description, *reversed([*self.at.starts.values()]))]

    def _check_readings(self) -> None:
        newest = self._readings()[0]
        if any(one.encrypted for one in self._readings()):
            raise NoPast("its files are encrypted, and the journal holds no keys: read what epochal.published() lists")
        if newest.columns is None and newest.format not in BY_THEMSELVES:
            raise NoPast(
                f"the journal does not say which columns its {newest.format} files have, because an older epochal "
                "started the query: start it once more"
            )
        if newest.columns is None and not any(entry.files for entry in self._entries()[0]):
            raise NoPast("it has no files yet, and the journal does not say which columns they will have")


def _replaced(register: Lineages, lineage: str, query: str) -> set[str]:
    """The streams whose place a stream took, or an earlier incarnation of it, and those whose place these took."""
    left = [lineage, *(other for other in register.claims if _is_earlier(other, lineage, query))]
    found: set[str] = set()
    while left:
        claim = register.claims.get(left.pop())
        taken = set(claim.replaces) - found - {lineage} if claim is not None else set()
        found |= taken
        left += taken
    return found


def _is_earlier(other: str, lineage: str, query: str) -> bool:
    """Whether a lineage is an earlier incarnation of a query."""
    return other.partition("~")[0] == query and _incarnation(other) < _incarnation(lineage)


def _incarnation(lineage: str) -> int:
    number = lineage.partition("~")[2]
    return int(number) if number.isdecimal() else 1


def _schema(columns: Mapping[str, Any]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(dict(columns))


def _plain(value: Any) -> Any:
    """A schema without its columns' metadata, which readers do not need."""
    if isinstance(value, dict):
        return {key: {} if key == "metadata" else _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
