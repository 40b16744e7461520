"""A folder of savepoints: several processes at once, and what those that died leave behind."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.spark_plugins.moving import store as module
from epochal.spark_plugins.moving.manifest import Manifest, SavedFile, decode, encode
from epochal.spark_plugins.moving.store import SavepointStore, digest_of, in_chunks
from epochal.txn.errors import DataLost, JournalCorrupt, Refused
from epochal.txn.model import Json
from epochal.txn.process import this_machine, this_process
from tests.cli.scene import ended_process

NOW = 1_700_000_000.0


def facts(pid: int, ticks: int, machine: str) -> dict[str, Json]:
    return {"host": platform.node(), "pid": pid, "ticks": ticks, "machine": machine}


ME = facts(this_process().pid or 0, this_process().ticks or 0, this_machine() or "")
DEAD = facts(ended_process().pid or 0, 1, this_machine() or "")
ELSEWHERE: dict[str, Json] = {"host": "elsewhere", "pid": 1}


@pytest.fixture
def store(tmp_path: Path) -> SavepointStore:
    return SavepointStore(LocalSinkFiles(sync=False), str(tmp_path / "backups"))


def put(store: SavepointStore, content: bytes, path: str = "metadata") -> SavedFile:
    scratch = Path(store.place).parent / "scratch"
    scratch.write_bytes(content)
    digest, size = digest_of(store.files, str(scratch))
    file = SavedFile(path=path, bytes=size, sha256=digest, modified=1.5)
    store.put(file, in_chunks(content))
    return file


def savepoint(name: str, *files: SavedFile) -> Manifest:
    return Manifest(
        name=name,
        query="1f0c9a2e",
        lineage="1f0c9a2e",
        epoch=4,
        generation=2,
        checkpoint="/checkpoints/orders",
        journal="/checkpoints/orders/epochal",
        at="2026-11-18T20:00:00.000+00:00",
        files=files,
    )


def objects(store: SavepointStore) -> set[str]:
    return {entry.name.rpartition("/")[2] for entry in store.files.walk(f"{store.place}/objects")}


def test_a_manifest_is_read_as_it_was_written_and_a_changed_one_is_named(store: SavepointStore) -> None:
    manifest = savepoint("one", put(store, b"a"))

    assert decode("m", encode(manifest)) == manifest
    with pytest.raises(JournalCorrupt, match="m: its checksum"):
        decode("m", encode(manifest).replace(b"orders", b"0rders"))


def test_objects_are_swept_if_no_savepoint_has_them(store: SavepointStore) -> None:
    kept, left = put(store, b"kept"), put(store, b"left")
    store.create(savepoint("one", kept), [kept])

    assert store.sweep("", ME) == 1
    assert objects(store) == {kept.sha256} != {left.sha256}
    assert store.missing(savepoint("one", kept)) == []


def test_nothing_is_swept_while_another_savepoint_is_being_taken(store: SavepointStore) -> None:
    store.begin("other", ME, NOW)
    left = put(store, b"left")

    assert store.sweep("mine", ME) == 0
    assert objects(store) == {left.sha256}
    store.end("other")
    assert store.sweep("mine", ME) == 1


def test_a_savepoint_waits_for_a_sweep_but_not_for_one_that_died(
    store: SavepointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setattr(module, "PATIENCE", 0.0)
    store.files.create(f"{store.place}/sweeping.json", json.dumps(ME).encode())
    with pytest.raises(Refused, match="has been removing old files"):
        store.begin("mine", ME, NOW)
    store.files.delete(f"{store.place}/sweeping.json")
    store.files.create(f"{store.place}/sweeping.json", json.dumps(DEAD).encode())
    store.begin("mine", ME, NOW)

    assert store.files.names(store.place) == ("taking",)


def test_only_savepoints_whose_process_is_dead_are_given_up(store: SavepointStore) -> None:
    for name, process in (("dead", DEAD), ("alive", ME), ("elsewhere", ELSEWHERE)):
        store.begin(name, process, NOW)

    assert store.give_up_dead("mine", NOW + 60) == ["dead"]
    store.end("alive")
    store.end("elsewhere")
    left = put(store, b"left")
    assert store.sweep("mine", ME, ["dead"]) == 1
    assert left.sha256 not in objects(store)
    assert store.files.names(f"{store.place}/taking") == ()


def test_one_that_was_given_up_after_a_day_and_wakes_up_makes_no_savepoint(store: SavepointStore) -> None:
    store.begin("elsewhere", ELSEWHERE, NOW)
    file = put(store, b"content")
    store.sweep("mine", ME, store.give_up_dead("mine", NOW + 100_000))

    assert not store.create(savepoint("elsewhere", file), [file])
    assert store.manifests() == []


def test_content_that_was_changed_or_lost_is_told(store: SavepointStore) -> None:
    file = put(store, b"content")
    path = Path(store.object(file.sha256))
    path.write_bytes(b"CONTENT")
    with pytest.raises(DataLost, match="is not what was stored"):
        store.verify([file])
    assert store.verify_new([file]) == "metadata"
    with pytest.raises(DataLost, match="is gone"):
        store.verify([file])
    path.write_bytes(b"")  # as after a power cut
    put(store, b"content")

    store.verify([file])
