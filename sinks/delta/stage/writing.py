"""The first phase: Spark's own writer writes the epoch's files to a place that no log entry names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochal.sinks.delta.handle import NewFile, StagedFile
from epochal.sinks.delta.layout import DATA, Layout, part_name
from epochal.sinks.delta.stage import digesting, frames
from epochal.sinks.delta.stage.stats import LEAVES, statistics
from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.spark import digests, write_counts
from epochal.sinks.spark.reasons import as_bad_rows
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import is_local, join
from epochal.txn.model import Attempt
from epochal.txn.row_digests import RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATS_COLUMNS = "delta.dataSkippingNumIndexedCols"


class Stager:
    """Stages epochs of one table."""

    def __init__(self, name: str, files: SinkFiles, layout: Layout) -> None:
        self._name, self._files, self._layout = name, files, layout

    def write(
        self, attempt: Attempt, frame: DataFrame, state: TableState, *, native: bool, digest: bool = False
    ) -> tuple[RowDigest, list[StagedFile]]:
        """Let Spark write the staged files; the digest of their rows, and the files as the log will name them."""
        from pyspark.errors import PySparkException

        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        local = is_local(folder)
        place = spark_path(folder)
        failpoints.hit("before-write")
        try:
            extra = frames.partition_columns(frame, state.partition_by) if native and state.partition_by else {}
            split = frame.withColumns(extra) if extra else frame
            sums = digesting.measure(frame.schema, state.schema, state.partition_by).sums() if digest else None

            def save(watched: DataFrame) -> None:
                writer = watched.write.mode("overwrite")
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
        if whole and local:
            count, staged = self._measured(attempt, names, state, native=native)
            whole = count == wrote.rows
        if not whole:
            raise Refused(
                f"sink {self._name!r}: of {f'{wrote.files} files with ' if wrote.measured else ''}{wrote.rows} rows "
                f"of epoch {attempt.epoch} that Spark wrote to {home}, not all are there. Do the driver and the "
                "executors see the same file system? Nothing of the epoch was written"
            )
        return summed, staged

    def _listed(self, attempt: Attempt, names: Sequence[tuple[str, int]]) -> list[StagedFile]:
        return [
            StagedFile(f"{DATA}/{name}", NewFile(part_name(attempt, number, name), size, {}, ""))
            for number, (name, size) in enumerate(names)
        ]

    def _measured(
        self, attempt: Attempt, names: Sequence[tuple[str, int]], state: TableState, *, native: bool
    ) -> tuple[int, list[StagedFile]]:
        """The files that have rows, with their statistics and partition values for Delta's log."""
        from pyarrow.parquet import read_metadata

        home = self._layout.attempt(attempt)
        kinds = {field["name"]: field["type"] for field in state.schema["fields"]}
        leaves = int(state.properties.get(STATS_COLUMNS, LEAVES))
        count = 0
        found: list[StagedFile] = []
        for name, size in names:
            path = join(home, DATA, name)
            footer = read_metadata(path)
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
