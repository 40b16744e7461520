"""A driver as a step machine: the real coordinator, stopped in front of each of its operations.

A driver is a deterministic function of the results of its operations. To advance it by one, its
code is run again from the start of its phase with the results so far; at the first operation that
has no result yet, `Suspend` unwinds it. No threads, so every order can be tried and repeated.

What Spark does is part of the driver. Its phases, for each epoch the last five::

    start ─> plan ─> begin ─> before ─> run ─> checkpoint ─> after ─> ended
             no epoch left: ─> last ─> ended    fenced, or commits/N was there: ─> last ─> ended

`before`, `after` and `last` settle, and in eager mode so does `inside`, between run and checkpoint.
A cleaner is a process of two phases, `recover` and `gc`, or three, `recover`, `roll-all` and `carry`.
Where parts stay open, `roll` comes before `run`, and before each end `close`.
A phase hands the next one only its epoch and generation: the coordinator keeps nothing else that
counts (its journal caches files that never change).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeAlias

from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import FencedOut, OffsetsChanged, Refused
from epochal.txn.guard import StartPlan
from epochal.txn.model import Memory
from epochal.txn.participant import Participant
from epochal.txn.recovery import Sinks, fence, roll_all
from epochal.txn.settlement import clear
from epochal.txn.start import Generation
from epochal.txn.view import View, fold
from tests.txn.fronts import CompactedJournal, JournalFolder, PiecesGone, SharedCheckpoint, SharedJournal, stores
from tests.txn.world import Operation, Setting

ONLY = "only"  # the copy of the checkpoint that all drivers share
LISTINGS = ("leftovers", "gathered")  # results that a loop goes through while the journal is read again

logging.getLogger("epochal").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Place:
    """A driver between two phases."""

    phase: str
    epoch: int = 0
    generation: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A driver in front of an operation."""

    place: Place
    past: tuple[Any, ...]
    operation: Operation
    key: tuple[Any, ...]  # what its future depends on


class Suspend(BaseException):
    """The driver has come to an operation that has no result yet."""


def advance(setting: Setting, place: Place, past: tuple[Any, ...]) -> Waiting | Place:
    """Run a driver from the start of a phase until it waits for an operation or has ended."""
    while True:
        if place.phase in ("ended", "broken"):
            return place
        replay = Replay(past)
        try:
            place = _PHASES[place.phase](setting, replay, place)
        except Suspend:
            assert replay.waits_for is not None
            key = replay.key if setting.reduced else past
            return Waiting(place, past, replay.waits_for, (place, replay.waits_for, key))
        except Exception as fault:  # noqa: BLE001 - whatever it is, the explorer reports it
            place = Place("broken", error=f"{type(fault).__name__}: {fault}")
        past = ()


class Replay:
    """Answers operations from the past; suspends at the first new one."""

    def __init__(self, past: tuple[Any, ...]) -> None:
        self._past = past
        self._next = 0
        self._last: dict[str, Any] = {}  # results that no frame shows: of a loop, of a call whose arguments are made
        self.waits_for: Operation | None = None
        self.key: tuple[Any, ...] = ()

    def ask(self, *operation: Any) -> Any:
        if operation == ("names",) and sys._getframe(2).f_code.co_name == "current_journal":
            return ()  # it looks for a closed journal, and nobody closes any here
        if self._next < len(self._past):
            self._next += 1
            result = self._past[self._next - 1]
            if operation[0] == "names":
                self._last = {k: v for k, v in self._last.items() if k in LISTINGS}
            self._last[operation[0]] = result
            return result
        if self.waits_for is None:  # else: code that cleans up while Suspend passes through it
            self.waits_for = operation
            self.key = tuple(_stack(sys._getframe(1), operation[0], self._last))
        raise Suspend

    def coordinator(self, setting: Setting, generation: int) -> Coordinator[None]:
        kind = CompactedJournal if setting.compacted else SharedJournal
        journal = kind(JournalFolder(self.ask))
        made: Coordinator[None] = Coordinator(
            journals=lambda incarnation: journal,
            checkpoint=SharedCheckpoint(self.ask),
            participants=stores(self.ask, setting),
            eager=setting.eager,
            retain=1 if setting.compacted else 0,
            start_ids=lambda: ONLY,
        )
        record = made._starts.record(1, fold(()), StartPlan(base=0), at=journal.now())
        if generation:  # word for word what `begin` has recorded
            made._generation = Generation(journal, 1, replace(record, generation=generation), fold(()), {}, {})
        return made


def _start(setting: Setting, replay: Replay, place: Place) -> Place:
    """Spark reads commits/ to find the epoch to go on with."""
    epoch = replay.ask("committed") + 1
    if epoch < setting.epochs:
        return Place("plan", epoch, place.generation)
    return Place("last" if place.generation else "begin", epoch, place.generation)


def _plan(setting: Setting, replay: Replay, place: Place) -> Place:
    replay.ask("plan", place.epoch)
    return replace(place, phase="before" if place.generation else "begin")


def _begin(setting: Setting, replay: Replay, place: Place) -> Place:
    coordinator = replay.coordinator(setting, 0)
    try:
        coordinator.begin()
    except FencedOut:
        return Place("ended")  # a newer start has claimed the stores
    if setting.begin_first:
        return Place("start", 0, coordinator.generation)
    return Place("before" if place.epoch < setting.epochs else "last", place.epoch, coordinator.generation)


def _settle(setting: Setting, replay: Replay, place: Place) -> Place:
    replay.coordinator(setting, place.generation).settle()
    match place.phase:
        case "before":
            return replace(place, phase="roll" if place.generation in setting.rolls else "run")
        case "recover":
            return replace(place, phase="roll-all" if setting.roller else "gc")
        case "inside":
            return replace(place, phase="checkpoint")
        case "after" if place.epoch + 1 < setting.epochs:
            return replace(place, phase="plan", epoch=place.epoch + 1)
        case "after" | "last" if setting.rolling:
            return replace(place, phase="close")
        case _:
            return Place("ended")


def _roll(setting: Setting, replay: Replay, place: Place) -> Place:
    try:
        replay.coordinator(setting, place.generation).roll(every=True)
    except (FencedOut, PiecesGone):
        return Place("ended") if place.phase == "close" else replace(place, phase="last")
    return Place("ended") if place.phase == "close" else replace(place, phase="run")


class KnownSinks(Sinks):
    """What `epochal roll` has read of the generations, named by what it has read."""

    def __init__(self, view: View, store: Participant[None]) -> None:
        super().__init__(view, lambda _: store)
        self._read = sorted(view.generations)

    def __repr__(self) -> str:
        return f"sinks of {self._read}"


class AllSinks(Sinks):
    """The sinks of a setting, whatever the journal says."""

    def __init__(self, sinks: Sequence[Participant[None]]) -> None:
        super().__init__(fold(()), lambda description: {s.name: s for s in sinks}[str(description["target"])])

    def __repr__(self) -> str:
        return "all sinks"


def _roll_all(setting: Setting, replay: Replay, place: Place) -> Place:
    coordinator = replay.coordinator(setting, 0)
    (store,) = stores(replay.ask, setting)
    view = coordinator.journal.read()
    try:
        roll_all(
            coordinator.journal,
            coordinator._checkpoint,
            coordinator.lineage,
            KnownSinks(view, store),
            start_ids=lambda: ONLY,
        )
    except (FencedOut, Refused):
        return Place("ended")  # no driver has started yet, another starts now, or an epoch is in doubt
    return replace(place, phase="carry")


def _run(setting: Setting, replay: Replay, place: Place) -> Place:
    try:
        replay.coordinator(setting, place.generation).run(place.epoch, None)
    except (FencedOut, PiecesGone):
        return replace(place, phase="last")
    except OffsetsChanged:
        if not setting.compacted:
            raise
        return replace(place, phase="last")  # Spark read commits/ so long ago that the epoch has been folded away
    return replace(place, phase="inside" if setting.eager else "checkpoint")


def _checkpoint(setting: Setting, replay: Replay, place: Place) -> Place:
    """Spark writes commits/N; if another driver has, it ends the query."""
    created = replay.ask("checkpoint", place.epoch)
    return replace(place, phase="after" if created else "last")


def _gc(setting: Setting, replay: Replay, place: Place) -> Place:
    coordinator = replay.coordinator(setting, 0)
    journal = coordinator.journal
    sinks = stores(replay.ask, setting)
    try:
        newest = journal.read().generation
        if setting.fencing:
            newest = fence(journal, coordinator.lineage, AllSinks(sinks), start_ids=lambda: ONLY)
    except Refused:
        return Place("ended")  # no driver has started yet
    clear(journal, sinks, coordinator.lineage, newest=newest, by=newest)
    return Place("ended")


_PHASES: dict[str, Callable[[Setting, Replay, Place], Place]] = {
    "start": _start,
    "plan": _plan,
    "begin": _begin,
    "before": _settle,
    "run": _run,
    "inside": _settle,
    "checkpoint": _checkpoint,
    "after": _settle,
    "last": _settle,
    "recover": _settle,
    "gc": _gc,
    "roll": _roll,
    "close": _roll,
    "roll-all": _roll_all,
    "carry": _settle,
}


Forget: TypeAlias = Callable[[str, dict[str, Any], dict[str, Any]], Any]


def _stack(frame: FrameType | None, operation: str, last: dict[str, Any]) -> list[Any]:
    """Where the code under test stands and what it holds there, without what no later line reads."""
    found = []
    while frame is not None and frame.f_code.co_filename != __file__:
        module = frame.f_globals["__name__"]
        if module != stores.__module__:
            live = FORGET.get(frame.f_code.co_name, _everything)(operation, frame.f_locals, last)
            # A rule that a test has changed may hold anything anywhere.
            known = last if not module.startswith("epochal.txn") else None
            found.append((frame.f_code.co_name, frame.f_lasti, repr((live, known))))
            if frame.f_code.co_name in ("_finish", "carry_out_rolls"):
                operation = frame.f_code.co_name  # whatever it waits for, to its caller it is one step
        frame = frame.f_back
    return found


def _everything(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    # ".0" is the iterator of a comprehension, which is over sinks: the variable beside it says where it stands.
    return sorted((name, value) for name, value in held.items() if name not in ("self", ".0") and not callable(value))


def _of_begin(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    return held["self"].generation


def _of_claim(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    if "observed" in held:
        return _versions(held["observed"].memories)
    return (held["before"].latest is None, _done(held["before"])) if "before" in held else ()


def _of_observe(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    before = held["before"].latest is None, _done(held["before"])
    match operation:
        case "open":
            return before, last.get("open")
        case "committed":
            return before, held["memories"]
        case _:
            return before, held["memories"], last["committed"]


def _of_settle(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    if "journal" not in held:
        return ()  # the coordinator's own, which only passes on
    match operation:
        case "committed":
            return ()  # nothing is known yet
        case "names":
            return held["committed"]
        case "offsets" | "carry_out_rolls":
            return held["committed"], held["view"]
        case _:
            return held["committed"], held["step"], _done(held["view"])


def _of_finish(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    return _everything(operation, {**held, "view": _done(held["view"])}, last)


def _of_run(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    return held.get("attempt", held.get("view")), held.get("rolled")


def _of_clear(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    names = ("newest", "participant", "holder", "attempt", "verdict")
    return [held.get(name) for name in names], [last.get(listing) for listing in LISTINGS]


def _of_claim_targets(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    generation = held["generation"]
    return generation.number, held.get("name"), _versions(generation.memories) if operation == "claim" else ()


def _versions(memories: Mapping[str, Memory]) -> list[int]:
    return [memory.version for memory in memories.values()]


def _of_release(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    return _everything(operation, {name: value for name, value in held.items() if name != "view"}, last)


def _of_bound(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    return held["name"], held.get("holder"), sorted(held["journal"].view.generations)


def _of_fold(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    if "plan" not in held:
        return _done(held["view"])  # the coordinator's own, which makes the plan
    plan = held["plan"]
    rolls = [roll.name for roll in plan.view.recorded_rolls()]
    view = plan.view.floor, plan.view.state_record, sorted(plan.view.decided.items()), rolls
    return view, plan.through, plan.may_roll, sorted(plan.open_generations), held.get("number")


def _of_purge(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    if "obsolete" in held:
        return held["obsolete"], held["name"]
    return held.get("names"), held.get("view")


def _of_store(operation: str, held: dict[str, Any], last: dict[str, Any]) -> Any:
    return _everything(operation, {name: value for name, value in held.items() if name not in ("view", "store")}, last)


def _done(view: View) -> Any:
    """What the guard asks of its first look, and compaction of any."""
    return view.floor, sorted(view.done)


# Function -> what of its locals a later line reads, given the operation it waits for. A function
# that is not listed keeps all of them: that costs time, never a state. `test_explorer` compares
# the worlds reached with and without this.
FORGET: dict[str, Forget] = {
    "begin": _of_begin,
    "_check_last": lambda operation, held, last: _done(held["view"]) if "view" in held else (),
    "claim": lambda operation, held, last: (),  # a loop of tries; a record to be made is in the operation itself
    "_claim": _of_claim,
    "_observe": _of_observe,
    "_claim_targets": _of_claim_targets,
    "settle": _of_settle,
    "_finish": _of_finish,
    "compact": lambda operation, held, last: (),  # what it does is in the plan
    "_carry_out": lambda operation, held, last: (),  # the same
    "_fold": _of_fold,
    "fold": _of_fold,
    "purge": _of_purge,
    "_store": _of_store,
    "_written": _of_store,
    "_merged": _of_store,
    "run": _of_run,
    "_release": _of_release,
    "_remove_superseded": _of_release,
    "_check_bound": _of_bound,
    "clear": _of_clear,
}
