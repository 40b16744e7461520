"""What Spark's state costs, and how long its recovery takes, beside the figures of the compaction paper.

    python -m benchmarks.recovery [--updates 1000000 3000000 6000000] [--kinds FLF RA] [--settings ...] [--rounds 1]
        [--epoch 100000] [--plots docs/images] [--json]

Updates of one hot key set (FLF: 1,000 keys) and of distinct keys (RA), in epochs of 100,000, on four partitions:
RocksDB without changelog, and with one whose maintenance is off, relaxed (every 20 s) or aggressive (every second).
One stream is written for each kind and setting; its checkpoint is copied at each number of updates. Then a new process
recovers from each copy: restore seconds are its first epoch, less that of a stream without state. A small run:
``--updates 100000 200000 --kinds RA``.

Two things differ from the paper's load. Spark adds up the updates of one key within an epoch before its state store
gets them, so with FLF an epoch of 100,000 updates writes 1,000 rows: *state writes* in the table. And the stream is not
paced: it goes on as quickly as it can, so its share of a processor cannot be set beside the paper's. The table has the
processor time of a million updates, and its ratio to that with maintenance off.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import note
from epochal.spark_plugins.recovery.calibration import recover
from epochal.spark_plugins.recovery.chart import draw
from epochal.spark_plugins.recovery.copying import copy_checkpoint
from epochal.spark_plugins.recovery.knobs import Setting
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.scratch import Scratch, frame, processor_seconds, settings_of
from epochal.txn.files import LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOT = 1000  # keys of FLF
PARTITIONS = 4
SETTINGS: dict[str, Setting] = {
    "no changelog": Setting(provider=Provider.ROCKSDB, partitions=PARTITIONS),
    "off": Setting(provider=Provider.ROCKSDB, changelog=True, maintenance=86_400, partitions=PARTITIONS),
    "relaxed": Setting(provider=Provider.ROCKSDB, changelog=True, maintenance=20, partitions=PARTITIONS),
    "aggressive": Setting(provider=Provider.ROCKSDB, changelog=True, deltas=1, maintenance=1, partitions=PARTITIONS),
}
PAPER = {
    "FLF": {1_000_000: 2.6, 3_000_000: 8.4, 6_000_000: 17.1},
    "RA": {1_000_000: 1.8, 3_000_000: 4.4, 6_000_000: 9.2},
}
# The paper's share of a processor, of a stream at a fixed rate. Of "42 to 44 %" the upper one.
PAPER_CPU = {"off": 0.18, "relaxed": 0.20, "aggressive": 0.44}
MARK = "benchmark:"


@dataclass
class Run:
    """One stream of updates, and its recovery."""

    kind: str
    updates: int
    setting: str
    writes: int = 0  # rows that the state store got
    restore_s: float = 0.0
    first_epoch_s: float = 0.0
    extent: int = 0
    cpu_s: float = 0.0  # of the JVM, for all epochs
    wall_s: float = 0.0
    sizes_mb: list[float] = field(default_factory=list)  # of the state's folder, after each epoch

    @property
    def cpu(self) -> float:
        """Share of a processor, of a stream that is not paced."""
        return self.cpu_s / self.wall_s if self.wall_s else 0.0

    @property
    def cpu_per_million(self) -> float:
        """Seconds of a processor for a million updates."""
        return self.cpu_s / self.updates * 1e6

    @property
    def paper_s(self) -> float | None:
        """What the paper's restore of an uncompacted changelog took."""
        return PAPER[self.kind].get(self.updates)

    def to_json(self) -> dict[str, Any]:
        """All that was measured, and what follows from it."""
        return asdict(self) | {"cpu": self.cpu, "cpu_s_per_million": self.cpu_per_million, "paper_s": self.paper_s}


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, nargs="+", default=[1_000_000, 3_000_000, 6_000_000])
    parser.add_argument("--kinds", nargs="+", choices=list(PAPER), default=list(PAPER))
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=1, help="recoveries of each stream; the median counts")
    parser.add_argument("--epoch", type=int, default=100_000, help="updates in an epoch")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _child(json.loads(options.child))
        return
    with tempfile.TemporaryDirectory(prefix="epochal-recovery-") as folder:
        empty = without_state(Path(folder), options.cores, options.rounds)
        runs = []
        for kind in options.kinds:
            for setting in options.settings:
                note(f"{kind}, {setting}")
                runs += measured(Path(folder), [Run(kind, n, setting) for n in sorted(options.updates)], options, empty)
    result = {
        "runs": [run.to_json() for run in runs],
        "without_state_s": empty,
        "epoch": options.epoch,
        "cores": options.cores,
        "paper": PAPER,
        "paper_cpu": PAPER_CPU,
    }
    if options.plots is not None:
        plots(runs, options.plots)
    print(json.dumps(result, indent=2) if options.json else text(runs))


def without_state(folder: Path, cores: int, rounds: int) -> float:
    """The first epoch of a recovery that restores next to nothing."""
    run = Run("RA", 2000, "off")
    _write(folder / "empty", [run], cores, an_epoch=1000)
    return statistics.median(_first_epoch(folder / "empty", run, cores) for _ in range(rounds))


def measured(folder: Path, runs: list[Run], options: argparse.Namespace, empty: float) -> list[Run]:
    """One stream, written, and recovered as it was after each number of updates."""
    place = folder / "stream"
    _write(place, runs, options.cores, an_epoch=options.epoch)
    for run in runs:
        run.first_epoch_s = statistics.median(_first_epoch(place, run, options.cores) for _ in range(options.rounds))
        run.restore_s = max(0.0, run.first_epoch_s - empty)
        note(f"  {run.updates:>9,} updates: restored in {run.restore_s:.2f} s; written with {run.cpu_s:.1f} s of CPU")
    shutil.rmtree(place)
    return runs


def _write(folder: Path, runs: Sequence[Run], cores: int, *, an_epoch: int) -> None:
    """Write a stream in a process of its own: maintenance has one interval for a whole process."""
    first = runs[0]
    task = {
        "folder": str(folder),
        "setting": SETTINGS[first.setting].to_json(),
        "stops": {str(max(1, run.updates // an_epoch)): str(run.updates) for run in runs},
        "rows": an_epoch,
        "keys": HOT if first.kind == "FLF" else None,
        "cores": cores,
    }
    command = [sys.executable, "-m", "benchmarks.recovery", "--child", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        raise SystemExit(f"{first}: {done.stderr[-2000:]}")
    answer: Mapping[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    for run in runs:
        found = answer[str(run.updates)]
        run.cpu_s, run.wall_s, run.sizes_mb = found["cpu"], found["wall"], found["sizes"]
        run.writes = len(run.sizes_mb) * (an_epoch if first.kind == "RA" else min(an_epoch, HOT))


def _first_epoch(folder: Path, run: Run, cores: int) -> float:
    """Recover the copy that was made after so many updates, and run one small epoch."""
    keys = HOT if run.kind == "FLF" else None
    scratch = Scratch(name=str(run.updates), setting=SETTINGS[run.setting], base=0, epochs=0, updates=0, keys=keys)
    found = recover(scratch, folder, cores, rows=1000)
    run.extent = found.state.extent
    return found.epoch


def _child(task: Mapping[str, Any]) -> None:
    """Write one stream, copy it at each stop, and say what it has cost until then."""
    from pyspark.errors import StreamingQueryException

    from epochal.spark_plugins.jvm import Jvm
    from epochal.spark_plugins.session import session

    setting, folder = Setting.from_json(task["setting"]), Path(task["folder"])
    checkpoint = folder / "checkpoint"
    stops = {int(epoch): name for epoch, name in task["stops"].items()}
    spark = session("benchmark", master=f"local[{task['cores']}]", conf=settings_of(setting))
    process = Jvm(spark).process
    pid = -1 if process is None or process.pid is None else process.pid
    sizes: list[float] = []
    begun: list[float] = []
    answer: dict[str, Any] = {}
    copying = 0.0  # seconds in which the stream stood still

    def write(batch: DataFrame, epoch: int) -> None:
        nonlocal copying
        now, cpu = time.monotonic(), processor_seconds(pid)
        begun[:] = begun or [now, cpu]
        if epoch:
            sizes.append(size_of(checkpoint / "state"))
        if epoch in stops:  # the epoch before it is committed
            answer[stops[epoch]] = {"wall": now - begun[0] - copying, "cpu": cpu - begun[1], "sizes": [*sizes]}
            copy_checkpoint(LocalFiles(sync=False), str(checkpoint), folder / stops[epoch])
            copying += time.monotonic() - now
        if epoch >= max(stops):
            raise RuntimeError("that is all")
        batch.write.format("noop").mode("overwrite").save()

    made = frame(spark, rows=task["rows"], keys=task["keys"], slots=task["cores"])
    stream = made.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    try:
        stream.foreachBatch(write).start().awaitTermination()
    except StreamingQueryException as fault:
        if "that is all" not in str(fault):
            raise
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)
    os._exit(0)


def size_of(folder: Path) -> float:
    """The size of what a folder holds, in MB. Files may vanish meanwhile."""
    found = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.stat(os.path.join(at, name)).st_size
            except FileNotFoundError:
                continue  # maintenance removed it
    return found / 1e6


def text(runs: list[Run]) -> str:
    """The figures as a table for docs/benchmarks.md."""
    headers = (
        "kind",
        "setting",
        "updates",
        "state writes",
        "restore s",
        "paper's, off, s",
        "x paper",
        "extent",
        "state MB, end / most",
        "CPU s",
        "CPU s a million",
        "x off",
        "paper's x off",
        "CPU share",
    )
    lines = [_row(headers), "|---" * len(headers) + "|"]
    for run in runs:
        off = next((o for o in runs if (o.kind, o.updates, o.setting) == (run.kind, run.updates, "off")), None)
        share = PAPER_CPU.get(run.setting)
        cells = (
            run.kind,
            run.setting,
            f"{run.updates:,}",
            f"{run.writes:,}",
            f"{run.restore_s:.2f}",
            "" if run.paper_s is None else f"{run.paper_s}",
            "" if run.paper_s is None else f"{run.restore_s / run.paper_s:.2f}",
            f"{run.extent}",
            f"{run.sizes_mb[-1]:.1f} / {max(run.sizes_mb):.1f}" if run.sizes_mb else "",
            f"{run.cpu_s:.1f}",
            f"{run.cpu_per_million:.1f}",
            "" if off is None or not off.cpu_s else f"{run.cpu_s / off.cpu_s:.2f}",
            "" if share is None else f"{share / PAPER_CPU['off']:.2f}",
            f"{run.cpu:.0%}",
        )
        lines.append(_row(cells))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in PAPER_CPU.items())
    return "\n".join([*lines, "", f"The paper's share of a processor, of a stream at a fixed rate: {shares}."])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def plots(runs: list[Run], folder: Path) -> None:
    """Restore time by updates, and size over time."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in dict.fromkeys(run.kind for run in runs):
        own = [run for run in runs if run.kind == kind]
        names = list(dict.fromkeys(run.setting for run in own))
        lines = {name: [(run.updates / 1e6, run.restore_s) for run in own if run.setting == name] for name in names} | {
            "paper, off": [(updates / 1e6, seconds) for updates, seconds in PAPER[kind].items()]
        }
        (folder / f"recovery-{kind.lower()}.svg").write_text(
            draw(f"Restore of Spark's state, {kind}", lines, "million updates", "seconds"), encoding="utf-8"
        )
        largest = max(run.updates for run in own)
        sizes = {
            run.setting: [
                (largest / 1e6 * (place + 1) / len(run.sizes_mb), size) for place, size in enumerate(run.sizes_mb)
            ]
            for run in own
            if run.updates == largest
        }
        (folder / f"recovery-size-{kind.lower()}.svg").write_text(
            draw(f"Size of Spark's state, {kind}", sizes, "million updates", "MB"), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
