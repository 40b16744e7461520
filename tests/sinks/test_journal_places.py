"""Where a journal may be, and what that means for everything beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.journals import resolve_journal, scratch_for
from epochal.sinks.storage.targets import resolve_target
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles, identity_of, is_within


def test_a_journal_may_be_on_a_local_disk_or_an_object_store(tmp_path: Path) -> None:
    pytest.importorskip("obstore")

    files, path = resolve_journal("s3a://bucket/journals/orders/")

    assert (repr(files), path) == ("ObjectFiles('s3://bucket')", "s3://bucket/journals/orders")
    assert isinstance(resolve_journal(str(tmp_path))[0], LocalFiles)


@pytest.mark.parametrize("path", ["az://box/journals/orders", "gs://bucket/journals/orders"])
def test_it_may_be_on_azures_and_on_googles_store(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "shop")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "any")

    files, found = resolve_journal(path.replace("/journals", "//journals"))

    assert (repr(files), found) == (f"ObjectFiles('{path.partition('/journals')[0]}')", path)
    assert scratch_for(path, "hdfs://h/c") == "hdfs://h/c/epochal-staged"
    assert identity_of(path + "/") == identity_of(path)


def test_on_azure_the_account_must_be_known_and_no_name_may_have_a_backslash(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    with pytest.raises(Refused, match="AZURE_STORAGE_ACCOUNT_NAME is not set"):
        resolve_journal("az://box/journals/orders")
    with pytest.raises(Refused, match="Azure reads a backslash as a slash"):
        resolve_journal("az://box/journals\\orders")


@pytest.mark.parametrize("place", ["az://box/orders", "gs://bucket/orders"])
def test_of_azures_and_googles_store_journals_are_all_that_is_kept_there(place: str) -> None:
    with pytest.raises(Refused, match=r"on this store epochal keeps journals only\. Nothing was written"):
        resolve_target(place)
    with pytest.raises(Refused, match=r"on this store epochal keeps journals only\. Nothing was written"):
        resolve_checkpoint(place)
    with pytest.raises(Refused, match="object store"):
        resolve(place)


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
