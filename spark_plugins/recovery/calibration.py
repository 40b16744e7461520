"""Measures how quickly this machine restores state and what keeping it costs, by recoveries of scratch streams.

Each figure is a difference of two recoveries that differ in one thing: the number of stores, the changes to replay, or
the size of a snapshot.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from epochal.spark_plugins.recovery import trial
from epochal.spark_plugins.recovery.knobs import CommitCosts, Costs, Setting
from epochal.spark_plugins.recovery.model import Rates, StoreRates
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.reading import read_state
from epochal.spark_plugins.recovery.scratch import Scratch, settings_of
from epochal.spark_plugins.recovery.states import SparkState
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles

FEW, MANY = 4, 24  # partitions
SMALL = 1000  # rows of an epoch
EPOCHS = 5
LEAST = 0.02  # seconds: a smaller difference is noise
SETTINGS = {
    "changelog": Setting(provider=Provider.ROCKSDB, changelog=True),
    "snapshots": Setting(provider=Provider.ROCKSDB),
    "hdfs": Setting(provider=Provider.HDFS_BACKED),
}
# The second takes longer than the first on every machine: it opens six times as many stores, or replays all the rows.
SLOWER = (("changelog-few", "changelog-many"), ("changelog-few", "changelog-rows"), ("hdfs-few", "hdfs-rows"))
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One recovery of a scratch stream: when its parts ended, and the state that it restored."""

    session: float
    begun: float
    end: float
    state: SparkState

    @property
    def epoch(self) -> float:
        """From the beginning of the first epoch to its commit."""
        return self.end - self.begun


def streams(rows: int) -> list[Scratch]:
    """The streams that are built."""
    made = []
    for name, own in SETTINGS.items():
        few, many = replace(own, partitions=FEW), replace(own, partitions=MANY)
        made += [
            Scratch(name=f"{name}-few", setting=few, base=0, epochs=EPOCHS, updates=SMALL),
            Scratch(name=f"{name}-many", setting=many, base=0, epochs=EPOCHS, updates=SMALL),
            Scratch(name=f"{name}-rows", setting=few, base=0, epochs=EPOCHS, updates=rows // EPOCHS),
        ]
    hdfs = replace(SETTINGS["hdfs"], partitions=FEW)
    made.append(Scratch(name="hdfs-base", setting=hdfs, base=rows, epochs=1, updates=SMALL))
    return made


RECOVERED = (
    "changelog-few",
    "changelog-many",
    "changelog-rows",
    "snapshots-few",
    "snapshots-many",
    "snapshots-rows",
    "hdfs-few",
    "hdfs-many",
    "hdfs-rows",
    "hdfs-base",
)


def calibrate(*, cores: int, rows: int = 400_000, rounds: int = 2, say: Say = lambda _: None) -> tuple[Rates, Costs]:
    """Measure this machine, in a few minutes. Refused if other work disturbs it so much that rates would be wrong."""
    with tempfile.TemporaryDirectory(prefix="epochal-calibration-") as folder:
        wanted = {one.name: one for one in streams(rows)}
        say("building scratch streams")
        built = build_all(list(wanted.values()), Path(folder), cores)
        found: dict[str, Measured] = {}

        def measure(name: str) -> None:
            # The quickest: what else the machine does can only make it slower.
            earlier = [found[name]] if name in found else []
            new = [recover(wanted[name], Path(folder), cores, rows=SMALL) for _ in range(rounds)]
            found[name] = min([*earlier, *new], key=lambda one: one.epoch)

        for number, name in enumerate(RECOVERED):
            say(f"recovery {number + 1} of {len(RECOVERED)}")
            measure(name)
        for name in dict.fromkeys(name for pair in not_told_apart(found) for name in pair):
            say(f"{name} again: the machine was busy")
            measure(name)
        if pairs := not_told_apart(found):
            few, more = pairs[0]
            raise Refused(
                f"this machine cannot be measured now: the recovery of a stream with {_described(wanted[more])} took "
                f"{found[more].epoch:.1f} s, that of one with {_described(wanted[few])} {found[few].epoch:.1f} s. "
                "Other work must have disturbed them. Nothing was stored. Run this again when the machine is quiet"
            )
    return rates_of(found, cores), costs_of(built, found, rows)


def not_told_apart(found: Mapping[str, Measured]) -> list[tuple[str, str]]:
    """The pairs of streams of which the larger was not recovered more slowly: rates by them would be noise."""
    return [(few, more) for few, more in SLOWER if found[more].epoch - found[few].epoch <= LEAST]


def _described(scratch: Scratch) -> str:
    return f"{scratch.updates * scratch.epochs:,} changes in {scratch.setting.partitions} partitions"


def build_all(wanted: list[Scratch], folder: Path, cores: int) -> Mapping[str, Mapping[str, float]]:
    """Build streams in a new process. Returns what an epoch of each cost."""
    conf = {"spark.sql.streaming.stateStore.maintenanceInterval": "1s"}
    task = {"kind": "scratch", "cores": cores, "conf": conf, "folder": str(folder)}
    answer = trial.run({**task, "streams": [scratch.to_json() for scratch in wanted]})
    built: Mapping[str, Mapping[str, float]] = answer["built"]
    return built


def recover(scratch: Scratch, folder: Path, cores: int, *, rows: int) -> Measured:
    """Recover a copy of one stream in a new process, and run one epoch of so many rows."""
    state = read_state(LocalFiles(), str(folder / scratch.name))
    with tempfile.TemporaryDirectory(prefix="epochal-recovery-") as made:
        checkpoint = shutil.copytree(folder / scratch.name, Path(made, "copy"))
        answer: Mapping[str, Any] = trial.run(
            {
                "kind": "count",
                "stream": scratch.to_json(),
                "checkpoint": str(checkpoint),
                "epoch": state.epoch + 1,
                "rows": rows,
                "cores": cores,
                "conf": settings_of(scratch.setting),
            }
        )
    return Measured(session=answer["session"], begun=answer["begun"], end=answer["epoch"], state=state)


def rates_of(found: Mapping[str, Measured], cores: int) -> Rates:
    """The rates that explain the recoveries."""
    few, plain = found["changelog-few"], found["snapshots-few"]
    opened = _opened(few, found["changelog-many"], cores)
    rocksdb = StoreRates(
        opened=opened,
        loaded=_loaded(plain, found["snapshots-rows"], cores),
        replayed=_replayed(few, found["changelog-rows"], cores),
    )
    hdfs = StoreRates(
        opened=_opened(found["hdfs-few"], found["hdfs-many"], cores),
        loaded=_loaded(found["hdfs-few"], found["hdfs-base"], cores),
        replayed=_replayed(found["hdfs-few"], found["hdfs-rows"], cores),
    )
    sessions = sorted(one.session for one in found.values())
    queries = sorted(one.begun - one.session for one in found.values())
    restoring = FEW / cores * opened + _changes(few.state) / cores / rocksdb.replayed
    return Rates(
        session=sessions[len(sessions) // 2],
        query=queries[len(queries) // 2],
        epoch=max(few.epoch - restoring, LEAST),
        stores={Provider.ROCKSDB: rocksdb, Provider.HDFS_BACKED: hdfs},
        uploaded=max(_opened(plain, found["snapshots-many"], cores) - opened, LEAST / 10),
        measured=datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )


def _opened(few: Measured, many: Measured, cores: int) -> float:
    """Seconds to open a store."""
    return max((many.epoch - few.epoch) / ((MANY - FEW) / cores), LEAST / 10)


def _replayed(few: Measured, more: Measured, cores: int) -> float:
    """Changes in a second."""
    return max((_changes(more.state) - _changes(few.state)) / cores, 1.0) / max(more.epoch - few.epoch, LEAST)


def _loaded(few: Measured, larger: Measured, cores: int) -> float:
    """Bytes of snapshots in a second."""
    return max((_snapshots(larger.state) - _snapshots(few.state)) / cores, 1.0) / max(larger.epoch - few.epoch, LEAST)


def _snapshots(state: SparkState) -> float:
    return sum(store.snapshot_bytes for operator in state.operators for store in operator.stores)


def _changes(state: SparkState) -> float:
    return sum(store.replayed for operator in state.operators for store in operator.stores)


def costs_of(built: Mapping[str, Mapping[str, float]], found: Mapping[str, Measured], rows: int) -> Costs:
    """What commits cost."""
    one = {name: _commit_costs(built, name, rows) for name in ("changelog", "snapshots", "hdfs")}
    row_bytes = {
        Provider.ROCKSDB: _row_bytes(found["snapshots-rows"].state),
        Provider.HDFS_BACKED: _row_bytes(found["hdfs-base"].state),
    }
    return Costs(
        changelog=one["changelog"],
        snapshots=one["snapshots"],
        hdfs_backed=one["hdfs"],
        rewritten=one["hdfs"].row,  # about what it costs to write it once
        row_bytes=row_bytes,
    )


def _commit_costs(built: Mapping[str, Mapping[str, float]], name: str, rows: int) -> CommitCosts:
    few, many, large = (built[f"{name}-{kind}"]["cpu"] for kind in ("few", "many", "rows"))
    return CommitCosts(
        store=max((many - few) / (MANY - FEW), 1e-4), row=max((large - few) / (rows / EPOCHS - SMALL), 1e-8)
    )


def _row_bytes(state: SparkState) -> float:
    (operator,) = state.operators
    rows = operator.rows.count if operator.rows is not None else 0
    return max(_snapshots(state) / max(rows, 1), 0.1)
