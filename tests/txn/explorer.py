"""Every order of the operations of several drivers, searched to the end.

A state is a world and where each driver stands. From each state every driver is tried next; a
driver that is not tried again is one that stalled or died there. Every world is checked for what
the promise forbids (`world.faults`), and from every world a fresh driver is run alone to its end,
as after the death of all others: then every epoch must be there and nothing left over. A driver
may end because it was fenced or came too late, never by another error.

Three reductions, all exact: drivers are alike, so states that differ only in who is who are one; a
step that changes nothing and would give the same result at any later time is taken at once; and a
driver forgets what no later line of its code reads (`drivers.FORGET`). `test_explorer` compares with
a search without any of them, and has every forgetful step taken from several pasts (`doubting`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from epochal.txn.state.store import number_of_segment
from tests.txn.drivers import Place, Waiting, advance
from tests.txn.world import Operation, Setting, World, decoded, execute, faults, is_idle_for_good, unfinished

PASTS = 4  # that a doubting explorer compares for each driver
BITS = 20  # of a packed state for each driver
MASK = (1 << BITS) - 1
ENDED = 0


class Found(Exception):
    """The promise can be broken: how, and the shortest way there."""

    def __init__(self, fault: str, trace: list[str]) -> None:
        self.fault, self.trace = fault, trace
        super().__init__("\n".join([*trace, fault]))


class _Broken(Exception):
    """A fault on its way to the search, which knows how it came about."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search went through."""

    states: int
    worlds: frozenset[World]

    def __str__(self) -> str:
        return f"{self.states:,} states, {len(self.worlds):,} worlds"


class Explorer:
    """Searches one setting. Worlds and drivers are numbered, so that a state is one integer."""

    def __init__(
        self, setting: Setting, progress: Callable[[str], None] = lambda line: None, *, doubting: bool = False
    ) -> None:
        self._setting = setting
        self._doubting = doubting
        self._pasts: dict[int, set[tuple[Any, ...]]] = {}
        self._progress = progress
        self._worlds: list[World] = []
        self._world_ids: dict[World, int] = {}
        self._drivers: list[Waiting | Place] = []
        self._driver_ids: dict[Any, int] = {}
        self._steps: dict[int, tuple[int, int]] = {}  # world and driver -> the same after the driver's operation
        self._answers: dict[tuple[int, Any], int] = {}  # driver and result -> driver
        self._rests: dict[int, int] = {}  # world and driver -> driver after its idle operations
        self._sound: set[int] = set()  # world and driver from which a lone driver ends well
        self._recovered: set[int] = set()  # worlds from which a fresh driver ends well
        self._number_driver(Place("ended"))
        first = Place("begin" if setting.begin_first else "start")
        self._fresh = self._number_driver(advance(setting, first, ()))

    def run(self) -> Explored:
        """Search everything."""
        cleaner = self._number_driver(advance(self._setting, Place("recover"), ()))
        processes = [self._fresh] * self._setting.starts + [cleaner] * self._setting.cleaners
        first = self._pack(self._number_world(World()), processes)
        came_from: dict[int, int] = {first: -1}
        layer, depth = [first], 0
        while layer:
            following = []
            for state in layer:
                try:
                    successors = self._successors(state)
                except _Broken as broken:
                    raise Found(str(broken), self._tell(state, came_from)) from None
                for after in successors:
                    if after not in came_from:
                        came_from[after] = state
                        following.append(after)
            layer, depth = following, depth + 1
            if depth % 10 == 0:
                self._progress(f"depth {depth}: {len(came_from):,} states")
        return Explored(len(came_from), frozenset(self._worlds[self._unpack(state)[0]] for state in came_from))

    def _successors(self, state: int) -> list[int]:
        world, drivers = self._unpack(state)
        found = []
        last = ENDED
        for index, driver in enumerate(drivers):
            if driver != ENDED and (driver != last or not self._setting.reduced):
                after, moved = self._step(world, driver)
                found.append(self._moved(world, drivers, index, after, moved))
            last = driver
        return found

    def _moved(self, world: int, drivers: list[int], index: int, after: int, moved: int) -> int:
        """The state after one driver has moved."""
        drivers = drivers.copy()
        if after != world:
            rests = self._rests
            for other, driver in enumerate(drivers):
                known = rests.get(after << BITS | driver)
                drivers[other] = self._rest(after, driver) if known is None else known
        drivers[index] = moved
        return self._pack(after, drivers)

    def _step(self, world: int, driver: int) -> tuple[int, int]:
        """Execute a driver's operation, and run a fresh driver alone from the world it makes."""
        after, moved = self._steps.get(world << BITS | driver) or self._execute(world, driver)
        if after not in self._recovered:
            self._check_alone(after)
            self._recovered.add(after)
        return after, moved

    def _execute(self, world: int, driver: int) -> tuple[int, int]:
        """Execute a driver's operation."""
        key = world << BITS | driver
        known = self._steps.get(key)
        if known is None:
            waiting = self._drivers[driver]
            assert isinstance(waiting, Waiting)
            after, result = execute(self._worlds[world], waiting.operation)
            number = self._number_world(after)
            known = number, self._rest(number, self._answer(driver, result))
            self._steps[key] = known
        return known

    def _rest(self, world: int, driver: int) -> int:
        """Take the operations of a driver that can matter to nobody."""
        key = world << BITS | driver
        known = self._rests.get(key)
        if known is None:
            known = driver
            waiting = self._drivers[driver]
            if isinstance(waiting, Waiting) and is_idle_for_good(self._worlds[world], waiting.operation, self._setting):
                _, result = execute(self._worlds[world], waiting.operation)
                known = self._rest(world, self._answer(driver, result))
            self._rests[key] = known
        return known

    def _answer(self, driver: int, result: Any) -> int:
        """Where a driver stands once its operation has given a result."""
        known = self._answers.get((driver, result))
        if known is None:
            waiting = self._drivers[driver]
            assert isinstance(waiting, Waiting)
            after = advance(self._setting, waiting.place, (*waiting.past, result))
            if isinstance(after, Place) and after.phase == "broken":
                raise _Broken(f"a driver ends with {after.error}")
            known = self._answers[driver, result] = self._number_driver(after)
            for past in self._pasts.get(driver, ()):
                other = advance(self._setting, waiting.place, (*past, result))
                assert self._number_driver(other) == known, f"{waiting.key} does not say all of {past} that counts"
        return known

    def _check_alone(self, world: int) -> None:
        """Run a fresh driver from here, with everybody else dead."""
        driver = self._rest(world, self._fresh)
        way = []
        while (key := world << BITS | driver) not in self._sound:
            way.append(key)
            if driver == ENDED:
                for fault in unfinished(self._worlds[world], self._setting):
                    raise _Broken(fault)
                break
            world, driver = self._execute(world, driver)
        self._sound.update(way)

    def _number_world(self, world: World) -> int:
        known = self._world_ids.get(world)
        if known is None:
            for fault in faults(world, self._setting):
                raise _Broken(fault)
            known = self._world_ids[world] = len(self._worlds)
            self._worlds.append(world)
        return known

    def _number_driver(self, driver: Waiting | Place) -> int:
        key = driver.key if isinstance(driver, Waiting) else driver
        known = self._driver_ids.get(key)
        if known is None:
            known = self._driver_ids[key] = len(self._drivers)
            self._drivers.append(driver)
        if self._doubting and isinstance(driver, Waiting):
            pasts = self._pasts.setdefault(known, set())
            if len(pasts) < PASTS:
                pasts.add(driver.past)
        return known

    def _pack(self, world: int, drivers: list[int]) -> int:
        for driver in sorted(drivers) if self._setting.reduced else reversed(drivers):
            world = world << BITS | driver
        return world

    def _unpack(self, state: int) -> tuple[int, list[int]]:
        drivers = []
        for _ in range(self._setting.starts + self._setting.cleaners):
            drivers.append(state & MASK)
            state >>= BITS
        return state, drivers

    def _tell(self, state: int, came_from: dict[int, int]) -> list[str]:
        """The way to a state and the step after it that broke the promise, a line for each operation."""
        way = [state]
        while came_from[way[-1]] != -1:
            way.append(came_from[way[-1]])
        world, drivers = self._unpack(way.pop())
        lines: list[str] = []
        while way:
            wanted = way.pop()
            for index in range(len(drivers)):
                if drivers[index] != ENDED:
                    after, moved = self._step(world, drivers[index])
                    if self._moved(world, drivers, index, after, moved) == wanted:
                        break
            lines.append(self._line(chr(ord("A") + index), world, drivers[index]))
            drivers = [self._rest(after, driver) for driver in drivers]
            world, drivers[index] = after, moved
        for index, driver in enumerate(drivers):
            if driver == ENDED:
                continue
            try:
                self._step(world, driver)
            except _Broken:
                lines.append(self._line(chr(ord("A") + index), world, driver))
                return lines + self._tell_alone(world, driver)
        raise AssertionError("the step that broke the promise did not do it again")

    def _tell_alone(self, world: int, driver: int) -> list[str]:
        """The way of the fresh driver, if that is what broke the promise."""
        try:
            world, _ = self._execute(world, driver)
        except _Broken:
            return []
        lines = ["all drivers die; Z starts and runs alone"]
        driver = self._rest(world, self._fresh)
        while driver != ENDED:
            lines.append(self._line("Z", world, driver))
            try:
                world, driver = self._execute(world, driver)
            except _Broken:
                break
        return lines

    def _line(self, who: str, world: int, driver: int) -> str:
        waiting = self._drivers[driver]
        assert isinstance(waiting, Waiting)
        _, result = execute(self._worlds[world], waiting.operation)
        return f"{who} {waiting.place.phase}: {_described(waiting.operation, result)}"


def _described(operation: Operation, result: Any) -> str:
    match operation:
        case ("create", name, data) if number_of_segment(name) is not None:
            return f"writes {name}, {len(data)} bytes" + ("" if result else ": there is one already")
        case ("create", name, data):
            record = decoded(name, data)
            return f"{record.kind} in {name}" + ("" if result else ": there is one already")
        case ("names",):
            return f"reads the journal: {' '.join(name.removesuffix('.json') for name, _ in result) or 'empty'}"
        case _:
            text = " ".join(map(str, operation))
            return text if result is None else f"{text}: {result}"
