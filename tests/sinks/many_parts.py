"""A stream into a rolling target whose files Spark would write, written here: thousands of buckets, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from epochal.sinks.files.layout import DATA, Layout
from epochal.sinks.files.options import FileOptions
from epochal.sinks.files.policies.rolling import Rolling
from epochal.sinks.files.sink import RollingFileSink
from epochal.sinks.files.stage.writing import Stager, WrittenFiles
from epochal.sinks.storage.sink_files import LocalSinkFiles, SinkFiles
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import StandInQuery
from epochal.txn.batches import BatchOutcome
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import Entry, Files, join
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt
from epochal.txn.state.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY = "1f0c9a2e-0000-4000-8000-000000000000"
SHAPE = "json 5d41402a"
TEXT = b'{"id":1,"bucket":0}\n'


@dataclass(frozen=True, slots=True)
class Rows:
    """Stands for a frame with a row for each of these buckets."""

    buckets: Sequence[int]
    sparkSession: None = None  # noqa: N815  # as a frame has it


class HandStager(Stager):
    """Writes a file a bucket, as Spark's writer does with `partitionBy`."""

    def write(self, attempt: Attempt, rows: DataFrame) -> WrittenFiles:
        buckets = cast(Rows, rows).buckets
        folder = join(self._layout.attempt(attempt), DATA)
        found = [(f"bucket={b}/", Entry(f"bucket={b}/part-00000-c000.json", len(TEXT), False)) for b in buckets]
        for _, entry in found:
            self._write(join(folder, entry.name))
        return WrittenFiles(found, len(found), [1] * len(found), SHAPE, None, None)

    def _write(self, path: str) -> None:
        self._files.make_folder(path.rpartition("/")[0])
        with open(path, "wb") as file:
            file.write(TEXT)


class _WithoutSpark(RollingFileSink):
    """Does not ask what columns a frame has."""

    def _check_columns(self, attempt: Attempt, rows: DataFrame) -> None:
        pass


class ManyParts:
    """One stream, whose epochs have a row for some buckets; parts close with their second row."""

    def __init__(
        self, root: str, *, files: SinkFiles | None = None, policy: Policy | None = None, **options: Any
    ) -> None:
        self.files = files or LocalSinkFiles(sync=False)
        self.journal_files: Files = self.files
        self.checkpoint, self.target = f"{root}/checkpoint", f"{root}/target"
        self.policy = policy
        self.options = {"rolling": Rolling(max_rows=2), **options}
        self.sink = self.new_sink()
        self.coordinator = self.start()
        self.query: StandInQuery[Rows] = StandInQuery(self.journal_files, self.checkpoint, query_id=QUERY)
        self.epochs = self.query.checkpoint.committed() + 1

    def new_sink(self) -> RollingFileSink:
        sink = _WithoutSpark(self.target, format="json", bucket_by=["bucket"], **self.options)
        sink._bound = self.files, Layout(self.target)
        sink.__dict__["_stager"] = HandStager(cast(FileOptions, sink), self.files, sink._bound[1])
        return sink

    def start(self) -> Coordinator[Any]:
        """A driver that has just started."""
        StandInQuery[Rows](self.journal_files, self.checkpoint, query_id=QUERY)
        return Coordinator(
            journals=lambda number: Journal(
                self.journal_files,
                f"{self.checkpoint}/epochal" + ("" if number == 1 else f"~{number}"),
                policy=self.policy,
            ),
            checkpoint=SparkCheckpoint(self.journal_files, self.checkpoint),
            participants=[self.sink],
            version="0.0.0",
        )

    def restart(self) -> None:
        """Another driver, in the same process."""
        self.sink = self.new_sink()
        self.coordinator = self.start()
        self.coordinator.begin()

    def epoch(self, buckets: Sequence[int]) -> None:
        """One epoch, settled."""
        if not self.epochs:
            self.coordinator.begin()
        self.epochs += 1
        self.query.run(self.epochs, lambda _: Rows(buckets), self._batch, self.coordinator.settle)

    def _batch(self, epoch: int, rows: Rows) -> BatchOutcome:
        return self.coordinator.run(epoch, rows)
