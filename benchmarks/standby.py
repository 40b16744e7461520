"""From the death of a driver to the next epoch that can be read: a hot standby against a cold restart.

    python -m benchmarks.standby [--rounds 5] [--elsewhere] [--json]

In each round a driver is killed (kill -9, with its JVM) three times, in turning order: a new driver is started at that
moment; a standby waits with the lease in the checkpoint; or with the lease in ZooKeeper. A file is put into the source
at that moment too, and the time ends when the journal says that every sink shows its epoch. Two sinks: files and Delta.

With `--elsewhere` the same with drivers that take each other for processes of other machines, so that only the lease
tells of a death: 10 s by live files, 4 s in ZooKeeper.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import note
from epochal.spark_plugins.standby.notices import read_notices
from epochal.testing import servers
from epochal.txn.files import LocalFiles

COLD, HOT, ZOOKEEPER = "cold restart", "hot standby", "hot standby, ZooKeeper"
FAR, ZOOKEEPER_FAR = "elsewhere", "elsewhere, ZooKeeper"
CORES = 2
BEFORE = 3  # epochs that a driver runs before it is killed
IDLE = 5.0  # seconds that a standby is watched while it waits
TIMEOUT = 300.0  # seconds
ALLOWED = 1 / 3  # of the time of a cold restart


@dataclass(frozen=True, slots=True)
class Failover:
    """One death."""

    seconds: float
    cpu: float  # of the process that goes on, from the death to the epoch
    idle: float | None  # the share of a processor that the standby used while it waited


@dataclass(frozen=True)
class Stream:
    """One stream's folder."""

    root: Path

    @property
    def journal(self) -> Path:
        return self.root / "checkpoint" / "epochal"

    def feed(self, number: int) -> None:
        source = self.root / "source"
        source.mkdir(parents=True, exist_ok=True)
        lines = "".join(f'{{"id":{number * 1000 + row},"word":"w{row % 7}"}}\n' for row in range(1000))
        written = self.root / "next.json"
        written.write_text(lines)
        written.rename(source / f"{number:06d}.json")

    def shows(self, epoch: int) -> bool:
        return (self.journal / f"e{epoch:012d}.done.json").exists()

    def has_standby(self, pid: int) -> bool:
        found = read_notices(LocalFiles(), str(self.journal), time.time())
        return any(notice.ready and notice.process.pid == pid for notice in found)


def drive(root: Path, *, stands_by: bool, zookeeper: str | None, far: bool) -> None:
    """One driver, until it is killed."""
    import epochal
    from epochal.txn import process

    if far:
        process.this_machine = lambda: f"machine of {os.getpid()}"
    spark = epochal.session("standby", master=f"local[{CORES}]")
    frame = spark.readStream.schema("id long, word string").option("maxFilesPerTrigger", 1).json(f"file:{root}/source")
    writer = epochal.EpochWriter(
        epochal.RollingFileSink(str(root / "files"), bucket_by=["word"]), epochal.DeltaSink(str(root / "table"))
    )
    stream = frame.writeStream.trigger(processingTime="100 milliseconds")
    stream = stream.option("checkpointLocation", str(root / "checkpoint"))
    query = epochal.standby(writer, stream, zookeeper=zookeeper) if stands_by else writer.start(stream)
    if query is not None:
        query.awaitTermination()


@contextmanager
def driver(root: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process of its own, that leads a group with its JVM."""
    with (root / f"{time.monotonic_ns()}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.standby", "--drive", str(root), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _kill(process)


def fail_over(home: Path, name: str, zookeeper: str) -> Failover:
    """Kill a driver once, and measure until the next epoch."""
    root = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    stream = Stream(root)
    for number in range(BEFORE):
        stream.feed(number)
    lease = ["--zookeeper", zookeeper] if name in (ZOOKEEPER, ZOOKEEPER_FAR) else []
    lease += ["--far"] if name in (FAR, ZOOKEEPER_FAR) else []
    standby = () if name == COLD else ("--standby",)
    with driver(root, *standby, *lease) as first:
        _wait(lambda: stream.shows(BEFORE - 1), first)
        if name == COLD:
            began = time.monotonic()
            _kill(first)
            stream.feed(BEFORE)
            with driver(root) as second:
                meter = _meter_of(second)
                _wait(lambda: stream.shows(BEFORE), second)
                return Failover(time.monotonic() - began, meter(), None)
        with driver(root, *standby, *lease) as second:
            _wait(lambda: stream.has_standby(second.pid), second)
            idle = _meter_of(second)
            time.sleep(IDLE)
            used = idle() / IDLE
            meter = _meter_of(second)
            began = time.monotonic()
            _kill(first)
            stream.feed(BEFORE)
            _wait(lambda: stream.shows(BEFORE), second)
            return Failover(time.monotonic() - began, meter(), used)


def _meter_of(process: subprocess.Popen[bytes]) -> Callable[[], float]:
    """The processor seconds of a process and what it has started, from now on."""

    def used() -> float:
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == process.pid:  # its process group
                ticks += sum(int(field) for field in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    before = used()
    return lambda: used() - before


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        if process.poll() is not None:
            raise SystemExit(f"a driver ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit("a driver did not show the epoch in time")
        time.sleep(0.02)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standby", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--elsewhere", action="store_true", help="also as if the drivers were on several machines")
    parser.add_argument("--far", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--drive", metavar="ROOT", help=argparse.SUPPRESS)
    parser.add_argument("--standby", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--zookeeper", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive(Path(args.drive), stands_by=args.standby, zookeeper=args.zookeeper, far=args.far)
        return
    wanted = (COLD, HOT, ZOOKEEPER, *((FAR, ZOOKEEPER_FAR) if args.elsewhere else ()))
    found: dict[str, list[Failover]] = {name: [] for name in wanted}
    names = list(found)
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as folder, servers.zookeeper(own=True) as zookeeper:
        for number in range(args.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                one = fail_over(Path(folder), name, zookeeper.connect)
                found[name].append(one)
                note(f"  round {number + 1}  {name:<24} {one.seconds:6.2f} s, {one.cpu:5.2f} CPU-s")
    report = {name: _summary(ones, found[COLD]) for name, ones in found.items()}
    if args.json:
        print(json.dumps({"rounds": args.rounds, "allowed": ALLOWED, "found": report}, indent=1))
        return
    print(f"\nfrom kill -9 to the next visible epoch, {args.rounds} rounds, local[{CORES}], files and Delta")
    print(f"{'':<24} {'median s':>9} {'from':>6} {'to':>6} {'of cold':>8} {'CPU-s':>6} {'idle CPU':>9}")
    for name, row in report.items():
        idle = "" if row["idle"] is None else f"{row['idle']:.1%}"
        print(
            f"{name:<24} {row['median']:>9.2f} {row['least']:>6.2f} {row['most']:>6.2f} {row['ratio']:>8.2f} "
            f"{row['cpu']:>6.2f} {idle:>9}"
        )
    worst = max(report[name]["ratio"] or 0.0 for name in (HOT, ZOOKEEPER))
    print(f"\nat most a third of a cold restart: {'yes' if worst <= ALLOWED else 'NO'}")


def _summary(ones: list[Failover], cold: list[Failover]) -> dict[str, float | None]:
    seconds = [one.seconds for one in ones]
    idle = [one.idle for one in ones if one.idle is not None]
    return {
        "median": statistics.median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "ratio": statistics.median(a.seconds / b.seconds for a, b in zip(ones, cold, strict=True)),
        "cpu": statistics.median(one.cpu for one in ones),
        "idle": statistics.median(idle) if idle else None,
    }


if __name__ == "__main__":
    main()
