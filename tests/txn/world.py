"""Everything that several drivers share, as one immutable value, and the operations on it.

A `World` is Spark's checkpoint, the journal and the stores. An operation is a plain tuple; `execute`
gives the world after it and its result, so a search can try any order. `fronts` turns what the code
under test calls into operations.

A store publishes under (epoch, generation), so an epoch committed from two attempts shows twice.
Staging an epoch takes two operations, one for each part of its rows, so that a sweep can fall between
them; what it removed stays missing. One sink stages both parts, or two sinks one each.

Where parts stay open over epochs (`Setting.rolling`) there is one sink, and its rows are known by their epochs: each
epoch adds a piece, the second piece (`Setting.most`) closes a part, and so does a roll. What is closed is copied while
it is staged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from epochal.txn.model import Outcome
from epochal.txn.records import Decided, Prepared, Record, decode
from epochal.txn.state.store import number_of_segment

QUERY = "query"
SINKS = {1: ((1, 2),), 2: ((1,), (2,))}  # how many sinks -> the parts of the rows that each holds

Operation: TypeAlias = tuple[Any, ...]
Parts: TypeAlias = tuple[int, ...]
Piece: TypeAlias = tuple[int, int, int]  # epoch, generation, part
Key: TypeAlias = tuple[int, int, int]  # epoch, generation, roll
Held: TypeAlias = tuple[Parts, int, int, str]  # sink, version of its register, and the generation and copy that hold it
Part: TypeAlias = tuple[Key, tuple[int, ...]]  # who closes it, and the epochs whose rows are in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is explored."""

    starts: int
    epochs: int
    sinks: int = 1
    eager: bool = False
    compacted: bool = False  # done epochs are folded away as early as can be
    cleaners: int = 0  # besides the drivers: `epochal recover`, then `epochal gc`, at any time
    fencing: bool = False  # `epochal gc --fence`
    begin_first: bool = False  # the coordinator begins before Spark reads commits/, not in the first batch
    rolling: bool = False  # parts stay open over epochs; all that is open is closed at a driver's end
    most: int = 2  # epochs of a part; with more, what is open outlives the records that say so
    rolls: frozenset[int] = frozenset()  # the generations that also close it before each of their epochs
    roller: bool = False  # the cleaners are `epochal roll` instead of `epochal gc`
    claims: bool = False  # stores are claimed; else each start holds them as it comes, which is so with one journal
    reduced: bool = True  # False: no two states are taken as one, and no step is taken out of turn

    def __str__(self) -> str:
        flags = ("eager", "compacted", "begin_first", "cleaners", "fencing", "rolling", "roller", "claims")
        modes = [name for name in flags if getattr(self, name)] + [f"{g} rolls" for g in sorted(self.rolls)]
        modes += [f"parts of {self.most}"] if self.most != 2 else []
        return " ".join([f"{self.starts} starts, {self.epochs} epochs, {self.sinks} sinks", *modes])


class World(NamedTuple):
    """All that outlives a driver."""

    journal: frozenset[tuple[str, bytes]] = frozenset()
    offsets: int = 0  # how many of offsets/0, offsets/1, ... there are
    commits: int = 0
    staged: frozenset[Piece] = frozenset()
    visible: frozenset[Piece] = frozenset()
    claims: frozenset[Held] = frozenset()
    gathered: frozenset[Part] = frozenset()  # staged by a sink that keeps parts open
    lying_open: frozenset[int] = frozenset()  # epochs whose pieces wait
    shown: frozenset[Part] = frozenset()


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


def _open(world: World, parts: Parts) -> tuple[World, Any]:
    epochs = {epoch for epoch, _ in shown(world.visible, parts)} | {key[0] for key, _ in world.shown if not key[2]}
    return world, (_held(world, parts), tuple(sorted(epochs)))


def _held(world: World, parts: Parts) -> Held:
    return next((held for held in world.claims if held[0] == parts), (parts, 0, 0, ""))


def _claim(world: World, parts: Parts, version: int, generation: int, copy: str) -> tuple[World, Any]:
    before = _held(world, parts)
    if before[1] != version:
        return world, False
    return world._replace(claims=world.claims - {before} | {(parts, version + 1, generation, copy)}), True


def _holder(world: World, parts: Parts) -> tuple[World, Any]:
    return world, _held(world, parts)[2:]


def _stage(world: World, epoch: int, generation: int, part: int) -> tuple[World, Any]:
    return world._replace(staged=world.staged | {(epoch, generation, part)}), None


def _commit(world: World, epoch: int, generation: int, parts: Parts) -> tuple[World, Any]:
    mine = pieces(world.staged, epoch, generation, parts)
    without = world._replace(staged=world.staged - mine)
    if pieces(world.visible, epoch, generation, parts):
        return without, Outcome.ALREADY_COMMITTED
    if not mine:
        return world, None
    return without._replace(visible=world.visible | mine), Outcome.COMMITTED


def _abort(world: World, epoch: int, generation: int, parts: Parts) -> tuple[World, Any]:
    return world._replace(staged=world.staged - pieces(world.staged, epoch, generation, parts)), None


def _leftovers(world: World, parts: Parts) -> tuple[World, Any]:
    return world, tuple(sorted(shown(world.staged, parts)))


def _gather(world: World, key: Key, closes: tuple[int, ...]) -> tuple[World, Any]:
    """Stage what becomes a part; False if pieces of it are gone."""
    if not {epoch for epoch in closes if key[2] or epoch != key[0]} <= world.lying_open:
        return world, False
    return world._replace(gathered=world.gathered | {(key, closes)}), True


def _show(world: World, key: Key, keeps: bool, spent: tuple[int, ...]) -> tuple[World, Any]:
    mine = {part for part in world.gathered if part[0] == key}
    known = any(part[0] == key for part in world.shown)
    if not known and not mine:
        return world, None
    opened = world.lying_open | {key[0]} if keeps and not known else world.lying_open
    after = world._replace(gathered=world.gathered - mine, lying_open=opened - set(spent))
    if known:
        return after, Outcome.ALREADY_COMMITTED
    return after._replace(shown=world.shown | mine), Outcome.COMMITTED


def _drop(world: World, key: Key) -> tuple[World, Any]:
    return world._replace(gathered=frozenset(part for part in world.gathered if part[0] != key)), None


def _gathered(world: World) -> tuple[World, Any]:
    return world, tuple(sorted(key for key, _ in world.gathered))


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
    "claim": _claim,
    "holder": _holder,
    "stage": _stage,
    "commit": _commit,
    "abort": _abort,
    "leftovers": _leftovers,
    "gather": _gather,
    "show": _show,
    "drop": _drop,
    "gathered": _gathered,
}


def pieces(where: frozenset[Piece], epoch: int, generation: int, parts: Parts) -> frozenset[Piece]:
    """What an attempt has somewhere in one sink."""
    return where & {(epoch, generation, part) for part in parts}


def shown(where: frozenset[Piece], parts: Parts) -> set[tuple[int, int]]:
    """The attempts that have something there, in one sink."""
    return {(epoch, generation) for epoch, generation, part in where if part in parts}


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
        case "claim":
            return bool(_held(world, arguments[0])[1] > arguments[1])
        case "commit":
            # An attempt is staged once, before it is prepared: nothing of it can come back.
            visible = pieces(world.visible, *arguments)
            return bool(visible) and not pieces(world.staged, *arguments)
        case "show":
            key, _, spent = arguments
            over = any(part[0] == key for part in world.shown) and not any(part[0] == key for part in world.gathered)
            return over and not world.lying_open & set(spent)
        case _:
            return False


def faults(world: World, setting: Setting) -> list[str]:
    """What the promise forbids and this world shows."""
    if setting.rolling:
        return _faults_of_parts(world, setting)
    found = []
    attempts, decided = _recorded(world.journal)
    for epoch in range(setting.epochs):
        committed = epoch < world.commits
        legal = {decided[epoch]} if epoch in decided else {g for e, g in attempts if e == epoch}
        winners = {g for e, g, _ in world.visible if e == epoch}
        if winners and not committed and not setting.eager:
            found.append(f"early view: epoch {epoch} is visible before commits/{epoch}")
        if len(winners) > 1:
            found.append(f"double: epoch {epoch} is visible from generations {sorted(winners)}")
        for parts in SINKS[setting.sinks]:
            visible = {e for e, _ in shown(world.visible, parts)}
            if any(len(pieces(world.visible, epoch, g, parts)) not in (0, len(parts)) for g in winners):
                found.append(f"loss: epoch {epoch} is visible without a part of its rows")
            if epoch in visible and epoch and epoch - 1 not in visible:
                found.append(f"order: epoch {epoch} is visible before epoch {epoch - 1}")
        if (committed or epoch in decided) and not any(_can_win(world, epoch, g, setting) for g in winners or legal):
            found.append(f"loss: epoch {epoch} is decided, and what its winner staged is gone")
    return found


def _faults_of_parts(world: World, setting: Setting) -> list[str]:
    found = []
    rows = [epoch for _, part in world.shown for epoch in part]
    for epoch in range(setting.epochs):
        if epoch in rows and epoch >= world.commits and not setting.eager:
            found.append(f"early view: epoch {epoch} is visible before commits/{epoch}")
        if rows.count(epoch) > 1:
            found.append(f"double: the rows of epoch {epoch} are in {rows.count(epoch)} parts")
        copies = [part for _, part in world.gathered if epoch in part]
        own = [key for key, _ in world.gathered if key[0] == epoch and not key[2]]
        committed = epoch < world.commits
        if committed and not (own or epoch in rows or epoch in world.lying_open or copies):
            found.append(f"loss: epoch {epoch} is committed and its rows are nowhere")
    return found


def _can_win(world: World, epoch: int, generation: int, setting: Setting) -> bool:
    """Whether each sink has an attempt whole, staged or visible."""
    return all(
        max(len(pieces(where, epoch, generation, parts)) for where in (world.staged, world.visible)) == len(parts)
        for parts in SINKS[setting.sinks]
    )


def unfinished(world: World, setting: Setting) -> list[str]:
    """What is missing in a world where one driver ran to its end and nobody else is alive."""
    if setting.rolling:
        return _unfinished_parts(world, setting)
    found = [f"staged data left: {sorted(world.staged)}"] if world.staged else []
    visible = [{epoch for epoch, _ in shown(world.visible, parts)} for parts in SINKS[setting.sinks]]
    if any(epochs != set(range(setting.epochs)) for epochs in visible):
        found.append(f"not every epoch is visible: {sorted(world.visible)}")
    return found


def _unfinished_parts(world: World, setting: Setting) -> list[str]:
    found = [f"staged data left: {sorted(world.gathered)}"] if world.gathered else []
    if world.lying_open:
        found.append(f"left open: {sorted(world.lying_open)}")
    if sorted(epoch for _, part in world.shown for epoch in part) != list(range(setting.epochs)):
        found.append(f"not every epoch is visible once: {sorted(world.shown)}")
    return found


def _recorded(journal: frozenset[tuple[str, bytes]]) -> tuple[set[tuple[int, int]], dict[int, int]]:
    attempts, decided = set(), {}
    for name, data in journal:
        if number_of_segment(name) is not None:
            continue
        record = decoded(name, data)
        if isinstance(record, Prepared):
            attempts.add((record.epoch, record.generation))
        elif isinstance(record, Decided):
            decided[record.epoch] = record.generation
    return attempts, decided


@cache
def decoded(name: str, data: bytes) -> Record:
    return decode(name, name, data)
