"""Where a journal may be, and what that means for everything beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.journals import resolve_journal, scratch_for
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles, identity_of, is_within


def test_a_journal_may_be_on_a_local_disk_or_an_object_store(tmp_path: Path) -> None:
    pytest.importorskip("obstore")

    files, path = resolve_journal("s3a://bucket/journals/orders/")

    assert (repr(files), path) == ("ObjectFiles('s3://bucket')", "s3://bucket/journals/orders")
    assert isinstance(resolve_journal(str(tmp_path))[0], LocalFiles)


def test_targets_and_checkpoints_may_not() -> None:
    with pytest.raises(Refused, match="object store"):
        resolve("s3://bucket/target")


def test_without_obstore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(Refused, match=r"pip install 'epochal\[objects\]'"):
        resolve_journal("s3://bucket/journals/orders")


def test_staged_rows_are_where_spark_can_write() -> None:
    assert scratch_for("/c/epochal", "/c") == "/c/epochal-staged"
    assert scratch_for("hdfs://h/journals/orders", "/c") == "hdfs://h/journals/orders-staged"
    assert scratch_for("s3://bucket/journals/orders", "hdfs://h/c") == "hdfs://h/c/epochal-staged"


def test_both_spellings_of_a_bucket_are_one_place_and_nobody_looks_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostbyname", lambda name: pytest.fail(f"{name} is no host"))

    assert identity_of("s3a://bucket/a/") == identity_of("s3://bucket/a") != identity_of("s3://other/a")
    assert is_within("s3://bucket/a/b", "s3a://bucket/a")
    assert not is_within("s3://other/a/b", "s3://bucket/a")
