"""Everything that several drivers share, as one immutable value, and the operations on it.

A `World` is Spark's checkpoint, the journal and one store. An operation is a plain tuple; `execute`
gives the world after it and its result, so a search can try any order. What the code under test
calls (`Files`, `Checkpoint`, `Participant`) are thin fronts that turn each call into an operation
and hand it to an `Ask`.

The store publishes under (epoch, generation), so an epoch committed from two attempts shows twice.
Staging takes two operations, so that a sweep can fall between them; what it removed stays missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from epochal.txn.errors import DataLost
from epochal.txn.files import Entry
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Attempt, Handle, Json, Memory, Outcome, Staged
from epochal.txn.records import Decided, Prepared, Record, decode
from epochal.txn.view import View

QUERY = "query"
TARGET = "store"
SINK = "store"
PARTS = (1, 2)

Operation: TypeAlias = tuple[Any, ...]
Ask: TypeAlias = Callable[..., Any]
Piece: TypeAlias = tuple[int, int, int]  # epoch, generation, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is explored."""

    starts: int
    epochs: int
    eager: bool = False
    compacted: bool = False  # done epochs are folded away as early as can be
    cleaners: int = 0  # besides the drivers: `epochal recover`, then `epochal gc`, at any time
    fencing: bool = False  # `epochal gc --fence`
    begin_first: bool = False  # the coordinator begins before Spark reads commits/, not in the first batch
    reduced: bool = True  # False: no two states are taken as one, and no step is taken out of turn

    def __str__(self) -> str:
        modes = [name for name in ("eager", "compacted", "begin_first", "cleaners", "fencing") if getattr(self, name)]
        return " ".join([f"{self.starts} starts, {self.epochs} epochs", *modes])


class World(NamedTuple):
    """All that outlives a driver."""

    journal: frozenset[tuple[str, bytes]] = frozenset()
    offsets: int = 0  # how many of offsets/0, offsets/1, ... there are
    commits: int = 0
    staged: frozenset[Piece] = frozenset()
    visible: frozenset[Piece] = frozenset()
    enrolled: bool = False


def execute(world: World, operation: Operation) -> tuple[World, Any]:
    """The world after an operation, and what its caller gets."""
    kind, *arguments = operation
    return _EFFECTS[kind](world, *arguments)


def _names(world: World) -> tuple[World, Any]:
    return world, tuple(sorted(world.journal))


def _read(world: World, name: str) -> tuple[World, Any]:
    return world, dict(world.journal).get(name)


def _create(world: World, name: str, data: bytes) -> tuple[World, Any]:
    if any(name == taken for taken, _ in world.journal):
        return world, False
    return world._replace(journal=world.journal | {(name, data)}), True


def _delete(world: World, name: str) -> tuple[World, Any]:
    return world._replace(journal=frozenset(f for f in world.journal if f[0] != name)), None


def _plan(world: World, epoch: int) -> tuple[World, Any]:
    return world._replace(offsets=max(world.offsets, epoch + 1)), None


def _checkpoint(world: World, epoch: int) -> tuple[World, Any]:
    if epoch < world.commits:
        return world, False
    assert epoch == world.commits, "Spark writes commits/N in order"
    return world._replace(commits=epoch + 1), True


def _committed(world: World) -> tuple[World, Any]:
    return world, world.commits - 1


def _offsets(world: World, epoch: int) -> tuple[World, Any]:
    return world, f"offsets of {epoch}" if epoch < world.offsets else None


def _open(world: World) -> tuple[World, Any]:
    return world, (world.enrolled, tuple(sorted({epoch for epoch, _, _ in world.visible})))


def _enrol(world: World) -> tuple[World, Any]:
    return world._replace(enrolled=True), None


def _stage(world: World, epoch: int, generation: int, part: int) -> tuple[World, Any]:
    return world._replace(staged=world.staged | {(epoch, generation, part)}), None


def _commit(world: World, epoch: int, generation: int) -> tuple[World, Any]:
    mine = pieces(world.staged, epoch, generation)
    without = world._replace(staged=world.staged - mine)
    if pieces(world.visible, epoch, generation):
        return without, Outcome.ALREADY_COMMITTED
    if not mine:
        return world, None
    return without._replace(visible=world.visible | mine), Outcome.COMMITTED


def _abort(world: World, epoch: int, generation: int) -> tuple[World, Any]:
    return world._replace(staged=world.staged - pieces(world.staged, epoch, generation)), None


def _leftovers(world: World) -> tuple[World, Any]:
    return world, tuple(sorted({(epoch, generation) for epoch, generation, _ in world.staged}))


_EFFECTS: dict[str, Callable[..., tuple[World, Any]]] = {
    "names": _names,
    "read": _read,
    "create": _create,
    "delete": _delete,
    "plan": _plan,
    "checkpoint": _checkpoint,
    "committed": _committed,
    "offsets": _offsets,
    "open": _open,
    "enrol": _enrol,
    "stage": _stage,
    "commit": _commit,
    "abort": _abort,
    "leftovers": _leftovers,
}


def pieces(where: frozenset[Piece], epoch: int, generation: int) -> frozenset[Piece]:
    """What an attempt has somewhere."""
    return frozenset(p for p in where if p[:2] == (epoch, generation))


def is_whole(where: frozenset[Piece], epoch: int, generation: int) -> bool:
    return len(pieces(where, epoch, generation)) == len(PARTS)


def is_idle_for_good(world: World, operation: Operation, setting: Setting) -> bool:
    """Whether an operation changes nothing and will give the same result in every later world.

    Such a step commutes with every step of every driver, so it need not be tried in any other
    place. Nothing here goes back, except that staged data can go, and records by compaction.
    """
    if not setting.reduced:
        return False
    kind, *arguments = operation
    match kind:
        case "committed":
            return world.commits == setting.epochs
        case "create" | "read":
            return not setting.compacted and any(arguments[0] == name for name, _ in world.journal)
        case "checkpoint":
            return bool(arguments[0] < world.commits)
        case "plan" | "offsets":
            return bool(arguments[0] < world.offsets)
        case "enrol":
            return world.enrolled
        case "open":
            return world.enrolled and len({epoch for epoch, _, _ in world.visible}) == setting.epochs
        case "commit":
            # An attempt is staged once, before it is prepared: nothing of it can come back.
            visible = pieces(world.visible, *arguments)
            return bool(visible) and not pieces(world.staged, *arguments)
        case _:
            return False


def faults(world: World, setting: Setting) -> list[str]:
    """What the promise forbids and this world shows."""
    found = []
    attempts, decided = _recorded(world.journal)
    for epoch in range(setting.epochs):
        shown = {generation for e, generation, _ in world.visible if e == epoch}
        if shown and epoch >= world.commits and not setting.eager:
            found.append(f"early view: epoch {epoch} is visible before commits/{epoch}")
        if len(shown) > 1:
            found.append(f"double: epoch {epoch} is visible from generations {sorted(shown)}")
        if any(not is_whole(world.visible, epoch, generation) for generation in shown):
            found.append(f"loss: epoch {epoch} is visible without a part of its rows")
        if shown and epoch and not any(e == epoch - 1 for e, _, _ in world.visible):
            found.append(f"order: epoch {epoch} is visible before epoch {epoch - 1}")
        if not shown:
            legal = {decided[epoch]} if epoch in decided else {g for e, g in attempts if e == epoch}
            wanted = epoch in decided or epoch < world.commits
            if wanted and not any(is_whole(world.staged, epoch, generation) for generation in legal):
                found.append(f"loss: epoch {epoch} is decided, and what its winner staged is gone")
    return found


def unfinished(world: World, setting: Setting) -> list[str]:
    """What is missing in a world where one driver ran to its end and nobody else is alive."""
    found = [f"staged data left: {sorted(world.staged)}"] if world.staged else []
    if {epoch for epoch, _, _ in world.visible} != set(range(setting.epochs)):
        found.append(f"not every epoch is visible: {sorted(world.visible)}")
    return found


def _recorded(journal: frozenset[tuple[str, bytes]]) -> tuple[set[tuple[int, int]], dict[int, int]]:
    attempts, decided = set(), {}
    for name, data in journal:
        record = decoded(name, data)
        if isinstance(record, Prepared):
            attempts.add((record.epoch, record.generation))
        elif isinstance(record, Decided):
            decided[record.epoch] = record.generation
    return attempts, decided


@cache
def decoded(name: str, data: bytes) -> Record:
    return decode(name, name, data)


class JournalFolder:
    """The `Files` that a journal needs. A listing brings the files along: they never change."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._listed: dict[str, bytes] = {}

    def names(self, path: str) -> tuple[str, ...]:
        self._listed = dict(self.ask("names"))
        return tuple(self._listed)

    def read(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name in self._listed:
            return self._listed[name]
        data: bytes | None = self.ask("read", name)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        return bool(self.ask("create", path.rpartition("/")[2], data))

    def delete(self, path: str) -> None:
        self.ask("delete", path.rpartition("/")[2])

    def list(self, path: str) -> list[Entry]:
        raise NotImplementedError

    def walk(self, path: str) -> Iterator[Entry]:
        raise NotImplementedError

    def length(self, path: str) -> int | None:
        raise NotImplementedError

    def rename(self, source: str, target: str) -> None:
        raise NotImplementedError

    def make_folder(self, path: str) -> None:
        raise NotImplementedError

    def sync(self, path: str) -> None:
        raise NotImplementedError


@cache
def view_of(listing: tuple[tuple[str, bytes], ...]) -> View:
    """What a journal reads from these files."""
    return Journal(JournalFolder(lambda *operation: listing), "journal").read()


class SharedJournal(Journal):
    """The real journal. There are no temporary files in a world, so none are looked for."""

    def __init__(self, folder: JournalFolder) -> None:
        super().__init__(folder, "journal", clock=lambda: 0.0)
        self._folder = folder

    def __repr__(self) -> str:
        return "journal"

    def read(self) -> View:
        return view_of(self._folder.ask("names"))

    def sweep(self) -> list[str]:
        return []


class CompactedJournal(SharedJournal):
    """Folds done epochs away as soon as it can."""

    def compact(self, view: View, *, retain: int, slack: int = 0) -> None:
        super().compact(view, retain=0, slack=0)


class SharedCheckpoint:
    """Spark's checkpoint."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def query_id(self) -> str:
        return QUERY

    def committed(self) -> int:
        return int(self._ask("committed"))

    def offsets(self, epoch: int) -> str | None:
        found: str | None = self._ask("offsets", epoch)
        return found


class SharedStore:
    """A participant of one world."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __repr__(self) -> str:
        return "store"

    @property
    def name(self) -> str:
        return SINK

    def describe(self) -> dict[str, Json]:
        return {"type": "shared", "target": TARGET}

    def open(self, lineage: str) -> Memory:
        enrolled, epochs = self._ask("open")
        recent = {epoch: f"offsets of {epoch}" for epoch in epochs}
        return Memory(TARGET, enrolled, max(epochs, default=NO_EPOCH), recent)

    def enrol(self, lineage: str, *, adopts: str | None) -> None:
        self._ask("enrol")

    def stage(self, attempt: Attempt, rows: None, *, offsets: str) -> Staged:
        for part in PARTS:
            self._ask("stage", attempt.epoch, attempt.generation, part)
        return Staged(Handle(1, {}), 1)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        outcome: Outcome | None = self._ask("commit", attempt.epoch, attempt.generation)
        if outcome is None:
            raise DataLost(f"{attempt.key}: neither staged nor visible")
        return outcome

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._ask("abort", attempt.epoch, attempt.generation)

    def leftovers(self, lineage: str) -> list[Attempt]:
        return [Attempt(lineage, epoch, generation) for epoch, generation in self._ask("leftovers")]
