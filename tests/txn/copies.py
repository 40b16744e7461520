"""Several starts on copies of a checkpoint, or on new ones, that share one store: every order, searched to the end.

Each process runs the real coordinator on a journal and a checkpoint of its own, or on that of another process. What it
asks of these matters to nobody else, unless they share them; what it asks of the store can come in any order. A
process is a function of the answers it got, so it is run again from its beginning with those it has (as in `drivers`),
and a state is the world and the answers of each process. One that is not tried again has stalled or died.

The store is one that hides no mistake: each row says which process it came from. A staging area is named after its
attempt, as on disk; without the name of the start in it (`Setting.named`) two copies would write over each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from epochal.sinks.storage.register import Lineages
from epochal.txn.choices import Choices
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import DataLost, EpochalError, Rewound, TwoJournals
from epochal.txn.model import NO_EPOCH, Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged
from epochal.txn.participant import Abilities
from tests.txn.fronts import JournalFolder, SharedJournal

logging.getLogger("epochal").addHandler(logging.NullHandler())

Area: TypeAlias = tuple[str, int, int, str]  # lineage, epoch, generation, and the start's name
Piece: TypeAlias = tuple[Area, str]  # where rows are staged or which attempt shows them, and whose rows they are
Answers: TypeAlias = tuple[Any, ...]
Operation: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """One start: whose journal it uses, which query it is, and what its user has chosen."""

    name: str
    journal: int = 0
    query: str = "query"
    adopt: tuple[str, ...] = ()


class World(NamedTuple):
    """All that outlives a process."""

    journals: tuple[frozenset[tuple[str, bytes]], ...]
    commits: tuple[int, ...]
    version: int = 0
    claims: frozenset[Claim] = frozenset()
    staged: frozenset[Piece] = frozenset()
    visible: frozenset[Piece] = frozenset()
    late: frozenset[tuple[str, int]] = frozenset()  # whose place was taken, and how far it was then


@dataclass(frozen=True, slots=True)
class Setting:
    """What is explored. `epochs` of each query; the first was written before anybody was copied, if `copied`."""

    processes: tuple[Process, ...]
    epochs: int = 2
    copied: bool = True
    named: bool = True

    def __str__(self) -> str:
        return " ".join(f"{p.name}:{p.journal}{p.query[0]}{'+' if p.adopt else ''}" for p in self.processes)


class Found(Exception):
    """The promise can be broken: how, and the way there."""


class Suspend(BaseException):
    """A process has come to an operation that has no answer yet."""


class Store(Abilities):
    """A participant of one process."""

    name = "store"

    def __init__(self, ask: Callable[..., Any], who: str, *, named: bool) -> None:
        self._ask, self._who, self._named = ask, who, named

    def _area(self, attempt: Attempt) -> Area:
        return attempt.lineage, attempt.epoch, attempt.generation, attempt.start if self._named else ""

    def check_frame(self, rows: None) -> Sequence[str]:
        raise NotImplementedError

    def check_output_mode(self, mode: str) -> None:
        raise NotImplementedError

    def describe(self, rows: None = None) -> dict[str, Json]:
        return {"type": "shared", "target": self.name}

    def open(self, lineage: str) -> Memory:
        version, claims, visible = self._ask("open")
        register = Lineages(version, {claim.lineage: claim for claim in claims})
        epochs: dict[str, list[int]] = {}
        for (owner, epoch, *_), _ in visible:
            epochs.setdefault(owner, []).append(epoch)
        return Memory(
            self.name,
            enrolled=lineage in register.claims,
            last=max(epochs.get(lineage, []), default=NO_EPOCH),
            recent={epoch: f"offsets of {epoch}" for epoch in epochs.get(lineage, [])},
            others={other: max(epochs.get(other, []), default=NO_EPOCH) for other in register.others(lineage)},
            adopted_by=register.adopted_by(lineage),
            holder=register.claims.get(lineage),
            version=register.version,
        )

    def claim(self, claim: Claim, *, version: int, rows: None = None) -> bool:
        return bool(self._ask("claim", claim, version))

    def withdraw(self, claim: Claim) -> None:
        self._ask("withdraw", claim)

    def holder(self, lineage: str) -> Claim | None:
        found: Claim | None = self._ask("holder", lineage)
        return found

    def stage(self, batch: Batch[None]) -> Staged:
        self._ask("stage", self._area(batch.attempt), self._who)
        return Staged(Handle(1, {}), 1)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        answer = self._ask("commit", self._area(attempt), attempt.start, attempt.after)
        if isinstance(answer, type):
            raise answer("the store says so")
        assert isinstance(answer, Outcome)
        return answer

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._ask("abort", self._area(attempt))

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return [Attempt(owner, e, g, start=start) for owner, e, g, start in self._ask("leftovers", lineage)]


class Checkpoint:
    """Spark's checkpoint of one journal."""

    def __init__(self, ask: Callable[..., Any], query: str) -> None:
        self._ask, self._query = ask, query

    def query_id(self) -> str:
        return self._query

    def committed(self) -> int:
        return int(self._ask("committed")) - 1

    def committed_at(self, epoch: int) -> float | None:
        return None

    def offsets(self, epoch: int) -> str | None:
        return f"offsets of {epoch}"  # as of a source whose numbers do not tell the copies apart

    def sources(self, epoch: int) -> dict[str, Json]:
        return {}

    def watermark(self, epoch: int) -> float | None:
        return None


def drive(setting: Setting, process: Process, ask: Callable[..., Any]) -> str:
    """One start of a query, to its end: what it says then."""
    coordinator: Coordinator[None] = Coordinator(
        journals=lambda incarnation: SharedJournal(JournalFolder(ask)),
        checkpoint=Checkpoint(ask, process.query),
        participants=[Store(ask, process.name, named=setting.named)],
        choices=Choices(adopt=frozenset(process.adopt)),
        start_ids=lambda: process.name,
        retain=0,
    )
    try:
        coordinator.begin()
        for epoch in range(int(ask("committed")), setting.epochs):
            coordinator.settle()
            coordinator.run(epoch, None)
            if not ask("checkpoint", epoch):
                return "stopped: Spark found commits/N"
        coordinator.settle()
    except EpochalError as fault:
        return f"stopped: {type(fault).__name__}"
    return "finished"


def execute(world: World, process: Process, operation: Operation) -> tuple[World, Any]:
    """The world after an operation, and its answer."""
    kind, *rest = operation
    mine = process.journal
    register = Lineages(world.version, {claim.lineage: claim for claim in world.claims})
    match kind:
        case "names":
            return world, tuple(sorted(world.journals[mine]))
        case "read":
            return world, dict(world.journals[mine]).get(rest[0])
        case "create":
            if any(name == rest[0] for name, _ in world.journals[mine]):
                return world, False
            added = world.journals[mine] | {(rest[0], rest[1])}
            return world._replace(journals=_with(world.journals, mine, added)), True
        case "committed":
            return world, world.commits[mine]
        case "checkpoint":
            if world.commits[mine] != rest[0]:
                return world, False
            return world._replace(commits=_with(world.commits, mine, rest[0] + 1)), True
        case "open":
            return world, (world.version, world.claims, world.visible)
        case "claim":
            if world.version != rest[1]:
                return world, False
            after = register.with_claim(rest[0])
            late = {(lineage, _last(world, lineage)) for lineage in rest[0].replaces}
            claimed = world._replace(version=after.version, claims=frozenset(after.claims.values()))
            return claimed._replace(late=world.late | late), True
        case "withdraw":
            without = register.without(rest[0])
            given_back = world._replace(version=without.version, claims=frozenset(without.claims.values()))
            going_on = frozenset(taken for taken in world.late if taken[0] not in rest[0].replaces)
            return given_back._replace(late=going_on), None
        case "holder":
            return world, register.holder(rest[0])
        case "stage":
            kept = frozenset(piece for piece in world.staged if piece[0] != rest[0])
            return world._replace(staged=kept | {(rest[0], rest[1])}), None
        case "abort":
            return world._replace(staged=frozenset(piece for piece in world.staged if piece[0] != rest[0])), None
        case "leftovers":
            return world, tuple(sorted(area for area, _ in world.staged if area[0] == rest[0]))
        case "commit":
            return _commit(world, *rest)
    raise ValueError(kind)


def _commit(world: World, area: Area, start: str, after: int | None) -> tuple[World, Any]:
    attempt = (*area[:3], start)
    there = [shown for shown, _ in world.visible if shown[:2] == area[:2]]
    if there:
        return world, Outcome.ALREADY_COMMITTED if there == [attempt] else TwoJournals
    if after is not None and not any(shown[:2] == (area[0], after) for shown, _ in world.visible):
        return world, Rewound
    mine = {piece for piece in world.staged if piece[0] == area}
    if not mine:
        return world, DataLost
    shows = {(attempt, rows) for _, rows in mine}
    return world._replace(staged=world.staged - mine, visible=world.visible | shows), Outcome.COMMITTED


def _with(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _last(world: World, lineage: str) -> int:
    return max((epoch for (owner, epoch, *_), _ in world.visible if owner == lineage), default=NO_EPOCH)


PRIVATE = ("names", "read", "create", "committed", "checkpoint")


class Explorer:
    """Searches one setting, breadth first."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._known: dict[tuple[int, Answers], Operation | str] = {}
        used = [process.journal for process in setting.processes]
        self._shared = {process.journal for process in setting.processes if used.count(process.journal) > 1}

    def run(self) -> int:
        """Search everything; the number of states."""
        count = len({process.journal for process in self._setting.processes})
        world = World((frozenset(),) * count, (0,) * count)
        if self._setting.copied:
            world = self._written_once(count)
        first = self._rested(world, tuple(() for _ in self._setting.processes))
        seen, layer = {first}, [first]
        while layer:
            following = []
            for state in layer:
                for after in self._successors(*state):
                    if after not in seen:
                        seen.add(after)
                        following.append(after)
            layer = following
        return len(seen)

    def _written_once(self, count: int) -> World:
        """The first epoch, by a start that is over, and a copy of its checkpoint for each journal."""
        alone = Explorer(Setting((Process("first"),), epochs=1, copied=False))
        state = alone._rested(World((frozenset(),), (0,)), ((),))
        while (following := alone._successors(*state)) != []:
            (state,) = following
        done = state[0]
        theirs = {process.journal: process.query for process in self._setting.processes}
        has = [theirs[journal] == "query" for journal in range(count)]  # another query begins with nothing
        journals = tuple(done.journals[0] if copied else frozenset() for copied in has)
        return done._replace(journals=journals, commits=tuple(int(copied) for copied in has))

    def _successors(self, world: World, pasts: tuple[Answers, ...]) -> list[tuple[World, tuple[Answers, ...]]]:
        found = []
        for index, past in enumerate(pasts):
            operation = self._next(index, past)
            if isinstance(operation, str):
                continue
            after, answer = execute(world, self._setting.processes[index], operation)
            found.append(self._rested(after, _with(pasts, index, (*past, answer))))
        return found

    def _rested(self, world: World, pasts: tuple[Answers, ...]) -> tuple[World, tuple[Answers, ...]]:
        """Take the steps that nobody else can see, and judge what is to be seen."""
        for index, process in enumerate(self._setting.processes):
            while not isinstance(operation := self._next(index, pasts[index]), str):
                if operation[0] not in PRIVATE or process.journal in self._shared:
                    break
                world, answer = execute(world, process, operation)
                pasts = _with(pasts, index, (*pasts[index], answer))
        self._check(world, pasts)
        return world, pasts

    def _next(self, index: int, past: Answers) -> Operation | str:
        """What a process asks next, or how it ended."""
        known = self._known.get((index, past))
        if known is None:
            answers = list(past)
            waiting: list[Operation] = []

            def ask(*operation: Any) -> Any:
                if answers:
                    return answers.pop(0)
                waiting.append(operation)
                raise Suspend

            try:
                known = drive(self._setting, self._setting.processes[index], ask)
            except Suspend:
                known = waiting[0]
            self._known[index, past] = known
        return known

    def _check(self, world: World, pasts: tuple[Answers, ...]) -> None:
        ends = [self._next(index, past) for index, past in enumerate(pasts)]
        finished = [process for process, end in zip(self._setting.processes, ends, strict=True) if end == "finished"]
        for process in finished:
            self._check_finished(world, process)
        if len({process.query for process in finished}) > 1:
            raise Found("double: two streams end well on one target")
        for lineage, last in world.late:
            if _last(world, lineage) > last + 1:
                raise Found(f"double: {lineage} goes on writing after another stream has taken its place")

    def _check_finished(self, world: World, process: Process) -> None:
        """Who ends well must find its own rows."""
        here = {p.name for p in self._setting.processes if p.journal == process.journal} | {"first"}
        for epoch in range(self._setting.epochs):
            makers = [rows for (owner, e, *_), rows in world.visible if (owner, e) == (process.query, epoch)]
            if not makers:
                raise Found(f"loss: {process.name} ends well, and its epoch {epoch} is not there")
            if not here.issuperset(makers):
                raise Found(
                    f"loss: {process.name} ends well, and in place of its epoch {epoch} are rows of {makers[0]}"
                )
