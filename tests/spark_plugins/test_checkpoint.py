"""Reading Spark's checkpoint folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles
from epochal.txn.offsets import Digest


def reader(path: Path) -> SparkCheckpoint:
    return SparkCheckpoint(LocalFiles(), str(path))


def commit(path: Path, *epochs: int) -> None:
    (path / "commits").mkdir(exist_ok=True)
    for epoch in epochs:
        (path / "commits" / str(epoch)).write_text("v1\n{}")


def test_the_query_id_is_the_one_in_metadata(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"57e9b1ea-f9c1-43ee-867b-b05a99aef8a9"}')

    assert reader(tmp_path).query_id() == "57e9b1ea-f9c1-43ee-867b-b05a99aef8a9"


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", "[" * 200_000])
def test_metadata_that_spark_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text(text)

    with pytest.raises(Refused, match="metadata"):
        reader(tmp_path).query_id()


def test_a_folder_without_metadata_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not the checkpoint"):
        reader(tmp_path).query_id()


def test_nothing_is_committed_before_the_first_epoch(tmp_path: Path) -> None:
    assert reader(tmp_path).committed() == -1


def test_the_highest_number_counts_and_other_files_do_not(tmp_path: Path) -> None:
    commit(tmp_path, 3, 9, 10)
    for name in (".10.crc", ".11.6c1d.tmp", "11.compact", "٣"):
        (tmp_path / "commits" / name).touch()

    assert reader(tmp_path).committed() == 10


def test_later_commits_are_seen_even_after_spark_purged_the_one_seen_last(tmp_path: Path) -> None:
    checkpoint = reader(tmp_path)
    commit(tmp_path, 0)
    first = checkpoint.committed()
    commit(tmp_path, 1, 2)
    second = checkpoint.committed()
    for epoch in (0, 1, 2):
        (tmp_path / "commits" / str(epoch)).unlink()
    commit(tmp_path, 150)

    assert (first, second, checkpoint.committed()) == (0, 2, 150)


class Counting(LocalFiles):
    """Counts how often the file system is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def length(self, path: str) -> int | None:
        self.asked.append(path)
        return super().length(path)

    def modified(self, path: str) -> float | None:
        self.asked.append(path)
        return super().modified(path)


def test_the_time_of_a_commit_comes_with_the_look_for_it(tmp_path: Path) -> None:
    files = Counting()
    checkpoint = SparkCheckpoint(files, str(tmp_path))
    commit(tmp_path, 0)
    checkpoint.committed()
    commit(tmp_path, 1, 2)
    os.utime(tmp_path / "commits" / "1", (1000.0, 1000.5))
    checkpoint.committed()
    before = len(files.asked)

    assert checkpoint.committed_at(1) == 1000.5
    assert checkpoint.committed_at(2) == (tmp_path / "commits" / "2").stat().st_mtime
    assert len(files.asked) == before
    assert checkpoint.committed_at(0) == (tmp_path / "commits" / "0").stat().st_mtime  # found by a listing: asked for
    assert checkpoint.committed_at(3) is None
    assert len(files.asked) == before + 2


def test_the_digest_of_offsets_changes_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    offsets = tmp_path / "offsets" / "4"
    offsets.write_text("v1\n{}\n{}")
    one = reader(tmp_path).offsets(4)
    offsets.write_text('v1\n{}\n{"logOffset":1}')

    assert one is not None
    assert reader(tmp_path).offsets(4) not in (one, None)
    assert reader(tmp_path).offsets(5) is None


def test_an_epoch_planned_again_at_another_time_has_the_same_plain_digest(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    offsets = tmp_path / "offsets" / "4"
    plan = '{"batchWatermarkMs":%d,"batchTimestampMs":%d,"conf":{"spark.sql.shuffle.partitions":"%d"}}'
    offsets.write_text("v1\n" + plan % (0, 1794847011692, 200) + '\n{"logOffset":4}')
    one = Digest.parse(reader(tmp_path).offsets(4) or "")
    offsets.write_text("v1\n" + plan % (0, 1794850000000, 4) + '\n{"logOffset":4}')
    again = Digest.parse(reader(tmp_path).offsets(4) or "")
    offsets.write_text("v1\n" + plan % (7, 1794847011692, 200) + '\n{"logOffset":4}')
    later = Digest.parse(reader(tmp_path).offsets(4) or "")

    assert again.plain == one.plain
    assert again.whole != one.whole, "Spark has planned it anew: this is no replay"
    assert later.plain != one.plain, "the watermark decides which rows come too late"


@pytest.mark.parametrize(
    ("plan", "watermark"),
    [
        ('{"batchWatermarkMs":1700000000500,"batchTimestampMs":1}', 1_700_000_000.5),
        ('{"batchWatermarkMs":0,"batchTimestampMs":1}', None),  # what Spark writes before it has seen a time
        ('{"batchTimestampMs":1}', None),
        ("torn", None),
    ],
)
def test_the_watermark_is_the_one_that_the_epoch_was_planned_with(
    tmp_path: Path, plan: str, watermark: float | None
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(f'v1\n{plan}\n{{"logOffset":4}}')

    assert reader(tmp_path).watermark(4) == watermark
    assert reader(tmp_path).watermark(5) is None


def test_offsets_that_were_written_anew_are_read_again_with_their_watermark(tmp_path: Path) -> None:
    def plan(watermark: int) -> None:
        (tmp_path / "offsets" / "3").write_text(f'v1\n{{"batchWatermarkMs":{watermark}}}\n{{"offset":1}}')

    (tmp_path / "offsets").mkdir()
    checkpoint = reader(tmp_path)
    answer = []
    for watermark in (1000, 2000):
        plan(watermark)
        answer.append((checkpoint.offsets(3), checkpoint.watermark(3)))

    assert [watermark for _, watermark in answer] == [1.0, 2.0]
    assert answer[0][0] != answer[1][0]
    assert reader(tmp_path).watermark(3) == 2.0
    assert reader(tmp_path).watermark(4) is None
