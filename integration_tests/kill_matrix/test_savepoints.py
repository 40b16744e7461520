"""Savepoints and restores killed at each of their steps, without Spark: none or whole, and never two streams."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epochal.cli import main
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.testing.processes import fork
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import EpochalError
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from integration_tests.steps import NAMES_OF_RESTORES, NAMES_OF_SAVEPOINTS
from tests.cli.scene import ROWS, Scenery, dying

SINKS = ("left", "right")


def in_a_process(life: Callable[[], object], points: str = "", counts: str = "") -> int:
    """Run something in a process of its own; its exit code, negative for a signal."""
    child = fork()
    if child == 0:
        code = 70
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
            # SIGKILL loses nothing that the kernel has, so there is no need to sync.
            os.fsync = os.sync = lambda *_: None  # type: ignore[assignment]
            failpoints.arm(points, counts)
            result = life()
            code = result if isinstance(result, int) else 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Streams:
    """A stream of two sinks, its savepoints, and where it is restored."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.scenery = Scenery(root)
        self.root = root
        self.backups = root / "backups"

    def run(self, epochs: int, checkpoint: str = "checkpoint") -> None:
        """Let a driver run to an epoch, and die with its process."""
        with dying():
            driver = self.driver(checkpoint)
        state = self.root / checkpoint / "state" / "0" / "0"
        state.mkdir(parents=True, exist_ok=True)
        for version in range(1, epochs + 1):
            (state / f"{version}.delta").write_bytes(b"%d" % version)
        files = LocalFiles(sync=False)
        query: StandInQuery[Sequence[Json]] = StandInQuery(files, str(self.root / checkpoint))
        query.run(epochs, lambda _: ROWS, driver.run, driver.settle)

    def driver(self, checkpoint: str = "checkpoint") -> Coordinator[Sequence[Json]]:
        files, place = LocalFiles(sync=False), str(self.root / checkpoint)
        coordinator: Coordinator[Sequence[Json]] = Coordinator(
            journals=lambda n: Journal(files, f"{place}/epochal" + ("" if n == 1 else f"~{n}")),
            checkpoint=SparkCheckpoint(files, place),
            participants=self.participants(),
        )
        coordinator.begin()
        return coordinator

    def participants(self) -> list[DirectoryParticipant]:
        return [self.scenery.target(name) for name in SINKS]

    def starts(self, checkpoint: str) -> bool:
        """Whether a driver can start there."""
        if not (self.root / checkpoint / "metadata").exists():
            return False
        try:
            self.driver(checkpoint)
        except EpochalError:
            return False
        return True

    def savepoint(self) -> int:
        return main(["savepoint", str(self.scenery.checkpoint), str(self.backups)])

    def restore(self, *options: str) -> int:
        (name,) = (m.name for m in self.store.manifests())
        return main(["restore", str(self.backups / name), str(self.root / "new"), "--wait", "0", *options])

    @property
    def store(self) -> SavepointStore:
        return SavepointStore(LocalSinkFiles(sync=False), str(self.backups))

    def shown(self) -> list[Counter[int]]:
        """The epochs that each target shows, with how often."""
        return [
            Counter(int(path.name.split(".")[0]) for path in (self.root / sink).iterdir() if path.is_file())
            for sink in SINKS
        ]


def hits(life: Callable[[], object], counts: Path) -> Counter[str]:
    """How often each failpoint is hit."""
    counts.touch()
    assert in_a_process(life, counts=str(counts)) == 0
    return Counter(counts.read_text().split())


def sample(number: int) -> list[int]:
    """The first and nearly the last of so many hits, and one in the middle of many.

    Not the last: of two files of the same content that are stored at once, both may find that it is not there.
    """
    return sorted({1, *([number // 2] if number > 20 else []), number - 3 if number > 5 else number})


def test_a_savepoint_that_is_killed_at_any_step_is_none_or_whole(tmp_path: Path) -> None:
    first = Streams(tmp_path / "first")
    first.run(3)
    reached = hits(first.savepoint, tmp_path / "counts")
    assert {*NAMES_OF_SAVEPOINTS} - {*reached} == {"before-savepoint-sweep", "after-savepoint-sweep"}  # see below
    killed = 0
    for point in (name for name in NAMES_OF_SAVEPOINTS if name in reached):
        for hit in sample(reached[point]):
            streams = Streams(tmp_path / f"{point}-{hit}")
            streams.run(3)
            assert in_a_process(streams.savepoint, f"{point}=kill@{hit}") == -signal.SIGKILL, point
            killed += 1
            store = streams.store
            whole = [m for m in store.manifests() if not store.missing(m)]
            assert len(store.manifests()) == len(whole) <= 1
            store.verify(file for m in whole for file in m.files)

            streams.run(4)
            assert in_a_process(streams.savepoint) == 0
            found = store.manifests()
            assert found[-1].epoch == 3
            assert len(found) == len(whole) + 1
            needed = {file.sha256 for m in found for file in m.files}
            objects = {path.name for path in (streams.backups / "objects").rglob("*") if path.is_file()}
            assert objects == needed, f"{point}@{hit}: what was left was not swept"
            assert list((streams.backups / "taking").iterdir()) == []
            assert in_a_process(lambda s=streams: main(["savepoints", str(s.backups), "--verify"])) == 0  # type: ignore[misc]
    assert killed > len(reached)


@pytest.mark.parametrize("point", failpoints.names("savepoint")[-2:])
def test_a_sweep_that_is_killed_is_finished_by_the_next_savepoint(tmp_path: Path, point: str) -> None:
    streams = Streams(tmp_path / "streams")
    streams.run(3)
    assert in_a_process(streams.savepoint, "before-savepoint-manifest=kill") == -signal.SIGKILL
    streams.run(4)
    assert in_a_process(streams.savepoint, f"{point}=kill") == -signal.SIGKILL
    streams.run(5)
    assert in_a_process(streams.savepoint) == 0

    store = streams.store
    assert [m.epoch for m in store.manifests()] == [3, 4]
    assert [m for m in store.manifests() if store.missing(m)] == []
    assert not (streams.backups / "sweeping.json").exists()
    if point.startswith("before"):
        needed = {file.sha256 for m in store.manifests() for file in m.files}
        assert {path.name for path in (streams.backups / "objects").rglob("*") if path.is_file()} == needed


@pytest.mark.parametrize(
    ("lost", "ahead"),
    [
        (False, 2),
        (True, 2),
        pytest.param(False, 0, marks=pytest.mark.matrix),
        pytest.param(True, 0, marks=pytest.mark.matrix),
    ],
    ids=["original at hand", "original lost", "at hand, nothing since", "lost, nothing since"],
)
def test_a_restore_that_is_killed_at_any_step_can_be_repeated_and_two_streams_never_start(
    tmp_path: Path, lost: bool, ahead: int
) -> None:
    def prepared(name: str) -> Streams:
        streams = Streams(tmp_path / name)
        streams.run(3)
        assert in_a_process(streams.savepoint) == 0
        if ahead:
            streams.run(3 + ahead)
        if lost:
            streams.scenery.checkpoint.rename(streams.root / "hidden")
        return streams

    options = ["--lost-original"] if lost else []
    first = prepared("first")
    reached = hits(lambda: first.restore(*options), tmp_path / "counts")
    assert {name for name in NAMES_OF_RESTORES if name not in reached} == {
        "before-restore-begin",  # on an object store: objects/test_savepoints.py
        "after-restore-begin",
        *(["before-restore-close", "after-restore-close"] if lost else []),
    }
    for point in (name for name in NAMES_OF_RESTORES if name in reached):
        for hit in sample(reached[point]):
            case = f"{point}@{hit}"
            streams = prepared(case)
            code = in_a_process(lambda s=streams: s.restore(*options), f"{point}=kill@{hit}")  # type: ignore[misc]
            assert code == -signal.SIGKILL, case
            if lost:
                (streams.root / "hidden").rename(streams.scenery.checkpoint)  # it was only cut off
            new = streams.starts("new")
            assert not (new and streams.starts("checkpoint")), f"{case}: both can start"
            assert new is (streams.root / "new").exists(), f"{case}: a checkpoint that cannot start"
            if not new:
                if lost:
                    streams.scenery.checkpoint.rename(streams.root / "hidden")
                assert in_a_process(lambda s=streams: s.restore(*options)) == 0, case  # type: ignore[misc]
                if lost:
                    (streams.root / "hidden").rename(streams.scenery.checkpoint)
            assert not streams.starts("checkpoint"), f"{case}: the original can start"
            streams.run(6, "new")

            assert streams.shown() == [Counter(range(6))] * 2, case
            assert [p.name for p in streams.root.iterdir() if ".restoring-" in p.name] == [], case


def test_a_fork_that_is_killed_leaves_the_original_alone(tmp_path: Path) -> None:
    for number, point in enumerate(p for p in NAMES_OF_RESTORES if p.endswith(("restore-file", "restore-rename"))):
        streams = Streams(tmp_path / f"{number}")
        streams.run(3)
        assert in_a_process(streams.savepoint) == 0
        assert in_a_process(lambda s=streams: s.restore("--fork"), f"{point}=kill") == -signal.SIGKILL  # type: ignore[misc]
        streams.run(5)

        assert streams.shown() == [Counter(range(5))] * 2
