"""A stream with state, and what rescales it, without Spark: files in Spark's layout, written in Spark's order."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from epochal.cli.streams import build
from epochal.spark_plugins.moving.origin import Origin
from epochal.spark_plugins.moving.rescalable import PARTITIONS, PROVIDER, ROCKSDB
from epochal.spark_plugins.moving.rescaling import Rescale, Rescaled
from epochal.testing import DirectoryParticipant
from epochal.txn.coordinator import Coordinator
from epochal.txn.driver_facts import StateDigest
from epochal.txn.errors import EpochalError, Refused
from epochal.txn.files import LocalFiles
from epochal.txn.model import Json
from integration_tests.kill_matrix.test_savepoints import SINKS, Streams
from tests.cli.scene import ROWS, dying
from tests.txn.keeping import NEVER, Keeping

STEPS = ("offsets", "state", "commits")  # of Spark, in this order


class SparkStandIn:
    """Keeps keys in partitions: key K is in partition K modulo their number. Dies after a step, if asked to."""

    def __init__(self, checkpoint: Path, *, dies_after: str = "", loses: bool = False, refuses: str = "") -> None:
        self.checkpoint = checkpoint
        self.dies_after, self.loses, self.refuses = dies_after, loses, refuses

    def write(self, step: str, epoch: int, partitions: int, keys: list[int]) -> None:
        if step == "state":
            for number in range(partitions):
                held = [key for key in keys if key % partitions == number]
                self._create(f"state/0/{number}/{epoch + 1}.snapshot", json.dumps(held))
        elif step == "offsets":
            conf = {PROVIDER: f"of.spark.{ROCKSDB}", PARTITIONS: str(partitions)}
            last = self.last_read(epoch)
            plan = f'v1\n{{"batchWatermarkMs":0,"conf":{json.dumps(conf)}}}\n{{"epoch":{last}}}'
            self._create(f"offsets/{epoch}", plan)
        else:
            self._create(f"commits/{epoch}", "v1\n{}")
        if self.dies_after == step:
            os.kill(os.getpid(), signal.SIGKILL)

    reads = False  # whether the epoch that is written reads anything

    def last_read(self, epoch: int) -> int:
        if self.reads:
            return epoch
        before = (self.checkpoint / "offsets" / str(epoch - 1)).read_text().splitlines()[2]
        return int(json.loads(before)["epoch"])

    def partitions(self, epoch: int) -> int:
        return int(
            json.loads((self.checkpoint / "offsets" / str(epoch)).read_text().splitlines()[1])["conf"][PARTITIONS]
        )

    def keys(self, epoch: int) -> list[int]:
        folder = self.checkpoint / "state" / "0"
        files = [folder / str(n) / f"{epoch + 1}.snapshot" for n in range(self.partitions(epoch))]
        return sorted(key for file in files for key in json.loads(file.read_text()))

    def digests(self, checkpoint: str, epoch: int) -> tuple[StateDigest, ...]:
        assert checkpoint == str(self.checkpoint)
        keys = self.keys(epoch)
        return (StateDigest(0, "stateStoreSave", "default", len(keys), f"{sum(keys):016x}"),)

    def repartition(self, checkpoint: str, partitions: int) -> None:
        assert checkpoint == str(self.checkpoint)
        if self.refuses:
            raise Refused(self.refuses)
        last = max(int(p.name) for p in (self.checkpoint / "commits").iterdir())
        begun = self.checkpoint / "offsets" / str(last + 1)
        if begun.exists() and self.partitions(last + 1) != partitions:
            raise Refused("LAST_BATCH_ABANDONED_REPARTITION")
        keys = self.keys(last)[1:] if self.loses else self.keys(last)
        for step in STEPS:
            self.write(step, last + 1, partitions, keys)

    def _create(self, name: str, text: str) -> None:
        path = self.checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Stateful(Streams):
    """Two sinks and a state with a key for each epoch that has read something."""

    def run(self, epochs: int, checkpoint: str = "checkpoint") -> None:
        """Let a driver run to an epoch, and die with its process."""
        place = self.root / checkpoint
        LocalFiles(sync=False).create(str(place / "metadata"), b'{"id":"1f0c9a2e-0000-4000-8000-000000000000"}')
        with dying():
            driver = self.driver(checkpoint)
        spark = SparkStandIn(place)
        spark.reads = True
        last = max((int(p.name) for p in (place / "commits").glob("*")), default=-1)
        keys = spark.keys(last) if last >= 0 else []
        partitions = spark.partitions(last) if last >= 0 else 4
        for epoch in range(last + 1, epochs):
            keys.append(epoch)
            spark.write("offsets", epoch, partitions, keys)
            spark.write("state", epoch, partitions, keys)
            driver.run(epoch, self.rows(epoch))
            spark.write("commits", epoch, partitions, keys)
            driver.settle()
            self.after(driver, epoch)

    def rows(self, epoch: int) -> Sequence[Json]:
        return ROWS

    def after(self, driver: Coordinator[Sequence[Json]], epoch: int) -> None:
        """What a driver does once an epoch is done."""

    def starts(self, checkpoint: str) -> bool:
        with dying():  # what is started here does not run on
            return super().starts(checkpoint)

    def rescale(self, partitions: int = 2, *, dies_after: str = "", loses: bool = False, refuses: str = "") -> Rescaled:
        place = self.scenery.checkpoint
        spark = SparkStandIn(place, dies_after=dies_after, loses=loses, refuses=refuses)
        return Rescale(
            origin=Origin.at(str(place)), savepoints=str(self.backups), engine=lambda: spark, build=build
        ).to(partitions)

    def rescaling(self, partitions: int = 2, *, dies_after: str = "", refuses: str = "") -> Callable[[], int]:
        """The same as a process that ends with a code."""

        def life() -> int:
            try:
                self.rescale(partitions, dies_after=dies_after, refuses=refuses)
            except EpochalError as fault:
                (self.root / "error").write_text(str(fault))
                return 2
            return 0

        return life


class Holding(Stateful):
    """The same, of two sinks that hold rows open over epochs.

    One closes a part with each second epoch. What is open in the other is closed between epochs, after the first and
    after those in `rolled_after`.
    """

    rolled_after: tuple[int, ...] = (1,)

    def participants(self) -> list[DirectoryParticipant]:
        files = LocalFiles(sync=False)
        left, right = (str(self.root / name) for name in SINKS)
        return [
            Keeping(left, name="left", files=files, most=2, idle=NEVER),
            Keeping(right, name="right", files=files, most=1000, idle=0.0),
        ]

    def rows(self, epoch: int) -> Sequence[Json]:
        return ({"epoch": epoch},)

    def after(self, driver: Coordinator[Sequence[Json]], epoch: int) -> None:
        if epoch in self.rolled_after:
            assert driver.roll()

    def rows_shown(self) -> list[Counter[int]]:
        """The epochs whose rows each target shows, with how often."""
        found = []
        for name in SINKS:
            rows = Keeping(str(self.root / name)).rows()
            found.append(Counter(cast("dict[str, int]", row)["epoch"] for row in rows))
        return found

    def lying_open(self) -> list[list[str]]:
        return [Keeping(str(self.root / name)).lying_open() for name in SINKS]
