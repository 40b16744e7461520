"""Drivers of sinks that hold rows open over epochs, killed without Spark.

A matrix of its own: these sinks are judged by their rows, for what they show has no epoch in its name.

::

    python -m integration_tests.kill_matrix.rolling --every 4      says as JSON what was killed and what is wrong
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from epochal.testing import StandInQuery
from epochal.testing.processes import fork
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import EpochalError
from epochal.txn.failpoints import Armed, Failpoint
from epochal.txn.files import LocalFiles
from epochal.txn.model import Json
from epochal.txn.settler import Backoff, Settler
from epochal.txn.state.policy import Knobs, Policy
from epochal.txn.view import View
from integration_tests.kill_matrix.cases import Point, rows_of
from integration_tests.kill_matrix.driver import CHECKPOINT, JOURNAL, PATIENCE, QUERY, JournalOfACase, SparkFiles
from integration_tests.kill_matrix.lab import Ending, copy_state, jittered
from integration_tests.kill_matrix.workers import MEMORY
from tests.txn.keeping import Keeping

EPOCHS = 9
MOST = {"left": 2, "right": 1000}  # pieces of a part: the second's are closed between epochs alone
ROLLED_AFTER = (4, 6)  # epochs; so that what is open is folded away with the journal's records before
MERGING = Policy(knobs=Knobs(dirty_ratio=0.3))  # so that segments are merged within so few epochs
POINTS = failpoints.names(failpoints.PROTOCOL)
HITS = 3  # of each failpoint, and the last
RACES = 100


class SmallJournal(JournalOfACase):
    """It is folded each few epochs."""

    def compact(self, view: View, *, retain: int, slack: int = 2) -> None:
        super().compact(view, retain=retain, slack=slack)


def drive() -> None:
    """Start on whatever is in the working folder, run to the last epoch and close what is open."""
    files = LocalFiles(sync=False)
    query: StandInQuery[Sequence[Json]] = StandInQuery(SparkFiles(sync=False), CHECKPOINT, query_id=QUERY)
    coordinator: Coordinator[Sequence[Json]] = Coordinator(
        journals=lambda number: SmallJournal(files, JOURNAL if number == 1 else f"{JOURNAL}~{number}", policy=MERGING),
        checkpoint=query.checkpoint,
        participants=sinks(),
        retain=2,
    )
    settler = Settler(coordinator, backoff=Backoff(first=0.001, limit=0.05))

    def progress() -> None:
        settler.settle(PATIENCE)
        if query.checkpoint.committed() in ROLLED_AFTER:
            coordinator.roll()

    coordinator.begin()
    settler.settle(PATIENCE)
    query.run(EPOCHS, rows_of, settler.run, progress)
    settler.settle(PATIENCE)
    coordinator.roll(every=True)


def sinks() -> list[Keeping]:
    """Two folders whose rows are due to be closed as soon as they are there."""
    files = LocalFiles(sync=False)
    return [Keeping(name, name=name, files=files, most=most, idle=0.0) for name, most in MOST.items()]


def faults(case: Path, *, finished: bool = False) -> Iterator[str]:
    """What is wrong with what a driver has left."""
    commits = (case / CHECKPOINT / "commits").glob("[0-9]*")
    decided = range(max((int(path.name) for path in commits), default=-1) + 1)
    for name in MOST:
        sink = Keeping(str(case / name))
        seen = Counter(json.dumps(row) for row in sink.rows())
        epochs = {json.loads(row)["epoch"] for row in seen}
        yield from (f"doubled: {name} shows {row} {times} times" for row, times in seen.items() if times > 1)
        yield from (f"early view: {name} shows epoch {epoch}" for epoch in epochs if epoch not in decided)
        if finished:
            wanted = {json.dumps(row) for epoch in range(EPOCHS) for row in rows_of(epoch)}
            yield from (f"lost: {name} lacks {row}" for row in wanted - set(seen))
            yield from (f"left open: {name} keeps {piece}" for piece in sink.lying_open())
            staged = (path for path in (case / name / "_staged").rglob("*") if path.is_file())
            yield from (f"left over: {path.relative_to(case)}" for path in staged)


class Killing:
    """Kills drivers in copies of one case, and counts what became of them."""

    def __init__(self, root: Path, every: int) -> None:
        self.kills: Counter[str] = Counter()
        self.faults: dict[str, list[str]] = {}
        self.races_run: Counter[str] = Counter()
        self._root, self._every, self._number = root, every, 0

    def all(self) -> None:
        """Every failpoint at its first hits and its last; then some of the recovery from each, others each time."""
        new = self._root / "new"
        new.mkdir()
        hits = self._finish(self._copy(new), "no kill")
        points = [Point(name, hit) for name in POINTS for hit in _some(hits[name])]
        for turn, point in enumerate(points):
            left = self._kill(self._copy(new), point, str(point))
            again = self._finish(self._copy(left), str(point))
            for second in [name for name in POINTS if again[name]][turn % self._every :: self._every]:
                story = f"{point},{second}"
                self._finish(self._kill(self._copy(left), Point(second, 1), story), story)
            shutil.rmtree(left)

    def races(self, seeds: int) -> None:
        """Two drivers at once, timed by the seed, which fold the journal at once too; then one runs to the end."""
        new = self._root / "new"
        for seed in range(seeds):
            case = self._copy(new)
            drivers = [self._start(case, jittered(2 * seed + number)) for number in range(2)]
            endings = [Ending(os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])) for driver in drivers]
            self.races_run["both ended" if set(endings) == {Ending.DONE} else "one was overtaken"] += 1
            self._blame(f"race:{seed}", list(faults(case)))
            self._finish(case, f"race:{seed}")

    def _kill(self, case: Path, point: Point, story: str) -> Path:
        ended = self._run(case, Armed((Failpoint(point.name, "kill", point.hit),)))
        if ended is not Ending.KILLED:
            self._blame(story, [f"the driver was to be killed and ended {ended.name}"])
        self.kills[point.name] += 1
        self._blame(story, list(faults(case)))
        return case

    def _finish(self, case: Path, story: str) -> Counter[str]:
        counts = self._root / "counts"
        counts.write_text("")
        ended = self._run(case, Armed((), str(counts)))
        problems = [] if ended is Ending.DONE else [f"the last driver was to finish and ended {ended.name}"]
        self._blame(story, [*problems, *faults(case, finished=True)])
        shutil.rmtree(case)
        return Counter(counts.read_text().split())

    def _run(self, case: Path, armed: Armed) -> Ending:
        return Ending(os.waitstatus_to_exitcode(os.waitpid(self._start(case, armed), 0)[1]))

    def _start(self, case: Path, armed: Callable[[str], None]) -> int:
        child = fork()
        if child:
            return child
        ending = Ending.FAILED
        try:
            os.chdir(case)
            failpoints.hit = armed
            drive()
            ending = Ending.DONE
        except (EpochalError, OSError):
            ending = Ending.FENCED_OUT  # overtaken: by the journal, by a store, or by pieces that are gone
            if isinstance(armed, Armed):
                traceback.print_exc()
        except BaseException:  # noqa: BLE001  # the exit code tells it
            traceback.print_exc()
        finally:
            os._exit(ending)

    def _copy(self, case: Path) -> Path:
        self._number += 1
        copied = self._root / str(self._number)
        copy_state(case, copied)
        return copied

    def _blame(self, story: str, problems: list[str]) -> None:
        if problems:
            self.faults.setdefault(story, []).extend(problems)


def _some(hits: int) -> list[int]:
    return [hit for hit in range(1, hits + 1) if hit <= HITS or hit == hits]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--every", type=int, default=1, help="a sample: every so many of the second kills")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        killing = Killing(Path(folder), given.every)
        gc.freeze()  # what is there now need not be looked at, and copied, in every child
        killing.all()
        killing.races(RACES // given.every)
    json.dump({"kills": killing.kills, "races": killing.races_run, "faults": killing.faults}, sys.stdout)


if __name__ == "__main__":
    main()
