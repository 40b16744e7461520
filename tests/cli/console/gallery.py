"""Streams in every state that the console shows, with times as a real stream has them. No Spark.

The running ones belong to the process that makes them; the dead ones name a process that has ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack
from unittest.mock import patch

from epochal.testing import DirectoryParticipant
from epochal.txn import live as live_files
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import CommitFailed
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.live import Live, LiveEpoch, LiveHeld, LiveState, SinkEpoch
from epochal.txn.model import Json, OpenRows, lineage_of
from epochal.txn.process import this_process
from tests.cli.auditable import Auditable
from tests.cli.scene import Scenery, dying, ended_process, going_away
from tests.txn.keeping import Keeping

REASON = "NoHostAvailable: 10.0.4.17:9042: it does not answer (connection refused)"
INTERVAL = 6.0  # seconds between two epochs
FRESH = 120.0  # seconds: a driver that has not reported for a while is taken for stuck, and a test may be slow
KINDS = {
    "auditable": "tests.cli.auditable:Auditable",
    "buckets": "tests.cli.console.gallery:Buckets",
}


class Facts(TypedDict, total=False):
    """What a live file may say."""

    state: LiveState
    epoch: int
    sink: str
    held: LiveHeld
    settled: bool


class Buckets(Keeping):
    """A folder whose open rows are in buckets, as those of rolling files are."""

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "type": "buckets"}

    def open_rows(self, state: Mapping[str, Json]) -> list[OpenRows]:
        times = sorted(at for at in state.values() if isinstance(at, float))
        names = ("day=2026-11-18/country=DE", "day=2026-11-18/country=FR", "day=2026-11-17/country=<b>IT</b>")
        return [
            OpenRows(name, 3_400_000 * (n + 1), 12_000 * (n + 1), len(times) - n, times[n], times[-1])
            for n, name in enumerate(names)
            if n < len(times)
        ]


class Painted(Scenery):
    """A stream whose epochs have the times that they are given."""

    def __init__(self, root: Path, name: str, *, seed: int = 1) -> None:
        super().__init__(root / f"{name}-targets", str(root / name))
        self.chance = random.Random(seed)
        self.lines: list[LiveEpoch] = []

    def auditable(self, name: str) -> Auditable:
        return Auditable(str(self.root / name), name=name, files=self._files)

    def start(self, at: float, *targets: DirectoryParticipant) -> Coordinator[Sequence[Json]]:
        self.now = lambda: at
        return self.driver(*targets)

    def finish(self, driver: Coordinator[Sequence[Json]], epochs: range, start: float) -> float:
        """Run epochs one after the other; returns when the last of them was done."""
        done = start
        for epoch in epochs:
            line = self._line(driver, epoch, max(done + 0.2, start + (epoch - epochs[0]) * INTERVAL))
            self.now = lambda line=line: line.prepared  # type: ignore[misc]
            self.rows = tuple(range(max(sink.rows or 0 for sink in line.sinks.values())))
            self.decide(driver, epoch)
            self.now = lambda line=line: line.done  # type: ignore[misc]
            driver.settle()
            self.lines.append(line)
            done = line.done or done
        return done

    def _line(self, driver: Coordinator[Sequence[Json]], epoch: int, begun: float) -> LiveEpoch:
        names = [*driver._participants]
        slow = 4.0 if self.chance.random() < 0.06 else 1.0
        staged = [begun + slow * self.chance.uniform(0.35, 0.9) for _ in names]
        prepared = max(staged) + 0.02
        checkpointed = prepared + self.chance.uniform(0.15, 0.3)
        visible = [checkpointed + self.chance.uniform(0.05, 0.5) for _ in names]
        rows = self.chance.randint(260, 340)
        return LiveEpoch(
            epoch=epoch,
            generation=driver.generation,
            begun=begun,
            prepared=prepared,
            checkpointed=checkpointed,
            done=max(visible) + 0.01,
            sinks={
                name: SinkEpoch(staged=s, visible=v, rows=rows, bytes=rows * 9_300)
                for name, s, v in zip(names, staged, visible, strict=True)
            },
        )


def tell(
    journal: Journal, at: float, lines: Sequence[LiveEpoch] = (), *, sequence: int = 1, **facts: Unpack[Facts]
) -> None:
    """Write the live file of the newest driver."""
    started = journal.read().latest
    assert started is not None
    live = Live(
        lineage=lineage_of(started.query, started.incarnation),
        stream=Path(journal.path).parent.name,
        generation=started.generation,
        start=started.start,
        journal=journal.place,
        process=this_process(),
        at=at,
        sinks=tuple(started.sinks),
        epochs=tuple(lines[-50:]),
        **facts,
    )
    name = live_files.name_of(started.generation, sequence)
    LocalFiles(sync=False).create(f"{live_files.live_beside(journal.path)}/{name}", live_files.encode(live))


def running(root: Path, name: str = "orders", *, now: float | None = None) -> Path:
    """A stream that runs: three sinks, 46 epochs, one restart."""
    now = time.time() if now is None else now
    scene = Painted(root, name)
    targets = [scene.auditable(sink) for sink in ("archive", "lake", "serving")]
    began = now - 46 * INTERVAL - 30
    driver = scene.start(began - 3, *targets)
    done = scene.finish(driver, range(28), began)
    driver = scene.start(done + 20, *targets)
    scene.finish(driver, range(28, 46), now - 18 * INTERVAL)
    tell(driver.journal, now + FRESH, scene.lines, state=LiveState.IDLE, epoch=45)
    return scene.checkpoint


def held(root: Path, name: str = "payments", *, now: float | None = None) -> Path:
    """A stream that runs and is held: one of its stores does not take an epoch."""
    now = time.time() if now is None else now
    scene = Painted(root, name, seed=2)
    ledger, lake = scene.target("ledger"), scene.target("lake")
    driver = scene.start(now - 200, lake, ledger)
    done = scene.finish(driver, range(12), now - 195)
    line = scene._line(driver, 12, done + 2)
    scene.now = lambda: line.prepared or 0.0
    scene.decide(driver, 12)
    with going_away(ledger):
        try:
            driver.settle()
        except CommitFailed:
            pass
    shown = {"lake": line.sinks["lake"], "ledger": SinkEpoch(staged=line.sinks["ledger"].staged)}
    scene.lines.append(
        LiveEpoch(
            epoch=12,
            generation=1,
            begun=line.begun,
            prepared=line.prepared,
            checkpointed=line.checkpointed,
            sinks=shown,
        )
    )
    reason = LiveHeld(sink="ledger", step="commit", reason=REASON, since=line.checkpointed or now, epoch=12)
    tell(driver.journal, now + FRESH, scene.lines, state=LiveState.HELD, epoch=12, sink="ledger", held=reason)
    return scene.checkpoint


def in_doubt(root: Path, name: str = "clicks", *, now: float | None = None) -> Path:
    """A stream of a driver that died between PREPARED and commits/N; the one before it died in the same epoch."""
    now = time.time() if now is None else now
    scene = Painted(root, name, seed=3)
    targets = [scene.auditable("archive"), scene.auditable("lake")]
    driver = scene.start(now - 900, *targets)
    done = scene.finish(driver, range(17), now - 890)
    scene.now = lambda: done + 4
    scene.prepare(driver, 17)
    driver = scene.start(done + 30, *targets)
    scene.now = lambda: done + 33
    scene.prepare(driver, 17)
    tell(driver.journal, done + 35, scene.lines, state=LiveState.IDLE, epoch=17)
    return scene.checkpoint


def open_parts(root: Path, name: str = "sessions", *, now: float | None = None) -> Path:
    """A stream that has ended, with rows in parts that are still open."""
    now = time.time() if now is None else now
    scene = Painted(root, name, seed=4)
    sink = Buckets(str(scene.root / "archive"), name="archive", clock=scene.clock)
    driver = scene.start(now - 4000, sink)
    done = scene.finish(driver, range(9), now - 3990)
    tell(driver.journal, done + 1, scene.lines, state=LiveState.ENDED, epoch=8, settled=True)
    return scene.checkpoint


def old(root: Path, name: str = "legacy", *, now: float | None = None) -> Path:
    """A stream without a live file, as older versions leave it."""
    now = time.time() if now is None else now
    scene = Painted(root, name, seed=5)
    driver = scene.start(now - 90_000, scene.target("archive"))
    scene.finish(driver, range(25), now - 89_990)
    return scene.checkpoint


def unfinished(root: Path, name: str = "unfinished", *, now: float | None = None) -> Path:
    """A stream of a driver that died between commits/N and the first commit."""
    now = time.time() if now is None else now
    scene = Painted(root, name, seed=6)
    driver = scene.start(now - 600, scene.target("archive"))
    done = scene.finish(driver, range(3), now - 590)
    scene.now = lambda: done + 4
    scene.decide(driver, 3)
    return scene.checkpoint


def staging(root: Path, name: str = "staging", *, now: float | None = None) -> Path:
    """A stream of a driver that died while it staged an epoch."""
    now = time.time() if now is None else now
    scene = Painted(root, name, seed=7)
    target = scene.target("archive")
    driver = scene.start(now - 600, target)
    done = scene.finish(driver, range(3), now - 590)
    scene.lines.append(LiveEpoch(epoch=3, generation=1, begun=done + 2, sinks={"archive": SinkEpoch()}))
    (scene.checkpoint / "offsets" / "3").write_bytes(b"{}")
    scene.stage(driver, target, 3)
    tell(driver.journal, done + 3, scene.lines, state=LiveState.STAGING, epoch=3)
    return scene.checkpoint


DEAD = {"staging": staging, "clicks": in_doubt, "sessions": open_parts, "legacy": old, "unfinished": unfinished}


def dead(root: Path, *names: str) -> list[Path]:
    """Streams of drivers whose process has ended."""
    with dying(), patch(f"{__name__}.this_process", return_value=ended_process()):
        return [DEAD[name](root) for name in names]
