"""A query in memory: its checkpoint, its journals and the folders it writes to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.testing import DirectoryParticipant
from epochal.txn.checkpoint import Checkpoint
from epochal.txn.choices import Choices, tokens
from epochal.txn.coordinator import Coordinator
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.participant import Participant
from tests.txn.memory import MemoryFiles

Rows = Sequence[Json]
QUERY = "7c8d2a4e-aaaa"
TAG = "7c8d2a4e"


@dataclass
class Stream:
    """Everything outside the coordinator."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    query: str = QUERY
    path: str = "checkpoint"

    def __post_init__(self) -> None:
        self.files.create(f"{self.path}/metadata", f'{{"id":"{self.query}"}}'.encode())

    def sink(self, name: str = "sink") -> DirectoryParticipant:
        return DirectoryParticipant(name, name=name, files=self.files)

    def journal(self, incarnation: int = 1) -> Journal:
        return Journal(self.files, f"{self.path}/epochal/{incarnation}", clock=lambda: 0.0)

    def coordinator(
        self,
        *sinks: Participant[Rows],
        adopt: str | None = None,
        new: str | Collection[str] | None = None,
        eager: bool = False,
        retain: int = 20,
        checkpoint: Checkpoint | None = None,
    ) -> Coordinator[Rows]:
        """A coordinator that has not begun."""
        return Coordinator(
            journals=self.journal,
            checkpoint=checkpoint or SparkCheckpoint(self.files, self.path),
            participants=sinks or (self.sink(),),
            choices=Choices(tokens(adopt), tokens(new)),
            eager=eager,
            retain=retain,
        )

    def start(self, *sinks: Participant[Rows], adopt: str | None = None, new: str | None = None) -> Coordinator[Rows]:
        """A coordinator that has begun."""
        coordinator = self.coordinator(*sinks, adopt=adopt, new=new)
        coordinator.begin()
        return coordinator

    def plan(self, epoch: int, offsets: str = "") -> None:
        self.files.create(f"{self.path}/offsets/{epoch}", f'v1\n{{}}\n{{"topic":"{epoch} {offsets}"}}'.encode())

    def commit(self, epoch: int) -> None:
        assert self.files.create(f"{self.path}/commits/{epoch}", b"v1")

    def committed(self) -> int:
        """The last epoch that Spark has committed."""
        return SparkCheckpoint(self.files, self.path).committed()

    def run(self, coordinator: Coordinator[Rows], *epochs: int) -> None:
        """Epochs that go all the way, one row in each: its number."""
        for epoch in epochs:
            self.plan(epoch)
            coordinator.run(epoch, [epoch])
            self.commit(epoch)
            coordinator.settle()

    def rewind(self, *, keep: int) -> None:
        """Make `keep` the last committed epoch, as a restored checkpoint has it."""
        for name in self.files.names(f"{self.path}/commits"):
            if int(name) > keep:
                self.files.delete(f"{self.path}/commits/{name}")
