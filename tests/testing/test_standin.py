"""The stand-in keeps Spark's order: offsets/N, the batch, commits/N, the progress event."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.testing import ConcurrentUpdate, StandInQuery
from epochal.txn.batches import BatchOutcome
from epochal.txn.files import LocalFiles


def query_at(path: Path) -> StandInQuery[int]:
    return StandInQuery(LocalFiles(sync=False), str(path))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_offsets_come_before_the_batch_and_commits_after_it(tmp_path: Path) -> None:
    seen: list[tuple[str, list[str], list[str]]] = []

    def look(moment: str) -> None:
        seen.append((moment, names(tmp_path / "offsets"), names(tmp_path / "commits")))

    def batch(epoch: int, rows: int) -> BatchOutcome:
        look(f"batch {epoch} of {rows}")
        return BatchOutcome.STAGED

    query_at(tmp_path).run(2, lambda epoch: epoch * 10, batch, lambda: look("progress"))

    assert seen == [
        ("batch 0 of 0", ["0"], []),
        ("progress", ["0"], ["0"]),
        ("batch 1 of 10", ["0", "1"], ["0"]),
        ("progress", ["0", "1"], ["0", "1"]),
    ]


def test_a_restart_keeps_the_query_id_and_replays_what_was_not_committed(tmp_path: Path) -> None:
    query = query_at(tmp_path)
    ran: list[int] = []

    def batch(epoch: int, rows: int) -> BatchOutcome:
        ran.append(epoch)
        if ran == [0, 1]:
            raise OSError("the driver dies")
        return BatchOutcome.STAGED

    with pytest.raises(OSError, match="the driver dies"):
        query.run(3, int, batch, lambda: None)
    again = query_at(tmp_path)
    again.run(3, int, batch, lambda: None)

    assert ran == [0, 1, 1, 2]
    assert again.checkpoint.query_id() == query.checkpoint.query_id()


def test_a_commit_that_another_driver_was_first_to_write_ends_the_query(tmp_path: Path) -> None:
    def overtaken(epoch: int, rows: int) -> BatchOutcome:
        (tmp_path / "commits").mkdir()
        (tmp_path / "commits" / "0").write_text("v1")
        return BatchOutcome.STAGED

    with pytest.raises(ConcurrentUpdate, match="commits/0"):
        query_at(tmp_path).run(1, int, overtaken, lambda: None)
