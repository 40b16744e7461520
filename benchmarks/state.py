"""What sinks' state costs: restoring it, keeping it, and an epoch. Without Spark.

    python -m benchmarks.state [--updates 1000000 ...] [--parts restore epochs objective] [--plots docs/state] [--json]

* restore: updates of one hot key set (FLF: 1,000 keys) and of distinct keys (RA), in epochs of 5,000, with compaction
  off, relaxed, aggressive, by the default and by an objective. Then a new process restores the state.
* epochs: what an epoch of 100 changes costs beside 1,000 to 1,000,000 entries.
* objective: a load that changes tenfold, and how long a restart would have taken at each moment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.measure import note, percentile
from benchmarks.state_plots import draw
from epochal.txn.files import LocalFiles, join
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import Decided, Done, GenerationStarted, Prepared, Snapshot, encode
from epochal.txn.state.background import BackgroundFolding
from epochal.txn.state.policy import Knobs, Policy

HOT = 1000  # keys of FLF
AN_EPOCH = 5000  # updates
RETAIN = 20
SAMPLES = 40  # of the size, over a run
POLICIES: dict[str, Policy | None] = {
    "off": None,
    "relaxed": Policy(knobs=Knobs(dirty_ratio=0.66, segment_age=1.0, retention=0.1)),
    "aggressive": Policy(knobs=Knobs(dirty_ratio=0.01, segment_age=0.1, retention=0.1)),
    "default": Policy(),
    "objective": Policy(recovery=0.5),
}
KINDS = ("FLF", "RA")
PAPER = {
    "FLF": {1_000_000: 2.6, 3_000_000: 8.4, 6_000_000: 17.1},
    "RA": {1_000_000: 1.8, 3_000_000: 4.4, 6_000_000: 9.2},
}
FILES = LocalFiles(sync=False)


@dataclass
class Run:
    """One stream of updates, and its restore."""

    kind: str
    updates: int
    policy: str
    restore_s: float = 0.0
    restore_cpu_s: float = 0.0
    entries: int = 0
    cpu_s: float = 0.0
    folding_cpu_s: float = 0.0
    wall_s: float = 0.0
    sizes_mb: list[float] = field(default_factory=list)


class Stream:
    """A journal that gets epochs, as a driver writes them, with folding in the background."""

    def __init__(self, path: str, policy: Policy | None) -> None:
        self.journal = Journal(FILES, path, policy=policy)
        self.journal.claim(GenerationStarted(1, "query", base=0))
        self.folding = BackgroundFolding(share=lambda: self.journal.share)
        self.folds = policy is not None
        self.epoch = 0
        if self.folds:
            self.folding.start()

    def run(self, changes: dict[str, Json]) -> None:
        """One epoch, all the way."""
        staged = {"sink": Staged(Handle(1, {}), len(changes), changes=changes)}
        record = Prepared(self.epoch, 1, "offsets", staged)
        if self.folds:
            self.journal.prepare(record)
            self.journal.read()
            self.journal.decide(self.epoch, 1)
            view = self.journal.read()
            self.journal.finish(self.epoch, 1)
            plan = self.journal.plan(view, retain=RETAIN)
            if plan is not None:
                self.folding.offer(self.journal, plan)
        else:  # without folding a driver's own reading would cost more with each epoch: leave it out
            for each in (record, Decided(self.epoch, 1), Done(self.epoch, 1)):
                FILES.create(join(self.journal.path, each.name), encode(each))
        self.epoch += 1

    def end(self) -> None:
        """Let the last round come to its end."""
        if self.folds:
            self.folding.wait(600)
            self.folding.stop()


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for one run."""
    with tempfile.TemporaryDirectory(prefix="epochal-state-") as made:
        yield Path(made)


def updates(kind: str, epoch: int) -> dict[str, Json]:
    """The updates of one epoch: window results, small as in the paper."""
    first = epoch * AN_EPOCH
    if kind == "FLF":
        return {f"window {number % HOT:09d}": [number, 2 * number] for number in range(first, first + AN_EPOCH)}
    return {f"window {number:09d}": [number, 2 * number] for number in range(first, first + AN_EPOCH)}


def changes_of(kind: str, epoch: int) -> Iterator[dict[str, Json]]:
    """The records of one epoch's updates. Each update of a hot key is a record's own: a log folds nothing by itself."""
    if kind == "RA":
        yield updates(kind, epoch)
        return
    first = epoch * AN_EPOCH
    for start in range(first, first + AN_EPOCH, HOT):
        yield {f"window {number % HOT:09d}": [number, 2 * number] for number in range(start, start + HOT)}


def size_mb(path: Path) -> float:
    """The size of a journal."""
    return sum(entry.length for entry in FILES.list(str(path))) / 1e6


def written(kind: str, count: int, name: str, path: Path) -> Run:
    """Write so many updates."""
    run = Run(kind, count, name)
    stream = Stream(str(path), POLICIES[name])
    epochs = count // AN_EPOCH
    begun, cpu = time.perf_counter(), time.process_time()
    for epoch in range(epochs):
        for changes in changes_of(kind, epoch):
            stream.run(changes)
        if epoch % max(1, epochs // SAMPLES) == 0:
            run.sizes_mb.append(round(size_mb(path), 2))
    stream.end()
    run.wall_s, run.cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    run.folding_cpu_s = stream.folding.seconds
    run.sizes_mb.append(round(size_mb(path), 2))
    return run


def restored(path: Path) -> dict[str, float]:
    """Restore in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.state", "--restore", str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def restore_here(path: str) -> None:
    """In the new process: restore, and say how long it took."""
    begun, cpu = time.perf_counter(), time.process_time()
    entries = sum(len(state) for state in Journal(FILES, path).read().sink_states().values())
    print(json.dumps({"s": time.perf_counter() - begun, "cpu": time.process_time() - cpu, "entries": entries}))


def restores(counts: list[int]) -> list[Run]:
    """Every kind, count and policy."""
    runs = []
    for kind in KINDS:
        for count in counts:
            for name in POLICIES:
                with folder() as home:
                    run = written(kind, count, name, home / "journal")
                    took = [restored(home / "journal") for _ in range(3)]
                best = min(took, key=lambda one: one["s"])
                run.restore_s, run.restore_cpu_s, run.entries = best["s"], best["cpu"], int(best["entries"])
                runs.append(run)
                note(
                    f"  {kind:<4}{count:>10,} {name:<11} restore {run.restore_s:6.2f} s (cpu {run.restore_cpu_s:5.2f})"
                    f"  {run.entries:>9,} entries  {run.sizes_mb[-1]:8.1f} MB  writing: cpu {run.cpu_s:6.1f} s, "
                    f"{run.folding_cpu_s:5.1f} s of it folding"
                )
    return runs


def the_old_way(count: int) -> dict[str, float]:
    """Restore distinct entries from a whole snapshot, as before there were segments."""
    with folder() as home:
        path = home / "journal"
        FILES.create(join(str(path), "g000001.json"), encode(GenerationStarted(1, "query", base=0)))
        kept: dict[str, Json] = {}
        for epoch in range(count // AN_EPOCH):
            kept |= updates("RA", epoch)
        snapshot = Snapshot(10, kept={"sink": kept})
        FILES.create(join(str(path), snapshot.name), encode(snapshot))
        return min((restored(path) for _ in range(3)), key=lambda one: one["s"])


def epoch_costs(sizes: list[int], epochs: int = 60) -> dict[int, dict[str, float]]:
    """The time of an epoch of 100 changes beside so many entries: its median and 95th percentile, in ms."""
    found = {}
    for count in sizes:
        with folder() as home:
            stream = Stream(str(home / "journal"), Policy())
            for start in range(0, count, AN_EPOCH):
                stream.run({f"key {number}": [number, ""] for number in range(start, min(count, start + AN_EPOCH))})
            for number in range(3 * 45):  # so that the large epochs are folded away, and what they left is merged
                stream.run({f"warm {number}": 1})
                stream.folding.wait(600)
            taken, cpu = [], []
            for epoch in range(epochs):
                changes: dict[str, Json] = {
                    f"key {(epoch * 100 + number) % count}": [epoch, "x"] for number in range(100)
                }
                begun, own = time.perf_counter(), time.thread_time()
                stream.run(changes)
                taken.append(time.perf_counter() - begun)
                cpu.append(time.thread_time() - own)
            stream.end()
        found[count] = {
            "median_ms": statistics.median(taken) * 1000,
            "p95_ms": percentile(taken, 0.95) * 1000,
            "cpu_ms": statistics.median(cpu) * 1000,
        }
        note(
            f"  {count:>9,} entries: an epoch of 100 changes takes {found[count]['median_ms']:.2f} ms, cpu "
            f"{found[count]['cpu_ms']:.2f} ms, 95th percentile {found[count]['p95_ms']:.2f} ms"
        )
    return found


LOADS = (500, 5000, 500, 5000)  # changes of an epoch, each for a quarter of the time


def objective_held(seconds: float, epochs: int = 240, live: int = 200_000) -> dict[str, dict[str, float]]:
    """A load that changes tenfold: how long restarts would take, and what that costs, by policy."""
    found = {}
    policies = {name: policy for name, policy in POLICIES.items() if name not in ("off", "objective")}
    for name, policy in {**policies, f"recovery {seconds:g} s": Policy(recovery=seconds)}.items():
        with folder() as home:
            path = home / "journal"
            stream = Stream(str(path), policy)
            took = []
            begun, cpu, paused = time.perf_counter(), time.process_time(), 0.0
            for epoch in range(epochs):
                load = LOADS[epoch * len(LOADS) // epochs]
                stream.run({f"key {(epoch * load + number) * 7919 % live}": [epoch, number] for number in range(load)})
                if epoch % (epochs // 24) == epochs // 24 - 1:
                    before = time.perf_counter()
                    took.append(restored(path)["s"])
                    paused += time.perf_counter() - before
            stream.end()
            wall, used = time.perf_counter() - begun - paused, time.process_time() - cpu
            folding = stream.folding.seconds
        found[name] = {
            "p95_s": percentile(took, 0.95),
            "median_s": statistics.median(took),
            "cpu_s": used,
            "folding_cpu_s": folding,
            "wall_s": wall,
        }
        note(
            f"  {name:<15} restart: median {found[name]['median_s']:.2f} s, 95th percentile "
            f"{found[name]['p95_s']:.2f} s; cpu {used:.1f} s, {folding:.1f} s of it folding"
        )
    return found


def main() -> None:
    """Run the parts that were asked for and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, nargs="+", default=[1_000_000, 3_000_000, 6_000_000])
    parser.add_argument("--parts", nargs="+", default=["restore", "epochs", "objective"])
    parser.add_argument("--plots", type=Path, help="a folder for pictures")
    parser.add_argument("--json", action="store_true", help="machines read this")
    parser.add_argument("--restore", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.restore:
        restore_here(args.restore)
        return
    result: dict[str, object] = {}
    parts: dict[str, Callable[[], None]] = {
        "restore": lambda: result.update(
            restore=[asdict(run) for run in restores(args.updates)], old_way=the_old_way(args.updates[0])
        ),
        "epochs": lambda: result.update(epochs=epoch_costs([1_000, 10_000, 100_000, 1_000_000])),
        "objective": lambda: result.update(objective=objective_held(0.5)),
    }
    for name in args.parts:
        note(name)
        parts[name]()
    result["paper"] = PAPER
    if args.plots:
        draw(result, args.plots)
    print(json.dumps(result, indent=None if args.json else 1))


if __name__ == "__main__":
    main()
