"""How files of each format become one, in the staging folder of a compaction; the files themselves are only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from epochal.sinks.files.compaction.choosing import Group, LiveFile, Unfit
from epochal.sinks.files.compaction.inspecting import Facts, Inspector
from epochal.sinks.files.compaction.joinable import BY_BLOCKS, BY_BYTES, Format
from epochal.sinks.files.formats import avro, joining
from epochal.sinks.files.layout import Layout, ending_of
from epochal.sinks.storage.hadoop import session_for
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import Entry, join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

HEAD = 1 << 16  # a header of CSV is not longer
MARKS = (b"\xff\xfe", b"\xfe\xff")  # what a file in UTF-16 or UTF-32 begins with
# Spark writes timestamps as its settings say, which are not those of the stream: go by what the files have.
TIMESTAMPS = {
    " int96 ": "INT96",
    "(TIMESTAMP(MICROS,true))": "TIMESTAMP_MICROS",
    "(TIMESTAMP(MILLIS,true))": "TIMESTAMP_MILLIS",
}


@dataclass(frozen=True, slots=True)
class Staged:
    """A joined file: its name in the staging folder, and its length."""

    name: str
    bytes: int


@dataclass
class Joiners:
    """Joins files of one target. Spark is started when Parquet, ORC or Avro is met, and not before."""

    files: SinkFiles
    layout: Layout
    header: bool | None  # whether CSV files have one; None if nobody has said
    _headers: dict[tuple[str, str, str], tuple[str, bytes]] = field(default_factory=dict)
    _facts: dict[str, Facts] = field(default_factory=dict)
    _inspector: Inspector | None = None

    def key(self, file: LiveFile, format_: Format) -> str:
        """What a file must have in common with those it is joined to; Unfit if it cannot be joined."""
        if format_.name in BY_BYTES.values():
            return self._key_of_bytes(file, format_)
        if file.path not in self._facts:
            self._facts[file.path] = self._inspect().facts(format_.name, self._path(file))
        return self._facts[file.path].key

    def join(self, groups: Sequence[Group], folder: str) -> list[Staged | Unfit]:
        """One file for each group, durable, or why there is none."""
        made: dict[int, Staged | Unfit] = {}
        to_merge: list[int] = []
        for number, group in enumerate(groups):
            if group.format.name in BY_BYTES.values():
                made[number] = self._join_bytes(group, folder, str(number))
            elif group.format.name in BY_BLOCKS:
                made[number] = self._join_blocks(group, folder, str(number))
            else:
                to_merge.append(number)
        for place, job in enumerate(_jobs(groups, to_merge)):
            merged = self._merge([groups[number] for number in job], folder, f"merged-{place}")
            made.update(zip(job, merged, strict=True))
        return [made[number] for number in range(len(groups))]

    def _key_of_bytes(self, file: LiveFile, format_: Format) -> str:
        if format_.name == "csv" and self.header is None:
            raise Refused(
                f"{self._path(file)}: say whether the CSV files of this target have a header, which a joined file has "
                "once: --header yes or --header no. Nothing was joined"
            )
        if format_.name == "csv" and self.header:
            return self._header(file, format_).decode("latin-1")
        if format_.codec is None and self.files.head(self._path(file), 2) in MARKS:
            raise Unfit("begins with a byte order mark, which must not stand inside a file")
        return ""

    def _header(self, file: LiveFile, format_: Format) -> bytes:
        if format_.codec is not None:
            raise Unfit("compressed, with a header: its header cannot be taken off")
        line, end, _ = self.files.head(self._path(file), HEAD).partition(b"\n")
        if not end or line.startswith(MARKS) or line.count(b'"') % 2:
            raise Unfit("its header does not end with its first line")
        shelf = (file.lineage, file.bucket, ending_of(file.path))
        path, known = self._headers.setdefault(shelf, (file.path, line + end))
        if known != line + end:
            raise Refused(
                f"{self._path(file)} does not begin with the same line as {join(self.layout.target, path)}: either "
                "they have no header (--header no), or their columns differ. Nothing was joined"
            )
        return known

    def _join_bytes(self, group: Group, folder: str, name: str) -> Staged:
        skip = len(group.key.encode("latin-1"))
        path, expected = join(folder, name), group.bytes - skip * (len(group.files) - 1)
        failpoints.hit("before-compact-stage")
        # Copied, also on HDFS: joined in place, the old files would be gone before readers know the new one.
        self.files.join_copies(path, [self._path(file) for file in group.files], skip=skip)
        failpoints.hit("after-compact-stage")
        if (found := self.files.length(path)) != expected:
            raise OSError(f"{path}: joined to {found} bytes instead of {expected}: files were changed meanwhile")
        return Staged(name, expected)

    def _join_blocks(self, group: Group, folder: str, name: str) -> Staged:
        """Avro's blocks go from file to file as they are, under the same schema and codec."""
        failpoints.hit("before-compact-stage")
        sources = [spark_path(self._path(file)) for file in group.files]
        avro.Joiner(self._session()).join(spark_path(join(folder, name)), sources)
        failpoints.hit("after-compact-stage")
        return self._synced(folder, name)

    def _merge(self, groups: Sequence[Group], folder: str, name: str) -> list[Staged | Unfit]:
        format_, schema = groups[0].format, groups[0].key
        spark = self._session().newSession()  # whose settings nobody else has
        for sign, setting in TIMESTAMPS.items():
            if format_.name == "parquet" and sign in schema:
                spark.conf.set("spark.sql.parquet.outputTimestampType", setting)

        def writer(frame: DataFrame) -> DataFrameWriter:
            written = frame.write.format(format_.name).mode("overwrite").option("maxRecordsPerFile", 0)
            return written.option("compression", str(format_.codec))

        paths = [[self._path(file) for file in group.files] for group in groups]
        failpoints.hit("before-compact-stage")
        joining.merge(spark, format_.name, paths, writer, join(folder, name), published=True)
        failpoints.hit("after-compact-stage")
        found: dict[int, list[Entry]] = {}
        for entry in self.files.walk(join(folder, name)):
            place, _, file = entry.name.partition("/")
            if place.startswith(joining.GROUP) and not file.startswith(("_", ".")):
                found.setdefault(int(place.partition("=")[2]), []).append(entry)
        return [self._checked(group, folder, name, found.get(n, [])) for n, group in enumerate(groups)]

    def _checked(self, group: Group, folder: str, name: str, found: list[Entry]) -> Staged | Unfit:
        """What Spark wrote, if it has the rows and the schema of its sources."""
        expected = sum(self._facts[file.path].rows or 0 for file in group.files)
        if len(found) != 1:
            return Unfit(f"Spark made {len(found)} files of {len(group.files)} instead of one")
        staged = f"{name}/{found[0].name}"
        facts = self._inspect().facts(group.format.name, join(folder, staged))
        if facts.rows != expected:
            return Unfit(f"{expected} rows were merged to {facts.rows}")
        if facts.key != group.key:
            return Unfit("merged by Spark they would have another schema; its settings here are not the stream's")
        return self._synced(folder, staged)

    def _synced(self, folder: str, name: str) -> Staged:
        self.files.sync_all([join(folder, name)], within=self.layout.target)
        return Staged(name, self.files.length(join(folder, name)) or 0)

    def _inspect(self) -> Inspector:
        if self._inspector is None:
            self._inspector = Inspector(self._session())
        return self._inspector

    def _session(self) -> SparkSession:
        spark = session_for(self.layout.target)
        if spark is None:
            raise Refused(
                f"{self.layout.target}: Parquet, ORC and Avro are joined by Spark: start a SparkSession first"
            )
        return spark

    def _path(self, file: LiveFile) -> str:
        return join(self.layout.target, file.path)


def _jobs(groups: Sequence[Group], numbers: Sequence[int]) -> list[list[int]]:
    """Groups that one job of Spark's can merge: of one schema, and with no name twice."""
    jobs: list[tuple[tuple[str, str], set[str], list[int]]] = []
    for number in numbers:
        kind, names = (groups[number].ending, groups[number].key), {file.name for file in groups[number].files}
        for known, taken, job in jobs:
            if known == kind and taken.isdisjoint(names):
                taken.update(names)
                job.append(number)
                break
        else:
            jobs.append((kind, names, [number]))
    return [job for _, _, job in jobs]
