"""The records of compactions on disk, and which files are listed after them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from epochal.sinks.files.compaction import live, records
from epochal.sinks.files.compaction.records import CompactionDone, CompactionPlan, Joined
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.txn.errors import JournalCorrupt
from tests.sinks.compacting import LINEAGE, TARGET, MemoryDisk, compactor, name_of, publish

LAYOUT = Layout(TARGET)
JOINED = Joined(LINEAGE, "000000000002", "b=1/new", 5, "0", (("b=1/old", 2), ("b=1/older", 3)))
PLAN = CompactionPlan(1, "000000000001-ab", 60.0, (JOINED,), 1000.0)
DONE = CompactionDone(1, (JOINED,), 1001.5)


def spelled(record: dict[str, Any]) -> bytes:
    inner = json.dumps(record, sort_keys=True, separators=(",", ":"))
    check = hashlib.sha256(inner.encode()).hexdigest()
    return f'{{"check":"{check}","record":{inner}}}\n'.encode()


def test_what_was_written_is_read() -> None:
    disk = MemoryDisk()

    assert records.create(disk, LAYOUT, PLAN)
    assert not records.create(disk, LAYOUT, CompactionPlan(1, "another", 0, (), 0))
    assert records.create(disk, LAYOUT, DONE)
    assert records.read_plan(disk, LAYOUT, 1) == PLAN
    assert records.read_done(disk, LAYOUT, 1) == DONE


def test_a_plan_is_spelled_as_the_docs_say() -> None:
    disk = MemoryDisk()
    records.create(disk, LAYOUT, PLAN)

    (path,) = disk.content
    assert path == "/target/_epochal/compactions/000000000001.plan.json"
    assert disk.content[path] == spelled(
        {
            "at": 1000.0,
            "files": [
                {
                    "bytes": 5,
                    "entry": "000000000002",
                    "lineage": LINEAGE,
                    "path": "b=1/new",
                    "replaced": [["b=1/old", 2], ["b=1/older", 3]],
                    "staged": "0",
                }
            ],
            "format": 1,
            "grace": 60.0,
            "kind": "plan",
            "number": 1,
            "staging": "000000000001-ab",
        }
    )


def test_the_newest_plan_says_that_all_before_it_are_done() -> None:
    disk = MemoryDisk()
    for number in (1, 2):
        records.create(disk, LAYOUT, CompactionPlan(number, "s", 0, (), 0))
        records.create(disk, LAYOUT, CompactionDone(number, (), 0))
    records.create_removed(disk, LAYOUT, 1)
    records.create(disk, LAYOUT, CompactionPlan(3, "s", 0, (), 0))
    disk.create(f"{LAYOUT.compactions}/.epochal-tmp-000000000003.done.json-x", b"half")

    known = records.read(disk, LAYOUT)

    assert (known.last, [done.number for done in known.done], [*known.removed]) == (3, [1, 2], [1])
    assert not known.is_finished


def good() -> dict[str, Any]:
    disk = MemoryDisk()
    records.create(disk, LAYOUT, PLAN)
    record: dict[str, Any] = json.loads(next(iter(disk.content.values())))["record"]
    return record


def with_path(field: str, value: object) -> bytes:
    record = good()
    record["files"][0][field] = value
    return spelled(record)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "torn or foreign"),
        (b"{}", "torn or foreign"),
        (b"[]", "torn or foreign"),
        (spelled(good())[:-40], "torn or foreign"),
        (spelled(good()).replace(b'"bytes":5', b'"bytes":6'), "checksum"),
        (spelled(good()) + b"\n", "checksum"),
        (spelled({**good(), "format": 2}), "written in format 2.*run the newer epochal"),
        (spelled({**good(), "number": 2}), "holds another record"),
        (spelled({**good(), "kind": "done"}), "holds another record"),
        (spelled({key: value for key, value in good().items() if key != "grace"}), "fields"),
        (spelled({**good(), "grace": "1h"}), "fields"),
        (spelled({**good(), "files": [1]}), "fields"),
        (spelled({**good(), "staging": ""}), "fields"),
        (spelled({**good(), "staging": "../.."}), "fields"),
        (spelled({**good(), "staging": "a/b"}), "fields"),
        (with_path("path", "../outside"), "fields"),
        (with_path("path", "/etc/passwd"), "fields"),
        (with_path("path", "_epochal/manifest/x"), "fields"),
        (with_path("replaced", [["a/../../b", 1]]), "fields"),
        (with_path("replaced", [["a"]]), "fields"),
        (with_path("bytes", -1), "fields"),
        (with_path("bytes", True), "fields"),
    ],
)
def test_what_cannot_be_trusted_is_an_error_that_names_the_file(data: bytes, fault: str) -> None:
    disk = MemoryDisk()
    path = records.path_of(LAYOUT, 1, "plan")
    disk.create(path, data)

    with pytest.raises(JournalCorrupt, match=f"^{path}: .*{fault}"):
        records.read_plan(disk, LAYOUT, 1)


def test_a_foreign_file_among_the_records_is_named() -> None:
    disk = MemoryDisk({f"{LAYOUT.compactions}/notes.txt": b""})

    with pytest.raises(JournalCorrupt, match=r"notes\.txt: not a record"):
        records.read(disk, LAYOUT)


def test_a_record_that_is_missing_is_named() -> None:
    disk = MemoryDisk()
    records.create(disk, LAYOUT, CompactionPlan(2, "s", 0, (), 0))

    with pytest.raises(JournalCorrupt, match=r"000000000001\.done\.json: missing"):
        records.read(disk, LAYOUT)


def entry(epoch: int, *files: tuple[str, int]) -> PublishedEpoch:
    return PublishedEpoch(LINEAGE, epoch, 1, "digest", epoch * 10, files)


def joined(path: str, epoch: int, *replaced: tuple[str, int]) -> Joined:
    return Joined(LINEAGE, f"{epoch:012d}", path, 9, "0", replaced)


def test_a_joined_file_stands_where_the_last_one_stood_and_rows_stay() -> None:
    entries = [entry(0, ("a0", 1), ("b0", 1)), entry(1, ("b1", 1), ("a1", 1), ("c1", 1)), entry(2, ("a2", 1))]
    done = [CompactionDone(1, (joined("A", 1, ("a0", 1), ("a1", 1)), joined("B", 1, ("b0", 1), ("b1", 1))), 0)]

    found = live.after(entries, done)

    assert [[path for path, _ in e.files] for e in found] == [[], ["B", "A", "c1"], ["a2"]]
    assert [e.rows for e in found] == [0, 10, 20]


def test_a_joined_file_is_joined_again() -> None:
    entries = [entry(0, ("a0", 1)), entry(1, ("a1", 1)), entry(2, ("a2", 1))]
    done = [
        CompactionDone(1, (joined("A", 1, ("a0", 1), ("a1", 1)),), 0),
        CompactionDone(2, (), 0),  # given up
        CompactionDone(3, (joined("AA", 2, ("A", 9), ("a2", 1)),), 0),
    ]

    assert [e.files for e in live.after(entries, done)] == [(), (), (("AA", 9),)]


@pytest.mark.parametrize("replaced", [("gone", 1), ("a0", 2)])
def test_a_compaction_of_what_no_manifest_lists_is_an_error(replaced: tuple[str, int]) -> None:
    with pytest.raises(JournalCorrupt, match=rf"compaction 7 joined {replaced[0]}"):
        live.after([entry(0, ("a0", 1))], [CompactionDone(7, (joined("A", 0, replaced),), 0)])


def test_a_manifest_that_was_lost_after_a_compaction_is_an_error() -> None:
    disk = MemoryDisk()
    for epoch in range(3):
        publish(disk, epoch, {name_of(epoch): b"x\n"})
    compactor(disk).run()
    disk.delete(f"{TARGET}/_epochal/manifest/{LINEAGE}/000000000000.json")

    with pytest.raises(JournalCorrupt, match="which no manifest lists"):
        live.published(disk, TARGET)
