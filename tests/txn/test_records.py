from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from epochal.txn.codec import LARGE
from epochal.txn.driver_facts import DriverFacts
from epochal.txn.errors import JournalCorrupt
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Description, Handle, Json, Staged, canonical
from epochal.txn.process import Process
from epochal.txn.records import (
    Decided,
    Done,
    GenerationStarted,
    Prepared,
    Record,
    Roll,
    Rolled,
    Seal,
    Snapshot,
    StateRecord,
    decode,
    encode,
    epoch_of_name,
    is_record_name,
)
from epochal.txn.row_digests import RowDigest
from epochal.txn.state.segments import SegmentRef
from epochal.txn.totals import EpochSpan, Totals
from tests.txn.memory import MemoryFiles

GOLDEN = Path(__file__).parent / "golden"
AT = "2026-01-02T03:04:05.678+00:00"
QUERY = "7c8d2a4e-0000-4000-8000-000000000001"

RECORDS: tuple[Record, ...] = (
    GenerationStarted(
        generation=3,
        query=QUERY,
        base=40,
        incarnation=2,
        commit="eager",
        sinks={"files": Description({"type": "files", "target": "archive/orders"})},
        adopted={"files": 39},
        driver=DriverFacts(process=Process(host="host", pid=4711), version="0.1.0"),
        at=AT,
    ),
    Prepared(
        epoch=42,
        generation=3,
        offsets="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        sinks={"files": Staged(Handle(1, {"bytes": 1234567890, "ö": [None, True, 1.5]}), 3)},
        at=AT,
    ),
    Seal(epoch=42, generation=2, by=3, at=AT),
    Decided(epoch=42, generation=3, at=AT),
    Done(epoch=42, generation=3, at=AT),
    Roll(
        generation=3,
        number=1,
        by=3,
        after=42,
        sinks={
            "files": Staged(
                Handle(2, {"spent": ["open/000000000041"]}),
                0,
                changes={"000000000041 day=1/": None, "target": "archive/orders"},
            )
        },
        at=AT,
    ),
    Rolled(generation=3, number=1, at=AT),
    Snapshot(through=40, at=AT),
    Snapshot(through=41, at=AT, kept={"files": {"target": "archive/orders", "000000000041 day=1/": {"at": 1.5}}}),
    Snapshot(
        through=42,
        at=AT,
        totals=Totals(40, {"files": (EpochSpan("archive/orders", 40, 42, 3, RowDigest(9, "x64:0123456789abcdef")),)}),
    ),
    Snapshot(through=43, at=AT, state=17),
    StateRecord(
        number=17,
        through=43,
        segments=(
            SegmentRef("m000000000012-00-5d41402a5d41402a.seg", "5d41402a" * 8, 1234, 40, 0, 38, True),
            SegmentRef("m000000000017-00-0123456789abcdef.seg", "01234567" * 8, 123, 2, 3, 43, False),
        ),
        at=AT,
    ),
)


def title(record: Record) -> str:
    if isinstance(record, Snapshot):
        extra = [name for name in ("kept", "totals", "state") if getattr(record, name)]
        return "-".join([record.kind, *extra])
    return record.kind


each_record = pytest.mark.parametrize("record", RECORDS, ids=title)


def assert_corrupt(name: str, data: bytes) -> str:
    """Reading a journal of this one file is an error that names the file; its text."""
    files = MemoryFiles()
    files.content[f"journal/{name}"] = data
    with pytest.raises(JournalCorrupt) as caught:
        Journal(files, "journal").read()

    assert f"journal/{name}" in str(caught.value)
    return str(caught.value)


def signed(inner: dict[str, Json]) -> bytes:
    """A file whose checksum is right."""
    check = hashlib.sha256(canonical(inner)).hexdigest()
    return canonical({"check": check, "record": inner}) + b"\n"


@each_record
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode("path", record.name, encode(record)) == record


@each_record
def test_the_format_on_disk_has_not_changed(record: Record) -> None:
    written = (GOLDEN / f"{title(record)}.json").read_bytes()

    assert encode(record) == written
    assert decode("path", record.name, written) == record


def test_every_kind_of_record_has_its_bytes_kept() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {title(record) for record in RECORDS}


def test_a_record_is_found_by_its_name() -> None:
    names = [record.name for record in RECORDS]

    assert names == [
        "g000003.json",
        "e000000000042.g000003.json",
        "e000000000042.g000002.json",
        "e000000000042.decided.json",
        "e000000000042.done.json",
        "r000003.000001.json",
        "r000003.000001.done.json",
        "s000000000040.json",
        "s000000000041.json",
        "s000000000042.json",
        "s000000000043.json",
        "m000000000017.json",
    ]
    assert all(is_record_name(name) for name in names)
    assert [epoch_of_name(name) for name in names] == [None, 42, 42, 42, 42, *[None] * 7]


@pytest.mark.parametrize(
    "record",
    [
        Roll(3, 1_000_000, 3, 42),
        Rolled(3, 1_000_000),
        GenerationStarted(1_000_000, "query", base=0),
        Prepared(42, 1_000_000, "", {}),
    ],
    ids=lambda record: record.name,
)
def test_the_millionth_of_its_kind_has_a_name_like_any_other(record: Record) -> None:
    assert is_record_name(record.name)
    assert decode(record.name, record.name, encode(record)) == record


def test_the_millionth_attempt_is_known_by_its_staging_area() -> None:
    attempt = Attempt("query", 42, 1_000_000, 1_000_000, "5a17")

    assert Attempt.from_key("query", attempt.key) == attempt


def test_a_roll_and_its_seal_compete_for_one_name() -> None:
    roll, seal = Roll(2, 1, by=2, after=7), Roll(2, 1, by=3, after=8)

    assert roll.name == seal.name
    assert (roll.is_seal, seal.is_seal) == (False, True)


def test_a_snapshot_of_a_stream_without_open_parts_is_spelled_as_ever() -> None:
    assert b"kept" not in encode(Snapshot(through=40, at=AT))


def test_a_digest_is_spelled_only_where_one_was_taken() -> None:
    handle = Handle(1, {})

    with_digest = Prepared(0, 1, "", {"sink": Staged(handle, 3, digest="x64:0123456789abcdef")})
    assert b'"digest":"x64:0123456789abcdef"' in encode(with_digest)
    assert b"digest" not in encode(Prepared(0, 1, "", {"sink": Staged(handle, 3)}))


def test_prepared_and_seal_compete_for_one_name() -> None:
    assert Prepared(1, 2, "", {}).name == Seal(1, 2, by=3).name


@each_record
@pytest.mark.parametrize("pattern", [0x01, 0x20, 0x80, 0xFF])
def test_a_flipped_byte_is_corrupt(record: Record, pattern: int) -> None:
    whole = encode(record)

    for place in range(len(whole)):
        assert_corrupt(record.name, whole[:place] + bytes([whole[place] ^ pattern]) + whole[place + 1 :])


@each_record
@pytest.mark.parametrize("byte", [b"e", b"0", b" ", b'"'])
def test_another_byte_is_corrupt(record: Record, byte: bytes) -> None:
    whole = encode(record)

    for place in range(len(whole)):
        if whole[place : place + 1] != byte:
            assert_corrupt(record.name, whole[:place] + byte + whole[place + 1 :])


@each_record
def test_a_cut_file_is_corrupt(record: Record) -> None:
    whole = encode(record)

    for length in range(len(whole)):
        assert_corrupt(record.name, whole[:length])


@each_record
def test_a_file_with_something_behind_it_is_corrupt(record: Record) -> None:
    for more in (b"\n", b" ", b"\x00" * 512, encode(record)):
        assert_corrupt(record.name, encode(record) + more)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{}",
        b"null",
        b'{"record":[]}',
        b'{"record":"format"}',
        b'{"record":{"format":1}}',
        b'{"record":{"format":NaN}}',
        b'{"record":{"format":1e999}}',
        b'{"record":' * 50_000,
        b"\xff\xfe",
        b"PAR1",
    ],
    ids=lambda data: data[:30].decode("latin-1"),
)
def test_a_foreign_file_under_a_records_name_is_corrupt(data: bytes) -> None:
    assert_corrupt("e000000000042.done.json", data)


@each_record
def test_a_newer_format_says_so(record: Record) -> None:
    inner: dict[str, Json] = {"format": 2, "kind": record.kind, "anything": "else"}

    message = assert_corrupt(record.name, signed(inner))

    assert "written in journal format 2, this epochal reads format 1" in message
    assert "run the newer epochal" in message


@pytest.mark.parametrize(
    "inner",
    [
        {"format": 1, "kind": "verdict", "epoch": 42, "generation": 3, "at": AT},
        {"format": 1, "kind": "done", "epoch": 42, "at": AT},
        {"format": 1, "kind": "done", "epoch": 42, "generation": 3, "at": AT, "more": 1},
        {"format": 1, "kind": "done", "epoch": "42", "generation": 3, "at": AT},
        {"format": 1, "kind": "done", "epoch": None, "generation": 3, "at": AT},
        {"format": 1, "epoch": 42, "generation": 3, "at": AT},
        {"format": 1, "kind": ["done"], "epoch": 42, "generation": 3, "at": AT},
    ],
    ids=str,
)
def test_fields_that_no_epochal_writes_are_corrupt(inner: dict[str, Json]) -> None:
    assert_corrupt("e000000000042.done.json", signed(inner))


@pytest.mark.parametrize(
    "name",
    ["README.txt", ".DS_Store", "e42.done.json", "g000003.json.bak", "g00000\N{ARABIC-INDIC DIGIT THREE}.json"],
)
def test_a_foreign_name_in_the_folder_is_an_error(name: str) -> None:
    message = assert_corrupt(name, encode(RECORDS[0]))

    assert "not a file of this journal" in message


@each_record
def test_a_record_under_anothers_name_is_corrupt(record: Record) -> None:
    for name in {other.name for other in RECORDS} - {record.name}:
        assert record.name in assert_corrupt(name, encode(record))


@pytest.mark.parametrize("name", ["old", "g000003.json"])
def test_a_folder_in_the_journal_is_an_error(name: str) -> None:
    files = MemoryFiles()
    files.content[f"journal/{name}/file"] = b""

    with pytest.raises(JournalCorrupt, match=f"journal/{name}: a folder does not belong in a journal"):
        Journal(files, "journal").read()


@pytest.mark.parametrize("place", [0, 12, 60, 80, 90, 5000, -40, -2, -1])
def test_a_large_record_with_another_byte_is_refused(place: int) -> None:
    changes: dict[str, Json] = {f"key {number}": number for number in range(10_000)}
    record = Prepared(0, 1, "", {"sink": Staged(Handle(1, {}), 1, changes=changes)})
    data = encode(record)
    broken = bytearray(data)
    broken[place] ^= 1

    assert len(data) > LARGE
    assert decode("path", record.name, data) == record
    assert_corrupt(record.name, bytes(broken))
    assert_corrupt(record.name, data[:-1])
    assert_corrupt(record.name, data + b"\n")
