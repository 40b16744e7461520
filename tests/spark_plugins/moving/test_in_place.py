"""A checkpoint that is written where it is to be, on an object store in memory: which of several restores may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from epochal.sinks.storage.objects import ObjectSinkFiles
from epochal.sinks.storage.objects.patience import Patience
from epochal.spark_plugins.moving import in_place
from epochal.spark_plugins.moving.in_place import InPlace
from epochal.spark_plugins.restore_marks import FOLDER, Marks, content_of, refuse_unfinished_restore
from epochal.txn import failpoints
from epochal.txn.errors import JournalCorrupt, Refused
from epochal.txn.process import Process
from tests.cli.scene import ended_process
from tests.sinks.object_memory import Memory, MemoryClient

NEW = "s3://bucket/new"
SAVED = "s3://bucket/backups/one"


@pytest.fixture
def files() -> ObjectSinkFiles:
    patience = Patience(tries=60, first=0.0, sleep=lambda _: None)
    return ObjectSinkFiles("s3://bucket", MemoryClient(Memory()), lambda: True, patience=patience)


@contextmanager
def as_process(process: Process) -> Iterator[None]:
    with patch.object(in_place, "this_process", return_value=process):
        yield


def by_a_dead_one(files: ObjectSinkFiles) -> InPlace:
    with as_process(ended_process()):
        dead = InPlace.at(files, NEW, SAVED)
    files.create(f"{NEW}/state/0/0/7.delta", b"left")
    return dead


def test_a_checkpoint_is_whole_once_its_last_mark_is_there(files: ObjectSinkFiles) -> None:
    placing = InPlace.at(files, NEW, SAVED)
    files.create(f"{NEW}/metadata", b"{}")
    with pytest.raises(Refused, match="has not ended, so the checkpoint is not whole"):
        refuse_unfinished_restore(files, NEW)
    placing.publish(["metadata"])

    refuse_unfinished_restore(files, NEW)
    with pytest.raises(Refused, match="is not empty"):
        InPlace.at(files, NEW, SAVED)


def test_while_one_restore_runs_another_is_refused(files: ObjectSinkFiles) -> None:
    InPlace.at(files, NEW, SAVED)

    with pytest.raises(Refused, match="runs here"):
        InPlace.at(files, NEW, SAVED)


def test_what_another_machine_has_begun_is_left_alone(files: ObjectSinkFiles) -> None:
    with as_process(Process(host="elsewhere", pid=1)):
        InPlace.at(files, NEW, SAVED)
    files.create(f"{NEW}/metadata", b"{}")

    with pytest.raises(Refused, match="nothing tells from here whether it still runs"):
        InPlace.at(files, NEW, SAVED)
    assert content_of(files, NEW) == ["metadata"]


def test_what_a_dead_restore_has_left_is_removed_and_it_can_publish_nothing(files: ObjectSinkFiles) -> None:
    dead = by_a_dead_one(files)
    placing = InPlace.at(files, NEW, SAVED)
    assert content_of(files, NEW) == []
    files.create(f"{NEW}/metadata", b"{}")

    with pytest.raises(Refused, match="has come to be"):
        dead.check(["metadata"])
    with pytest.raises(Refused, match="has come to be"):
        dead.publish(["metadata"])
    dead.give_up()
    assert content_of(files, NEW) == ["metadata"], "who was overtaken removes nothing"
    placing.publish(["metadata"])


def test_of_two_restores_that_find_a_dead_one_one_goes_on(files: ObjectSinkFiles) -> None:
    by_a_dead_one(files)
    hit, asked = failpoints.hit, False
    others: list[InPlace] = []

    def meanwhile(name: str) -> None:
        nonlocal asked
        if name == "before-restore-begin" and not asked:
            asked = True
            others.append(InPlace.at(files, NEW, SAVED))
        hit(name)

    with patch.object(failpoints, "hit", meanwhile), pytest.raises(Refused, match="has begun here meanwhile"):
        InPlace.at(files, NEW, SAVED)
    others[0].publish([])


def test_a_query_that_starts_while_a_restore_begins_keeps_its_files(files: ObjectSinkFiles) -> None:
    hit = failpoints.hit

    def meanwhile(name: str) -> None:
        if name == "before-restore-begin":
            files.create(f"{NEW}/metadata", b"of the query")
        hit(name)

    with patch.object(failpoints, "hit", meanwhile), pytest.raises(Refused, match="is not empty"):
        InPlace.at(files, NEW, SAVED)
    assert files.read(f"{NEW}/metadata") == b"of the query"
    refuse_unfinished_restore(files, NEW)


def test_a_file_of_somebody_else_or_one_that_is_gone_is_noticed(files: ObjectSinkFiles) -> None:
    placing = InPlace.at(files, NEW, SAVED)
    files.create(f"{NEW}/metadata", b"{}")
    with pytest.raises(Refused, match="was removed while this ran"):
        placing.publish(["metadata", "commits/3"])
    files.create(f"{NEW}/offsets/7", b"{}")
    with pytest.raises(Refused, match="has come to be while this ran"):
        placing.publish(["metadata"])
    placing.give_up()

    assert content_of(files, NEW) == []
    InPlace.at(files, NEW, SAVED).publish([])


@pytest.mark.parametrize("content", [b"", b"[]", b'{"kind":"begun"}', b'{"kind":"other","savepoint":"","at":""}'])
def test_a_mark_that_cannot_be_read_is_named(files: ObjectSinkFiles, content: bytes) -> None:
    files.create(f"{NEW}/{FOLDER}/000001.json", content)

    with pytest.raises(JournalCorrupt, match=r"epochal-restoring/000001\.json is no mark of a restore"):
        Marks(files, NEW).last()
