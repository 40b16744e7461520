"""What sinks' state costs: restoring it, keeping it, and an epoch. Without Spark.

    python -m benchmarks.state [--updates 1000000 ...] [--parts restore epochs objective] [--kinds FLF RA]
        [--policies ...] [--live 500000] [--recovery 1] [--shares 0.02] [--load 500 5000] [--plots docs/images] [--json]

* restore: updates of one hot key set (FLF: 1,000 keys) and of distinct keys (RA), in epochs of 5,000, with compaction
  off, relaxed, aggressive, by the default and by an objective. Then a new process restores the state.
* epochs: what an epoch of 100 changes costs beside 1,000 to 1,000,000 entries.
* objective: a load that changes tenfold, and how long a restart would have taken at each moment. `--policies`,
  `--recovery` and `--shares` say which settings are compared, `--live` how many entries there are, `--load` the changes
  of an epoch.

Each stream is written and restored in processes of its own. They hold the state in memory, as a driver does: the
table has the most that either took. With RA that grows with the updates, by some 350 bytes each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import note, percentile
from benchmarks.state_plots import draw, epochs_table, objective_table, restore_table
from epochal.txn.files import LocalFiles, join
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import Decided, Done, GenerationStarted, Prepared, Snapshot, encode
from epochal.txn.state.background import BackgroundFolding
from epochal.txn.state.budget import Budget
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
    "cpu 2 %": Policy(cpu=0.02),
}
KINDS = ("FLF", "RA")
PARTS = ("restore", "epochs", "objective")
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
    writing_mb: float = 0.0  # the most memory that a process took
    restoring_mb: float = 0.0
    sizes_mb: list[float] = field(default_factory=list)


class Stream:
    """A journal that gets epochs, as a driver writes them, with folding in the background."""

    def __init__(self, path: str, policy: Policy | None, *, generation: int = 1, epoch: int = 0) -> None:
        self.journal = Journal(FILES, path, policy=policy)
        if epoch:
            self.journal.read()
        self.journal.claim(GenerationStarted(generation, "query", base=0))
        self.generation = generation
        self.folding = BackgroundFolding(Budget(lambda: self.journal.share))
        self.folds = policy is not None
        self.epoch = epoch
        if self.folds:
            self.folding.start()

    def run(self, changes: dict[str, Json]) -> None:
        """One epoch, all the way."""
        staged = {"sink": Staged(Handle(1, {}), len(changes), changes=changes)}
        record = Prepared(self.epoch, self.generation, "offsets", staged)
        if self.folds:
            self.journal.prepare(record)
            self.journal.read()
            self.journal.decide(self.epoch, self.generation)
            view = self.journal.read()
            self.journal.finish(self.epoch, self.generation)
            plan = self.journal.plan(view, retain=RETAIN, affords=self.folding.affords)
            if plan is not None:
                self.folding.offer(self.journal, plan)
        else:  # without folding a driver's own reading would cost more with each epoch: leave it out
            for each in (record, Decided(self.epoch, self.generation), Done(self.epoch, self.generation)):
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


def child(option: str, *values: object) -> dict[str, Any]:
    """Do something in a new process."""
    command = [sys.executable, "-m", "benchmarks.state", option, *map(str, values)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def memory_mb() -> float:
    """The most memory that this process has taken."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def write_here(kind: str, count: str, name: str, path: str) -> None:
    """In the new process: write, and say what it cost."""
    run = written(kind, int(count), name, Path(path))
    run.writing_mb = memory_mb()
    print(json.dumps(asdict(run)))


def restored(path: Path) -> dict[str, float]:
    """Restore in a new process."""
    return child("--restore", path)


def restore_here(path: str) -> None:
    """In the new process: restore, and say how long it took."""
    begun, cpu = time.perf_counter(), time.process_time()
    entries = sum(len(state) for state in Journal(FILES, path).read().sink_states().values())
    taken = {"s": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    print(json.dumps({**taken, "entries": entries, "mb": memory_mb()}))


def restores(kinds: list[str], counts: list[int], policies: list[str]) -> list[Run]:
    """Every kind, count and policy."""
    runs = []
    for kind in kinds:
        for count in counts:
            for name in policies:
                with folder() as home:
                    run = Run(**child("--write", kind, count, name, home / "journal"))
                    took = [restored(home / "journal") for _ in range(3)]
                best = min(took, key=lambda one: one["s"])
                run.restore_s, run.restore_cpu_s, run.entries = best["s"], best["cpu"], int(best["entries"])
                run.restoring_mb = max(one["mb"] for one in took)
                runs.append(run)
                note(
                    f"  {kind:<4}{count:>10,} {name:<11} restore {run.restore_s:6.2f} s (cpu {run.restore_cpu_s:5.2f})"
                    f"  {run.entries:>9,} entries  {run.sizes_mb[-1]:8.1f} MB  writing: cpu {run.cpu_s:6.1f} s, "
                    f"{run.folding_cpu_s:5.1f} s of it folding; memory {run.writing_mb:,.0f} MB, restoring "
                    f"{run.restoring_mb:,.0f} MB"
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


LOAD = [500, 5000]  # changes of an epoch, each for an eighth of the time, in turn
PACE = 0.1  # seconds from one epoch to the next: as quick as Spark's are
CRASHES = 24


def objective_held(
    policies: dict[str, Policy | None],
    *,
    live: int,
    recoveries: list[float],
    shares: list[float],
    loads: list[int],
    epochs: int = 480,
) -> dict[str, dict[str, Any]]:
    """A load that changes tenfold, over entries that are there before: how long restarts take, and what that costs.

    What a crash at a moment would leave is copied there and then, and restored after the run: in a real restart no
    thread folds beside it.
    """
    found: dict[str, dict[str, Any]] = {}
    settings = {name: policy for name, policy in policies.items() if name not in ("off", "objective")}
    settings |= {f"cpu {s:.0%}": Policy(cpu=s) for s in shares}
    settings |= {f"recovery {s:g} s": Policy(recovery=s) for s in recoveries}
    for name, policy in settings.items():
        with folder() as home:
            path = home / "journal"
            stream = Stream(str(path), policy, generation=2, epoch=filled(path, live))
            begun, cpu, folding = time.perf_counter(), time.process_time(), stream.folding.seconds
            at, late = 0, 0.0  # the next change, and the seconds by which an epoch ended too late
            for epoch in range(epochs):
                time.sleep(max(0.0, begun + epoch * PACE - time.perf_counter()))
                load = (loads * 4)[epoch * 4 * len(loads) // epochs]
                stream.run({f"key {(at + number) * 7919 % live}": [epoch, number] for number in range(load)})
                at += load
                late = max(late, time.perf_counter() - begun - (epoch + 1) * PACE)
                if epoch % (epochs // CRASHES) == epochs // CRASHES - 1:
                    crash(path, home / f"crash-{epoch:06d}")
            wall, used = time.perf_counter() - begun, time.process_time() - cpu
            folded = stream.folding.seconds - folding
            stream.end()
            took = [restored(copy) for copy in sorted(home.glob("crash-*"))]
        if wrong := [one["entries"] for one in took if one["entries"] != live]:
            raise SystemExit(f"{name}: {wrong[0]:,.0f} entries were restored instead of {live:,}")
        p95 = percentile([one["s"] for one in took], 0.95)
        found[name] = {
            "p95_s": p95,
            "median_s": statistics.median([one["s"] for one in took]),
            "p95_cpu_s": percentile([one["cpu"] for one in took], 0.95),
            "holds": {f"{seconds:g}": p95 <= seconds for seconds in recoveries},
            "cpu_s": used,
            "folding_cpu_s": folded,
            "wall_s": wall,
            "late_s": late,
            "restarts_s": [round(one["s"], 3) for one in took],
        }
        note(
            f"  {name:<15} restart: median {found[name]['median_s']:.2f} s, 95th percentile "
            f"{found[name]['p95_s']:.2f} s ({found[name]['p95_cpu_s']:.2f} s of a processor); "
            f"in {wall:.0f} s: cpu {used:.1f} s, {folded:.1f} s of it folding; at most {late:.1f} s late"
        )
    return found


def filled(path: Path, live: int) -> int:
    """Write so many entries, fold them into one segment, and stop. The number of the next epoch."""
    stream = Stream(str(path), POLICIES["aggressive"])
    for start in range(0, live, AN_EPOCH):
        stream.run({f"key {number}": [-1, number] for number in range(start, min(live, start + AN_EPOCH))})
    for _ in range(2 * RETAIN + 5):  # so that the last large epochs are folded too
        stream.run({"key 0": -1})
        stream.folding.wait(600)
    stream.end()
    return stream.epoch


def crash(path: Path, copy: Path) -> None:
    """Keep the journal as it is now. Its files never change, so links will do; folding may remove some meanwhile."""
    while True:
        copy.mkdir()
        names = sorted(os.listdir(path))
        try:
            for name in names:
                os.link(path / name, copy / name)
        except FileNotFoundError:
            names = []
        if names and sorted(os.listdir(path)) == names:
            return
        for name in os.listdir(copy):
            (copy / name).unlink()
        copy.rmdir()


def main() -> None:
    """Run the parts that were asked for and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, nargs="+", default=[1_000_000, 3_000_000, 6_000_000])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of the restores")
    parser.add_argument("--policies", nargs="*", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--live", type=int, default=500_000, help="entries, of the objective")
    parser.add_argument("--recovery", type=float, nargs="*", default=[1.0], help="objectives, in seconds")
    parser.add_argument("--shares", type=float, nargs="*", default=[], help="of a processor, as objectives")
    parser.add_argument("--load", type=int, nargs="+", default=LOAD, help="changes of an epoch, of the objective")
    parser.add_argument("--plots", type=Path, help="a folder for pictures")
    parser.add_argument("--json", action="store_true", help="machines read this")
    parser.add_argument("--restore", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.restore:
        restore_here(args.restore)
        return
    if args.write:
        write_here(*args.write)
        return
    result: dict[str, Any] = {"paper": PAPER}
    parts: dict[str, Callable[[], None]] = {
        "restore": lambda: result.update(
            restore=[asdict(run) for run in restores(args.kinds, args.updates, args.policies)],
            old_way=the_old_way(args.updates[0]) if "RA" in args.kinds else {},
        ),
        "epochs": lambda: result.update(epochs=epoch_costs([1_000, 10_000, 100_000, 1_000_000])),
        "objective": lambda: result.update(
            live=args.live,
            objective=objective_held(
                {name: POLICIES[name] for name in args.policies},
                live=args.live,
                recoveries=args.recovery,
                shares=args.shares,
                loads=args.load,
            ),
        ),
    }
    for name in args.parts:
        note(name)
        parts[name]()
    if args.plots:
        draw(result, args.plots)
    if args.json:
        print(json.dumps(result))
        return
    tables = []
    if "restore" in result:
        tables.append(restore_table(result["restore"], PAPER, result["old_way"]))
    if "epochs" in result:
        tables.append(epochs_table(result["epochs"]))
    if "objective" in result:
        tables.append(objective_table(result["objective"], result["live"]))
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
