"""How a case is played and judged."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from integration_tests.kill_matrix import checker
from integration_tests.kill_matrix.cases import CHANGE, Case, Point
from integration_tests.kill_matrix.lab import Driver, Ending, Lab
from integration_tests.kill_matrix.reader import Reader

OVERTAKEN = (Ending.FENCED_OUT, Ending.CONCURRENT_UPDATE)
IN_A_BATCH = ("stage", "write", "prepared")


@dataclass
class MatrixResult:
    """What a worker has done and found."""

    kills: Counter[str] = field(default_factory=Counter)  # by point
    holds: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)  # of drivers that were overtaken
    cases: int = 0
    looks: int = 0
    faults: dict[str, list[str]] = field(default_factory=dict)  # by case


class Matrix:
    """Plays cases in a lab and counts what became of them."""

    def __init__(self, lab: Lab, say: Callable[[str], None] | None = None) -> None:
        self.lab = lab
        self.result = MatrixResult()
        self.names: dict[str, str] = {}  # live case -> the case that it belongs to
        self._say = say
        self._parent = os.getppid()

    def play(self, case: Case) -> None:
        """One case from its beginning."""
        path = self.killed(case)
        if case.holds:
            self.hold(path, case)
        if case.race is not None:
            self.race(path, case)
        self.finish(path, case)

    def killed(self, case: Case) -> Path:
        """A live case after the kills of its spelling."""
        path = self.lab.new(case.stream)
        for number in range(len(case.kills)):
            self.kill(path, Case(case.stream, case.kills[: number + 1], broken=case.broken))
        return path

    def kill(self, path: Path, case: Case) -> bool:
        """Kill a driver at the last point of the case and look at what it leaves."""
        self._begin(path, case)
        point = case.kills[-1]
        ending = self.lab.run(path, case.stream, kill=point, broken=case.broken)
        self._tell(f"killed at {point}: {ending.name}", path)
        if ending is not Ending.KILLED:
            self._blame(case, [f"the driver was to be killed at {point} and ended {ending.name}"])
            return False
        self.result.kills[point.name] += 1
        self._blame(case, checker.frozen(path, case.stream))
        return True

    def finish(self, path: Path, case: Case, *, count: bool = False) -> Counter[str]:
        """Start once more, run to the end and judge; the case is over. Counts hits if asked."""
        self._begin(path, case)
        self.result.cases += 1
        hits: Counter[str] = Counter()
        if count:
            ending, hits = self.lab.count(path, case.stream, broken=case.broken)
        else:
            ending = self.lab.run(path, case.stream, broken=case.broken)
        self._tell(f"started once more: {ending.name}", path)
        if ending is not Ending.DONE:
            self._blame(case, [f"the last driver was to finish and ended {ending.name}"])
        else:
            self._blame(case, checker.finished(path, case.stream))
        self.lab.end(path)
        return hits

    def hold(self, path: Path, case: Case) -> None:
        """Hold one driver at a point while a second runs: to its end, or to a point of its own.

        In the second case the first is let go to its end before the second is.
        """
        self._begin(path, case)
        stream, broken = case.stream, case.broken
        first = self.lab.start(path, stream, holds=case.holds[:1], broken=broken)
        if not self.lab.is_held(first):
            self._blame(case, [f"the first driver never came to {case.holds[0]}: {self.lab.wait(first).name}"])
            return
        self.result.holds[case.holds[0].name] += 1
        second = self.lab.start(path, stream, holds=case.holds[1:], broken=broken)
        if case.holds[1:]:
            held = self.lab.is_held(second)
            self._let_go(first, case)
            self._tell("the first driver has ended", path)
            self._blame(case, checker.frozen(path, stream))
            if held:
                # A world in which the second driver never goes on.
                self.finish(self.lab.copy(path, stream), case)
            self._let_go(second, case)
        else:
            if (ending := self.lab.wait(second)) is not Ending.DONE:
                self._blame(case, [f"the second driver was alone and ended {ending.name}"])
            self._tell("the second driver has ended", path)
            self._let_go(first, case, must_stop=case.holds[0].name.partition("-")[2] in IN_A_BATCH)
        self._tell("both have ended", path)
        self._blame(case, checker.frozen(path, stream))

    def race(self, path: Path, case: Case) -> None:
        """Two or three drivers at once, timed by the seed; some seeds kill one of them."""
        self._begin(path, case)
        chance = random.Random(case.race)
        drivers = []
        for _ in range(chance.choice((2, 2, 3))):
            kill = Point(CHANGE, chance.randint(1, 60)) if chance.random() < 0.25 else None
            seed = chance.randrange(1 << 30)
            drivers.append((kill, self.lab.start(path, case.stream, kill=kill, jitter=seed, broken=case.broken)))
        for kill, driver in drivers:
            ending = self.lab.wait(driver)
            if ending is Ending.KILLED and kill:
                self.result.kills["any"] += 1
            else:
                self._judge(case, ending)
        self._tell("all have ended", path)
        self._blame(case, checker.frozen(path, case.stream))

    def _let_go(self, driver: Driver, case: Case, *, must_stop: bool = False) -> None:
        self.lab.release(driver)
        self._judge(case, self.lab.wait(driver), must_stop=must_stop)

    def _judge(self, case: Case, ending: Ending, *, must_stop: bool = False) -> None:
        """Whether a driver that may have been overtaken ended as it should."""
        self.result.endings[ending.name] += 1
        if ending not in OVERTAKEN and (must_stop or ending is not Ending.DONE):
            self._blame(case, [f"a driver that another had overtaken ended {ending.name}"])

    def _tell(self, what: str, path: Path) -> None:
        if self._say:
            self._say(f"{what}\n{self.lab.tree(path)}")

    def _begin(self, path: Path, case: Case) -> None:
        if os.getppid() != self._parent:
            sys.exit("the test that started this worker is gone")
        self.names[path.name] = str(case)

    def _blame(self, case: Case, faults: list[str]) -> None:
        if faults:
            log = self.lab.log().strip().splitlines()
            self.result.faults.setdefault(str(case), []).extend([*faults, *log[-1:]])
        self.lab.forget_log()


def watched(matrix: Matrix, play: Callable[[], None]) -> MatrixResult:
    """The result after some cases were played under the eyes of a reader."""
    reader = Reader(matrix.lab.live, matrix.lab.root / "seen")
    reader.start()
    try:
        play()
    finally:
        seen = reader.stop()
    matrix.result.looks += seen.looks
    for name, fault in dict.fromkeys(seen.faults):
        matrix.result.faults.setdefault(matrix.names.get(name, name), []).append(f"seen by the reader: {fault}")
    return matrix.result
