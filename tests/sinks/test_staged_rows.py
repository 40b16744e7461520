"""Staged files that another program has changed, and that still have the length that was recorded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from epochal.participant import Attempt, DataLost, StagedEpoch, StagedFiles
from epochal.sinks.spark.staged_files import home_of

ATTEMPT = Attempt("1f0c9a2e-0000-4000-8000-000000000000", 4, 1, start="5tart")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = Path(home_of(str(tmp_path), ATTEMPT), "data", "part-00000.parquet")
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"amount": list(range(30_000))}), path, store_schema=False)  # nor does Spark
    return path


def garbage(data: bytes) -> bytes:
    return b"\0" * len(data)


def damaged_pages(data: bytes) -> bytes:
    return data[:4] + b"\xff" * (len(data) // 2) + data[4 + len(data) // 2 :]


def damaged_name(data: bytes) -> bytes:
    return data.replace(b"amount", b"\xa1mount")


@pytest.mark.parametrize("change", [garbage, damaged_pages, damaged_name])
def test_a_staged_file_that_is_none_any_more_is_lost_by_name(file: Path, tmp_path: Path, change: object) -> None:
    data = file.read_bytes()
    staged, epoch = StagedFiles("out", str(tmp_path)), StagedEpoch(str(tmp_path), ((file.name, len(data), 30_000),))
    assert sum(batch.num_rows for batch in staged.read(ATTEMPT, epoch)) == 30_000
    assert callable(change)
    file.write_bytes(change(data))
    staged.check(ATTEMPT, epoch)  # its length is what it was

    with pytest.raises(DataLost) as lost:
        list(staged.read(ATTEMPT, epoch))
    assert f"sink 'out': {file} cannot be read as the Parquet file that was staged" in str(lost.value)
    assert "Put it back from a copy" in str(lost.value)


def test_a_file_that_is_gone_or_a_disk_that_fails_is_no_damage(file: Path, tmp_path: Path) -> None:
    staged, epoch = StagedFiles("out", str(tmp_path)), StagedEpoch(str(tmp_path), ((file.name, 1, 30_000),))
    file.unlink()

    with pytest.raises(FileNotFoundError):
        list(staged.read(ATTEMPT, epoch))
