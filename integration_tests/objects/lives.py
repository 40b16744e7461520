"""Lives of drivers on an object store, and the process that starts and kills them.

    python -m integration_tests.objects.lives

A driver is a fork of it, and lives for a tenth of a second.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO

from epochal.sinks.storage.objects import ObjectSinkFiles, clients_for
from epochal.sinks.storage.objects.patience import Patience
from epochal.sinks.storage.objects.requests import Found, Requests
from epochal.testing import ConcurrentUpdate, DirectoryParticipant, StandInQuery
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import FencedOut
from epochal.txn.failpoints import Armed, Failpoint
from epochal.txn.files import Files, LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.participant import Participant
from epochal.txn.settler import Backoff, Settler
from integration_tests.objects.files_by_hand import FilesByHand
from integration_tests.objects.forks import Forks, serve

QUERY = "5eed0000-0000-4000-8000-000000000000"
QUICK = Patience(tries=30, first=0.001, longest=0.02)
DEADLINE = 60  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One driver. Its journal is on the store; its checkpoint and targets too, or in a local folder."""

    bucket: str
    place: str  # the folder of its case in the bucket
    local: str  # a folder on disk; empty: everything is on the store
    options: dict[str, str] = field(default_factory=dict)
    epochs: int = 3
    sinks: Sequence[str] = ("left",)
    kind: str = "directory"  # or "files": the targets are rolling files, on the store, whatever is on disk
    copies: bool = False  # whether the store keeps the condition of copies
    eager: bool = False
    write: int = 0  # killed at its n-th request that writes
    side: str = "before"  # or after
    failpoint: str = ""  # or killed there
    hit: int = 1

    @property
    def journal(self) -> str:
        return f"{self.place}/checkpoint/epochal"

    @property
    def checkpoint(self) -> str:
        return f"{self.local or self.place}/checkpoint"

    def target(self, sink: str) -> str:
        return f"{self.place if self.kind == 'files' else self.local or self.place}/{sink}"

    def files(self, kill: Callable[[str], None] = lambda _: None) -> ObjectSinkFiles:
        client = clients_for(self.bucket, self.options).make()
        return ObjectSinkFiles(self.bucket, Mortal(client, kill), lambda: self.copies, patience=QUICK)

    def participant(self, sink: str, files: Files, remote: ObjectSinkFiles) -> Participant[Sequence[Json]]:
        if self.kind == "files":
            return FilesByHand.on(self.target(sink), sink, remote, self.options)
        return DirectoryParticipant(self.target(sink), name=sink, files=files)


class Mortal:
    """Requests of a driver that may die before or after any that writes."""

    def __init__(self, requests: Requests, hit: Callable[[str], None]) -> None:
        self._requests, self._hit = requests, hit

    def put_new(self, key: str, data: bytes, identity: str) -> None:
        self._writing(lambda: self._requests.put_new(key, data, identity))

    def copy_new(self, source: str, key: str) -> None:
        self._writing(lambda: self._requests.copy_new(source, key))

    def copy(self, source: str, key: str) -> None:
        self._writing(lambda: self._requests.copy(source, key))

    def remove(self, key: str) -> None:
        self._writing(lambda: self._requests.remove(key))

    def remove_all(self, keys: Sequence[str]) -> None:
        self._writing(lambda: self._requests.remove_all(keys))

    def put(self, key: str, data: bytes, identity: str) -> None:
        self._writing(lambda: self._requests.put(key, data, identity))

    def put_parts(self, key: str, content: IO[bytes], identity: str) -> None:
        self._writing(lambda: self._requests.put_parts(key, content, identity))

    def remove_marker(self, key: str) -> None:
        self._writing(lambda: self._requests.remove_marker(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._requests.get_range(key, start, end)

    def look(self, key: str) -> Found | None:
        return self._requests.look(key)

    def get(self, key: str, *, most: int | None = None) -> tuple[Found, bytes]:
        return self._requests.get(key, most=most)

    def length(self, key: str) -> tuple[int, float] | None:
        return self._requests.length(key)

    def list_folder(self, prefix: str) -> tuple[list[tuple[str, int]], list[str]]:
        return self._requests.list_folder(prefix)

    def walk(self, prefix: str) -> list[tuple[str, int, str]]:
        return self._requests.walk(prefix)

    def _writing(self, request: Callable[[], None]) -> None:
        self._hit("before")
        request()
        self._hit("after")


def rows_of(epoch: int) -> list[Json]:
    """The rows of an epoch, each saying what it is. Every third epoch is empty."""
    return [{"epoch": epoch, "index": index} for index in range(0 if epoch % 3 == 1 else 2)]


def live(life: Life) -> int:
    """One driver from its start to its end. How many requests it has made that write."""
    writes = 0

    def hit(side: str) -> None:
        nonlocal writes
        writes += side == "before"
        if (writes, side) == (life.write, life.side):
            os.kill(os.getpid(), signal.SIGKILL)

    if life.failpoint:
        failpoints.hit = Armed((Failpoint(life.failpoint, "kill", life.hit),), "")
    remote = life.files(hit)
    files: Files = LocalFiles(sync=False) if life.local else remote
    query: StandInQuery[Sequence[Json]] = StandInQuery(files, life.checkpoint, query_id=QUERY)
    coordinator: Coordinator[Sequence[Json]] = Coordinator(
        journals=lambda number: Journal(remote, life.journal if number == 1 else f"{life.journal}~{number}"),
        checkpoint=query.checkpoint,
        participants=[life.participant(sink, files, remote) for sink in life.sinks],
        eager=life.eager,
    )
    settler = Settler(coordinator, backoff=Backoff(first=0.001, limit=0.05))
    coordinator.begin()
    settler.settle(DEADLINE)
    query.run(life.epochs, rows_of, settler.run, lambda: settler.settle(DEADLINE))
    settler.settle(DEADLINE)
    return writes


class Lives(Forks):
    """The process that starts them."""

    def __init__(self) -> None:
        super().__init__("integration_tests.objects.lives")

    def run(self, *lives: Life) -> list[tuple[int, str]]:
        """How each of some drivers that begin together ended, and what it said."""
        return self.ended(*(asdict(life) for life in lives))


if __name__ == "__main__":
    serve(lambda life: live(Life(**life)), DEADLINE, overtaken=(FencedOut, ConcurrentUpdate))
