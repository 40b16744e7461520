"""One driver's life, as a Spark driver with an epochal writer lives it. Paths are below the working folder."""

from __future__ import annotations

from collections.abc import Sequence

from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.settler import Backoff, Settler
from integration_tests.kill_matrix.cases import Stream, rows_of

# What Spark does between our steps: places to die and to stand still as well.
SPARK_POINTS = ("before-offsets", "after-offsets", "before-commits", "after-commits")

QUERY = "5eed0000-0000-4000-8000-000000000000"
CHECKPOINT = "checkpoint"
JOURNAL = "checkpoint/epochal"
PATIENCE = 20.0  # seconds that a store may stay away; here none ever does


class JournalOfACase(Journal):
    """A case is copied with its targets, and stays what it was."""

    @property
    def place(self) -> str:
        return f"/case/{self.path}"


def drive(stream: Stream, epochs: int | None = None) -> None:
    """Start on whatever is in the working folder and run to the last epoch."""
    # SIGKILL loses nothing that the kernel has, so there is no need to sync.
    files = LocalFiles(sync=False)
    query: StandInQuery[Sequence[Json]] = StandInQuery(SparkFiles(sync=False), CHECKPOINT, query_id=QUERY)
    coordinator: Coordinator[Sequence[Json]] = Coordinator(
        journals=lambda number: JournalOfACase(files, JOURNAL if number == 1 else f"{JOURNAL}~{number}"),
        checkpoint=query.checkpoint,
        participants=[DirectoryParticipant(target, name=target, files=files) for target in stream.targets],
        eager=stream.eager,
        retain=stream.retain,
    )
    settler = Settler(coordinator, backoff=Backoff(first=0.001, limit=0.05))
    coordinator.begin()
    settler.settle(PATIENCE)
    query.run(epochs or stream.epochs, rows_of, settler.run, lambda: settler.settle(PATIENCE))
    settler.settle(PATIENCE)


class SparkFiles(LocalFiles):
    """The files that Spark itself makes, with a point on either side."""

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        step = path.split("/")[-2]
        if f"before-{step}" not in SPARK_POINTS:
            return super().create(path, data, durable=durable)
        failpoints.hit(f"before-{step}")
        created = super().create(path, data, durable=durable)
        failpoints.hit(f"after-{step}")
        return created
