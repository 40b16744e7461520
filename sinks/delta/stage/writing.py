"""The first phase: Spark's own writer puts the epoch's files where no log entry names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from epochal.sinks.delta.handle import NewFile, StagedFile
from epochal.sinks.delta.layout import DATA, Layout, part_name
from epochal.sinks.delta.stage import digesting, frames
from epochal.sinks.delta.stage.stats import LEAVES, statistics
from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.spark import digests, write_counts
from epochal.sinks.spark.reasons import reason_of
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import BadRows, Refused
from epochal.txn.files import is_local, join
from epochal.txn.model import Attempt
from epochal.txn.row_digests import RowDigest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATS_COLUMNS = "delta.dataSkippingNumIndexedCols"


class Writing:
    """Stages epochs of one table."""

    def __init__(self, name: str, files: SinkFiles, layout: Layout) -> None:
        self._name, self._files, self._layout = name, files, layout

    def write(
        self, attempt: Attempt, frame: DataFrame, state: TableState, *, native: bool, digest: bool = False
    ) -> tuple[RowDigest, list[StagedFile]]:
        """Let Spark write the staged files; which rows there are, and the files as the log will name them."""
        from pyspark.errors import AnalysisException, PySparkException
        from pyspark.sql import Observation

        home = self._layout.attempt(attempt)
        folder = join(home, DATA)
        local = is_local(folder)
        counter = Observation() if digest else None
        place = f"file:{folder}" if local else folder
        failpoints.hit("before-write")
        try:
            extra = frames.partition_columns(frame, state.partition_by) if native and state.partition_by else {}
            split = frame.withColumns(extra) if extra else frame
            if counter is not None:
                sums = digesting.measure(frame.schema, state.schema, state.partition_by).sums()
                split = split.observe(counter, *sums)
            writer = split.write.mode("overwrite")
            if codec := state.properties.get("delta.parquet.compression.codec"):
                writer = writer.option("compression", codec)
            if extra:
                writer = writer.partitionBy(*extra)
            with frames.written_plainly(frame.sparkSession):
                wrote = write_counts.counted(frame.sparkSession, place, lambda: writer.parquet(place))
        except PySparkException as fault:
            reason = reason_of(fault)
            if reason is None and not isinstance(fault, AnalysisException):
                raise
            raise BadRows(
                f"sink {self._name!r}: {reason or fault.getMessage()}. Nothing of the epoch was written"
            ) from fault
        failpoints.hit("after-write")
        names = [(e.name, e.length) for e in self._files.walk(folder) if _is_data(e.name)]
        if not wrote.rows:
            names = []  # Spark writes a file for an empty frame too
        tally = RowDigest(wrote.rows) if counter is None else digests.tally(counter.get)
        whole = tally.rows == wrote.rows and wrote.fits(size for _, size in names)
        staged = self._listed(attempt, names)
        if whole and local:
            count, staged = self._measured(attempt, names, state, native=native)
            whole = count == wrote.rows
        if not whole:
            raise Refused(
                f"sink {self._name!r}: of {wrote.files} files with {wrote.rows} rows of epoch {attempt.epoch} that "
                f"Spark wrote to {home}, not all are there. Do the driver and the executors see the same file system? "
                "Nothing of the epoch was written"
            )
        return tally, staged

    def _listed(self, attempt: Attempt, names: Sequence[tuple[str, int]]) -> list[StagedFile]:
        return [
            StagedFile(f"{DATA}/{name}", NewFile(part_name(attempt, number, name), size, {}, ""))
            for number, (name, size) in enumerate(names)
        ]

    def _measured(
        self, attempt: Attempt, names: Sequence[tuple[str, int]], state: TableState, *, native: bool
    ) -> tuple[int, list[StagedFile]]:
        """The files that have rows, with the statistics and partition values that Delta's log wants."""
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
