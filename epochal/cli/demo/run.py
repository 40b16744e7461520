"""Start, watch, kill, start again, count."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from epochal.cli.demo import orders
from epochal.cli.demo.count import Count, count, staged
from epochal.cli.demo.moments import MIDWAY, is_due, is_near, wanted
from epochal.cli.demo.places import Places
from epochal.cli.demo.process import Driver
from epochal.cli.demo.show import Progress, result_table
from epochal.cli.demo.watch import Sight, Watch
from epochal.cli.text import counted, paint, print_json_error
from epochal.txn.errors import Refused
from epochal.txn.model import Json

SYSTEMS = {"epochal, files": "by_day", "epochal, Delta": "lake", "foreachBatch append": "plain"}
# Seconds between two checks. The moments last some milliseconds, and each check takes CPU time from the driver.
PAUSE, PAUSE_WHEN_NEAR = 0.02, 0.001


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill -9, and the state of both queries."""

    seconds: float
    moment: str
    epochal: str
    plain: str


class DemoFailed(Exception):
    """The driver failed, took too long, or was not killed often enough."""


def run(*, epochs: int | None, rows: int, kills: int, keep: str | None, timeout: float, as_json: bool) -> int:
    """Run it. The exit code is 1 if a row of epochal is doubled, missing, wrong or was visible early."""
    epochs = max(epochs or 8, 2 * kills + 2)  # each start finishes one epoch before it is killed in another
    with _folder(keep) as root:
        places = Places(root)
        places.scratch.mkdir()
        progress = Progress(epochs=epochs, kills=kills, quiet=as_json)
        progress.event(f"{epochs * rows:,} orders in {epochs} files; each file becomes one epoch of two queries")
        orders.write(places.incoming, epochs=epochs, rows=rows)
        show = _Show(places, progress, epochs=epochs, kills=kills, deadline=time.monotonic() + timeout)
        try:
            show.run()
        except DemoFailed as fault:
            if as_json:
                print_json_error(fault, 1)
            else:
                print(f"{paint('epochal demo:', 'red', sys.stderr)} {fault}", file=sys.stderr)
            return 1
        finally:
            progress.end()
        return _report(show, places, epochs * rows, as_json=as_json)


class _Show:
    """Runs drivers, one after the other, until one ends by itself."""

    def __init__(self, places: Places, progress: Progress, *, epochs: int, kills: int, deadline: float) -> None:
        self._places = places
        self._progress = progress
        self._epochs = epochs
        self._wanted = kills
        self._deadline = deadline
        self.watch = Watch(places)
        self.kills: list[Kill] = []
        self.starts = 0

    @property
    def seconds(self) -> float:
        return self._progress.seconds

    def run(self) -> None:
        """Start and kill until one ends by itself."""
        while not self._run_driver():
            pass
        if len(self.kills) < self._wanted:
            raise DemoFailed(
                f"only {counted(len(self.kills), 'kill')} of {self._wanted} hit a driver within an epoch; run it again"
            )
        self._progress.event(f"driver {self.starts} has ended; counting")

    def _run_driver(self) -> bool:
        """One start; True if it ended by itself, False if it was killed."""
        self.starts += 1
        driver = Driver(self._places)
        self._progress.event(f"driver {self.starts} started: process group {driver.pid}, Python and JVM")
        try:
            self.watch.driver_started()
            at_start = self.watch.look()
            while (code := driver.ended()) is None:
                sight = self.watch.look()
                self._progress.show(sight, len(self.kills))
                if self._kill(driver, sight, at_start):
                    return False
                if time.monotonic() > self._deadline:
                    raise DemoFailed(f"not finished in time; end of the driver's log:\n{_tail(self._places.log)}")
                time.sleep(PAUSE_WHEN_NEAR if self._is_near(sight, at_start) else PAUSE)
        finally:
            driver.kill()
        if code != 0:
            raise DemoFailed(f"the driver ended with exit code {code}:\n{_tail(self._places.log)}")
        return True

    def _is_near(self, sight: Sight, at_start: Sight) -> bool:
        return len(self.kills) < self._wanted and is_near(wanted(len(self.kills)), sight, at_start)

    def _kill(self, driver: Driver, sight: Sight, at_start: Sight) -> bool:
        """Kill the driver if this is the moment, and still is once the driver is stopped."""
        if not self._is_near(sight, at_start):
            return False
        moment = wanted(len(self.kills))
        if not is_due(moment, sight, at_start, self._epochs):
            return False
        last = sight

        def still() -> bool:
            nonlocal last
            last = self.watch.look()
            return is_due(moment, last, at_start, self._epochs)

        if not driver.kill_if(still):
            return False
        name = (moment if moment.is_now(last) else MIDWAY).name
        kill = Kill(round(self._progress.seconds, 1), name, last.describe_exact(), last.describe_plain())
        self.kills.append(kill)
        self._progress.event(f"kill -9 number {len(self.kills)}, {name}", "red")
        self._progress.event(f"    epochal: {kill.epochal}")
        self._progress.event(f"    plain:   {kill.plain}")
        return True


def _report(show: _Show, places: Places, expected: int, *, as_json: bool) -> int:
    folders = {"by_day": places.by_day, "lake": places.lake, "plain": places.plain}
    counts: dict[str, Count] = {name: count(folders[key], expected) for name, key in SYSTEMS.items()}
    early = {name: len(show.watch.early[key]) for name, key in SYSTEMS.items()}
    left = staged(places.by_day) + staged(places.lake)
    ours = [name for name, key in SYSTEMS.items() if key != "plain"]
    perfect = all(counts[name].perfect and early[name] == 0 for name in ours) and left == 0
    if as_json:
        systems: list[Json] = [{"sink": n, **asdict(c), "seen_early": early[n]} for n, c in counts.items()]
        answer: dict[str, Json] = {
            "perfect": perfect,
            "seconds": round(show.seconds, 1),
            "starts": show.starts,
            "kills": [asdict(kill) for kill in show.kills],
            "looks": show.watch.looks,
            "staged_leftovers": left,
            "systems": systems,
        }
        print(json.dumps(answer, indent=2))
    else:
        print(result_table(counts, early, len(show.kills)))
        print()
        print(
            f"The same {counted(len(show.kills), 'kill')} hit both queries: they ran in one driver. SEEN EARLY: epochs"
        )
        print(
            f"of which rows could be read before Spark's commits/N, by a reader that looked {show.watch.looks:,} times."
        )
        verdict = "every order is there once" if perfect else "NOT exactly once: see the table"
        print(paint(f"epochal: {verdict}; {counted(left, 'staged attempt')} left over", "green" if perfect else "red"))
    return 0 if perfect else 1


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """A folder to work in. On SIGTERM the driver is killed and the folder removed."""
    root = Path(keep).resolve() if keep else Path(tempfile.mkdtemp(prefix="epochal-demo-"))
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise Refused(f"{root} is not empty; name a new or empty folder")
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield root
    finally:
        signal.signal(signal.SIGTERM, previous)
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-15:])
