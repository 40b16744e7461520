"""Commands that say they only read: no file is made, moved or removed, whatever dead starts have left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epochal import RollingFileSink, published
from epochal.sinks.storage.sink_files import LocalSinkFiles, OneByOne
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import TEMPORARY, LocalFiles
from epochal.txn.journal import Journal
from tests.cli.scene import QUERY, Scene
from tests.sinks.compacting import name_of, publish

CHANGING = (
    "create",
    "rename",
    "make_folder",
    "delete",
    "move_folder",
    "join_in_place",
    "join_copies",
    "join_all_copies",
    "create_from",
)
HALF = b"half of a record"


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call of a file operation that changes something, from the moment that a test empties it."""
    seen: list[str] = []

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(files: LocalFiles, path: str, *args: Any, **kwargs: Any) -> Any:
            seen.append(f"{name} {path}")
            return original(files, path, *args, **kwargs)

        return call

    for name in CHANGING:
        owner = LocalFiles if name in vars(LocalFiles) else LocalSinkFiles
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    return seen


def test_every_file_operation_is_known_to_read_or_to_change() -> None:
    reading = {"read", "names", "list", "walk", "length", "modified", "joins_in_place", "head", "chunks"}
    reading |= {"sync", "sync_all"}  # not to a reader
    public = {name for kind in (LocalFiles, LocalSinkFiles) for name in vars(kind) if not name.startswith("_")}

    assert public == reading | {*CHANGING}
    assert {name for name in vars(OneByOne) if not name.startswith("_")} >= {"rename_all", "delete_all"}  # by those


@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["gc"], ["gc", "--fence"], ["audit", "--fast"], ["recover"]]
)
@pytest.mark.parametrize("sink", ["directory", "files"])
def test_a_command_that_only_reads_leaves_what_a_dead_start_left(
    scene: Scene, changes: list[str], command: list[str], sink: str
) -> None:
    lineages = left_by_dead_starts(scene, sink)
    before = scene.disk()
    changes.clear()

    answer = scene.command(*command)

    assert answer.code == 0, answer.err
    assert changes == []
    assert scene.disk() == before
    assert (lineages / f"{TEMPORARY}x").read_bytes() == HALF


@pytest.mark.parametrize("sink", ["directory", "files"])
def test_the_next_start_sweeps_what_a_dead_one_left(scene: Scene, sink: str) -> None:
    lineages = left_by_dead_starts(scene, sink)

    start(scene, sink)

    assert not list(lineages.glob(f"{TEMPORARY}*"))


def test_readers_of_a_target_and_a_compaction_that_only_looks_change_nothing(scene: Scene, changes: list[str]) -> None:
    lineages = left_by_dead_starts(scene, "files")
    for epoch in range(2):
        publish(LocalSinkFiles(sync=False), epoch, {name_of(epoch): b"1\n"}, target=str(scene.root / "files"))
    compactions = scene.root / "files" / "_epochal" / "compactions"
    compactions.mkdir()
    (compactions / f"{TEMPORARY}000000000001.plan.json-0").write_bytes(HALF)
    before = scene.disk()
    changes.clear()

    answer = scene.epochal("compact", str(scene.root / "files"), "--dry-run")
    epochs = [entry.epoch for entry in published(str(scene.root / "files"))]

    assert "dry run: nothing was changed" in answer.out
    assert epochs == [0, 1]
    assert changes == []
    assert scene.disk() == before
    assert lineages.exists()


def left_by_dead_starts(scene: Scene, sink: str) -> Path:
    """A stream that has started, and halves of records in its journal and in its target's register."""
    start(scene, sink)
    lineages = scene.root / ("directory/_lineages" if sink == "directory" else "files/_epochal/lineages")
    for folder in (lineages, scene.checkpoint / "epochal"):
        (folder / f"{TEMPORARY}x").write_bytes(HALF)
    return lineages


def start(scene: Scene, sink: str) -> None:
    if sink == "directory":
        scene.driver()
        return
    files = LocalSinkFiles(sync=False)
    Coordinator(
        journals=lambda _: Journal(files, str(scene.checkpoint / "epochal")),
        checkpoint=SparkCheckpoint(files, str(scene.checkpoint)),
        participants=[RollingFileSink(str(scene.root / "files"), format="json")],
    ).begin()
    assert (scene.checkpoint / "metadata").read_text().count(QUERY) == 1
