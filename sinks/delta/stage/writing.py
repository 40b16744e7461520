"""The first phase: Spark's own writer writes the epoch's files to a place that no log entry names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.sinks.delta.handle import NewFile, StagedFile
from epochal.sinks.delta.layout import DATA, Layout, part_name
from epochal.sinks.delta.stage import digesting, footers, frames
from epochal.sinks.delta.stage.stats import LEAVES, statistics
from epochal.sinks.delta.table import places
from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.spark import digests, write_counts
from epochal.sinks.spark.reasons import as_bad_rows
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import join
from epochal.txn.model import Attempt
from epochal.txn.row_digests import RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATS_COLUMNS = "delta.dataSkippingNumIndexedCols"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What was staged of an epoch: the digest of its rows, and the files as the log will name them."""

    digest: RowDigest
    files: list[StagedFile]
    received: int  # rows that the epoch was given: of those with one key an upsert writes the last


class Stager:
    """Stages epochs of one table."""

    def __init__(self, name: str, files: SinkFiles, layout: Layout) -> None:
        self._name, self._files, self._layout = name, files, layout

    def write(
        self, attempt: Attempt, frame: DataFrame, state: TableState, *, native: bool, digest: bool = False
    ) -> StagedRows:
        """Let Spark write the staged files."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        has_footers = places.by_delta_rs(folder)
        place = spark_path(folder)
        failpoints.hit("before-write")
        try:
            extra = frames.partition_columns(frame, state.partition_by) if native and state.partition_by else {}
            split = frame.withColumns(extra) if extra else frame
            replaces = frames.RECEIVED in frame.columns
            sums = None
            if digest:  # only then: a Connect server is asked for a schema
                rows = frame.drop(frames.RECEIVED) if replaces else frame
                sums = digesting.measure(rows.schema, state.schema, state.partition_by).sums()
            if replaces:
                # Summed over the rows that are written, in the job's last stage: there a repeated task counts once.
                given = f.sum(frames.RECEIVED).alias(frames.RECEIVED)
                sums = [*(sums or [f.count(f.lit(1)).alias(write_counts.ROWS)]), given]

            def save(watched: DataFrame) -> None:
                # A column that is dropped where there is none makes a Connect server lose track of the others.
                plain = watched.drop(frames.RECEIVED) if replaces else watched
                writer = plain.write.mode("overwrite")
                if codec := state.properties.get("delta.parquet.compression.codec"):
                    writer = writer.option("compression", codec)
                if extra:
                    writer = writer.partitionBy(*extra)
                writer.parquet(place)

            with frames.written_plainly(frame.sparkSession):
                written = write_counts.written(split, place, save, sums)
        except PySparkException as fault:
            if (bad_rows := as_bad_rows(self._name, fault)) is None:
                raise
            raise bad_rows from fault
        failpoints.hit("after-write")
        wrote = written.counts
        names = [(e.name, e.length) for e in self._files.walk(folder) if _is_data(e.name)]
        if not wrote.rows and wrote.measured:
            names = []  # Spark writes a file for an empty frame too
        summed = digests.row_digest(written.sums) if digest else RowDigest(wrote.rows)
        whole = summed.rows == wrote.rows and wrote.fits(size for _, size in names)
        staged = self._listed(attempt, names)
        if whole and has_footers:
            count, staged = self._measured(attempt, names, state, native=native)
            whole = count == wrote.rows
        if not whole:
            raise Refused(
                f"sink {self._name!r}: of {f'{wrote.files} files with ' if wrote.measured else ''}{wrote.rows} rows "
                f"of epoch {attempt.epoch} that Spark wrote to {home}, not all are there. Do the driver and the "
                "executors see the same file system? Nothing of the epoch was written"
            )
        self._check_sizes(attempt, staged)
        received = int(written.sums.get(frames.RECEIVED) or 0) if replaces else summed.rows
        return StagedRows(summed, staged, received)

    def _check_sizes(self, attempt: Attempt, staged: Sequence[StagedFile]) -> None:
        """Refuse, before the epoch is decided, a file that the store would not copy when it is committed."""
        if not places.is_on_store(self._layout.target):
            return
        for file in staged:
            if file.new.size > places.MOST_COPIED:
                raise Refused(
                    f"sink {self._name!r}: epoch {attempt.epoch} has a file of {file.new.size} bytes, and the store "
                    f"copies at most {places.MOST_COPIED} in one request. Nothing of the epoch was published. Set "
                    "spark.sql.files.maxRecordsPerFile, so that Spark writes more and smaller files"
                )

    def _listed(self, attempt: Attempt, names: Sequence[tuple[str, int]]) -> list[StagedFile]:
        return [
            StagedFile(f"{DATA}/{name}", NewFile(part_name(attempt, number, name), size, {}, ""))
            for number, (name, size) in enumerate(names)
        ]

    def _measured(
        self, attempt: Attempt, names: Sequence[tuple[str, int]], state: TableState, *, native: bool
    ) -> tuple[int, list[StagedFile]]:
        """The files that have rows, with their statistics and partition values for Delta's log."""
        home = self._layout.attempt(attempt)
        kinds = {field["name"]: field["type"] for field in state.schema["fields"]}
        leaves = int(state.properties.get(STATS_COLUMNS, LEAVES))
        count = 0
        found: list[StagedFile] = []
        read = footers.read(self._files, [(join(home, DATA, name), size) for name, size in names])
        for (name, size), footer in zip(names, read, strict=True):
            if footer.num_rows == 0:
                continue
            count += footer.num_rows
            stats = ""
            partition: dict[str, str | None] = {}
            if native:
                stats = statistics(footer, state.schema, skip=state.partition_by, leaves=leaves)
                partition = frames.partition_values(name, state.partition_by, kinds)
            new = NewFile(part_name(attempt, len(found), name), size, partition, stats)
            found.append(StagedFile(f"{DATA}/{name}", new))
        self._files.sync_all([join(home, file.staged) for file in found], within=self._layout.target)
        return count, found


def _is_data(name: str) -> bool:
    *folders, file = name.split("/")
    return not file.startswith(("_", ".")) and "_temporary" not in folders
