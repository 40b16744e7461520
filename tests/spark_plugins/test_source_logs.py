"""What the digest of an epoch's offsets says for each kind of source, on checkpoints as Spark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epochal.spark_plugins import source_logs
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.txn.files import LocalFiles
from epochal.txn.offsets import BY_ITSELF, UNKNOWN, Digest, Match, compare

PLAN = '{"batchWatermarkMs":0,"batchTimestampMs":1794963691730,"conf":{}}'
File = tuple[str, int]


class Counting(LocalFiles):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__(sync=False)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


def plan(root: Path, epoch: int, *offsets: str, version: str = "v1") -> None:
    (root / "offsets").mkdir(exist_ok=True)
    (root / "offsets" / str(epoch)).write_text("\n".join([version, PLAN, *offsets]))


def log(root: Path, name: str, *entries: tuple[File, int], source: str = "0") -> None:
    """A log file of a file source."""
    folder = root / "sources" / source
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"path": path, "timestamp": at, "batchId": batch}, separators=(",", ":"))
        for (path, at), batch in entries
    ]
    (folder / name).write_text("\n".join(["v1", *lines]))


def proof(root: Path, epoch: int) -> str:
    digest = SparkCheckpoint(LocalFiles(), str(root)).offsets(epoch)
    assert digest is not None
    return Digest.parse(digest).proof


def one_epoch(root: Path, *files: File) -> str:
    plan(root, 0, '{"logOffset":0}')
    log(root, "0", *((file, 0) for file in files))
    return proof(root, 0)


def test_other_files_under_the_same_counter_are_another_epoch(tmp_path: Path) -> None:
    first = one_epoch(tmp_path, ("a", 1), ("b", 1))

    assert one_epoch(tmp_path, ("b", 1), ("a", 1)) == first, "their order does not matter"
    assert one_epoch(tmp_path, ("a", 1), ("c", 1)) != first
    assert one_epoch(tmp_path, ("a", 1), ("b", 2)) != first, "a file that was replaced"
    assert one_epoch(tmp_path, ("a", 1)) != first


def test_an_epoch_counts_the_batches_since_the_one_before_it(tmp_path: Path) -> None:
    plan(tmp_path, 4, '{"logOffset":6}')
    plan(tmp_path, 5, '{"logOffset":8}')
    for batch in (6, 7, 8):
        log(tmp_path, str(batch), ((f"file-{batch}", 1), batch))
    first = proof(tmp_path, 5)
    log(tmp_path, "6", (("other", 1), 6))
    with_other_before = proof(tmp_path, 5)
    log(tmp_path, "7", (("other", 1), 7))

    assert with_other_before == first
    assert proof(tmp_path, 5) != first


def test_a_batch_reads_the_same_from_its_own_log_and_from_compact_ones(tmp_path: Path) -> None:
    entries = [((f"file-{batch}", 1), batch) for batch in range(13)]
    plan(tmp_path, 8, '{"logOffset":8}')
    plan(tmp_path, 9, '{"logOffset":9}')
    log(tmp_path, "9", entries[9])
    alone = proof(tmp_path, 9)
    (tmp_path / "sources" / "0" / "9").unlink()
    log(tmp_path, "9.compact", *entries[:10])
    in_its_own = proof(tmp_path, 9)
    (tmp_path / "sources" / "0" / "9.compact").unlink()
    log(tmp_path, "12.compact", *entries)

    assert in_its_own == alone
    assert proof(tmp_path, 9) == alone


def test_an_epoch_without_new_files_says_so(tmp_path: Path) -> None:
    plan(tmp_path, 0, '{"logOffset":0}')
    plan(tmp_path, 1, '{"logOffset":0}')
    log(tmp_path, "0", (("a", 1), 0))

    assert proof(tmp_path, 1) not in (UNKNOWN, proof(tmp_path, 0))


@pytest.mark.parametrize("missing", ["sources/0/1", "offsets/0"])
def test_logs_that_are_gone_prove_nothing(tmp_path: Path, missing: str) -> None:
    for epoch in (0, 1):
        plan(tmp_path, epoch, f'{{"logOffset":{epoch}}}')
        log(tmp_path, str(epoch), (("a", 1), epoch))
    (tmp_path / missing).unlink()

    assert proof(tmp_path, 1) == UNKNOWN


def test_a_number_that_spark_passed_over_is_not_missed(tmp_path: Path) -> None:
    for epoch in (3, 5):
        plan(tmp_path, epoch, f'{{"logOffset":{epoch}}}')
    for batch in (4, 5):
        log(tmp_path, str(batch), (("a", 1), batch))

    assert proof(tmp_path, 5) != UNKNOWN


def test_the_rate_source_is_known_by_its_beginning(tmp_path: Path) -> None:
    plan(tmp_path, 0, "12")
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text("v1\n1794963688585")
    one = proof(tmp_path, 0)
    (tmp_path / "sources" / "0" / "0").write_text("v1\n1794963699999")

    assert UNKNOWN not in (one, proof(tmp_path, 0))
    assert one != proof(tmp_path, 0)


@pytest.mark.parametrize(
    "offset",
    [
        '{"orders":{"0":120,"1":98}}',
        '{"sourceVersion":1,"reservoirId":"ab","reservoirVersion":4,"index":-1,"isStartingVersion":false}',
        '{"offset":40,"timestamp":1000}',
        "-",
    ],
)
def test_offsets_of_other_sources_identify_their_rows_by_themselves(tmp_path: Path, offset: str) -> None:
    plan(tmp_path, 7, offset)  # and no offsets/6, which is not needed

    assert proof(tmp_path, 7) == BY_ITSELF


def initial(root: Path, offsets: str) -> None:
    """Where Spark's Kafka source began, as it writes it: the byte is for versions before Spark 2.1."""
    (root / "sources" / "0").mkdir(parents=True, exist_ok=True)
    (root / "sources" / "0" / "0").write_bytes(b"\0v1\n" + offsets.encode())


def digest(root: Path, epoch: int) -> str:
    return SparkCheckpoint(LocalFiles(), str(root)).offsets(epoch) or ""


def test_an_epoch_of_kafka_that_begins_elsewhere_is_another_although_it_ends_there(tmp_path: Path) -> None:
    plan(tmp_path, 6, '{"orders":{"0":100}}')
    plan(tmp_path, 7, '{"orders":{"0":120}}')
    one = digest(tmp_path, 7)
    plan(tmp_path, 6, '{"orders":{"0":90}}')
    other = digest(tmp_path, 7)
    plan(tmp_path, 6, '{"orders":{"0":100}}')

    assert compare(one, other) is Match.DIFFERENT
    assert compare(one, digest(tmp_path, 7)) is Match.SAME


def test_the_first_epoch_of_kafka_begins_where_its_source_began(tmp_path: Path) -> None:
    plan(tmp_path, 0, '{"orders":{"0":120}}')
    unknown = digest(tmp_path, 0)
    initial(tmp_path, '{"orders":{"0":100}}')
    one = digest(tmp_path, 0)
    initial(tmp_path, '{"orders":{"0":0}}')

    assert compare(one, digest(tmp_path, 0)) is Match.DIFFERENT
    assert compare(unknown, one) is compare(one, unknown) is Match.SAME, "one of the two does not say where it began"


def test_a_topic_may_have_the_name_of_a_file_sources_counter(tmp_path: Path) -> None:
    plan(tmp_path, 7, '{"logOffset":{"0":120}}')

    assert proof(tmp_path, 7) == BY_ITSELF


@pytest.mark.parametrize(("offset", "version"), [("5", "v1"), ("what", "v1"), ('{"a":1}', "v9")])
def test_what_says_nothing_about_rows_proves_nothing(tmp_path: Path, offset: str, version: str) -> None:
    plan(tmp_path, 0, offset, version=version)

    assert proof(tmp_path, 0) == UNKNOWN


def test_every_source_of_a_query_counts(tmp_path: Path) -> None:
    plan(tmp_path, 0, '{"orders":{"0":1}}', '{"logOffset":0}')
    log(tmp_path, "0", (("a", 1), 0), source="1")
    one = proof(tmp_path, 0)
    log(tmp_path, "0", (("b", 1), 0), source="1")
    other = proof(tmp_path, 0)
    plan(tmp_path, 0, '{"orders":{"0":1}}', '{"logOffset":0}', "4")

    assert len({one, other, BY_ITSELF, UNKNOWN}) == 4
    assert proof(tmp_path, 0) == UNKNOWN, "one source that keeps no log is enough"


def test_sources_with_names_are_found_in_their_folders(tmp_path: Path) -> None:
    plan(tmp_path, 0, 'orders:{"logOffset":0}', 'clicks:{"t":{"0":1}}', version="v2")
    log(tmp_path, "0", (("a", 1), 0), source="orders")
    one = proof(tmp_path, 0)
    log(tmp_path, "0", (("b", 1), 0), source="orders")

    assert len({one, proof(tmp_path, 0), BY_ITSELF, UNKNOWN}) == 4


def test_an_epoch_costs_one_more_read_however_often_it_is_asked_for(tmp_path: Path) -> None:
    files = Counting()
    checkpoint = SparkCheckpoint(files, str(tmp_path))
    for epoch in (0, 1):
        plan(tmp_path, epoch, f'{{"logOffset":{epoch}}}')
        log(tmp_path, str(epoch), (("a", 1), epoch))
    checkpoint.offsets(0)
    files.reads.clear()
    answer = [checkpoint.offsets(1), checkpoint.offsets(1)]
    checkpoint.watermark(1)

    assert answer[0] == answer[1]
    assert [read.removeprefix(f"{tmp_path}/") for read in files.reads] == ["offsets/1", "sources/0/1", "offsets/1"]


def test_what_is_recorded_for_people_has_ends_files_and_a_limit() -> None:
    plan = b'v1\n{"batchWatermarkMs":0}\n'
    kafka, files = b'{"orders":{"0":120}}', b'{"logOffset":7}'
    names = [f"s3a://key:secret@bucket/in/{number}" for number in range(source_logs.FILES)]
    listed: source_logs.Listed = {"1": (names, 5000)}

    found: Any = source_logs.ends(plan + kafka + b"\n" + files, listed)

    assert found["0"] == {"end": {"orders": {"0": 120}}}
    assert found["1"]["end"] == {"logOffset": 7}
    assert found["1"]["file_count"] == 5000
    assert found["1"]["files"][0] == "s3a://bucket/in/0"
    assert "secret" not in str(found)
    long = json.dumps({"orders": {str(number): number for number in range(10_000)}}).encode()
    assert source_logs.ends(plan + long + b"\n" + files, {}) == {"1": {"end": {"logOffset": 7}}}
    wide = source_logs.ends(plan + files, {"0": (["x" * 1000] * 100, 100)})
    assert len(json.dumps(wide)) < source_logs.LONGEST + 1000
    assert source_logs.ends(plan + b"not json", {}) == {"0": {"end": "not json"}}
    assert source_logs.ends(b"v9\n", {}) == {}


def test_the_files_of_an_epoch_are_recorded_without_reading_the_log_again(tmp_path: Path) -> None:
    log(tmp_path, "0", (("file:///in/a", 1), 0), (("file:///in/b", 2), 0))
    plan(tmp_path, 0, '{"logOffset":0}')
    files = Counting()
    checkpoint = SparkCheckpoint(files, str(tmp_path))
    checkpoint.offsets(0)
    before = len(files.reads)

    assert checkpoint.sources(0) == {
        "0": {"end": {"logOffset": 0}, "files": ["file:///in/a", "file:///in/b"], "file_count": 2}
    }
    assert len(files.reads) == before
    assert checkpoint.sources(1) == {}
