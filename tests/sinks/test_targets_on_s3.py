"""Where a target on S3 is refused, and what is refused there, before anything is written."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from epochal import RollingFileSink
from epochal.sinks.files import commit
from epochal.sinks.files.commit import check_lengths
from epochal.sinks.files.handle import StagedEpoch
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.files.stage.delta_tables import check_no_delta_table
from epochal.sinks.storage.objects import ObjectSinkFiles
from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.sinks.storage.targets import check_writable, resolve_target
from epochal.txn.errors import Refused
from tests.sinks.object_memory import Memory, MemoryClient


def session_with(*classes: str) -> Any:
    utils = SimpleNamespace(classIsLoadable=lambda name: name in classes)
    spark = SimpleNamespace(util=SimpleNamespace(Utils=utils))
    return SimpleNamespace(_jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark))))


def test_every_spelling_of_a_target_is_one_and_needs_no_session() -> None:
    pytest.importorskip("obstore")

    for spelling in (
        *("s3://bucket/orders", "s3a://bucket/orders/", "s3n://bucket/orders", "S3://bucket//orders"),
        *("s3a://bucket///orders//", "s3://bucket/orders//"),
    ):
        files, target = resolve_target(spelling)
        assert (type(files), target) == (ObjectSinkFiles, "s3://bucket/orders")
        assert spark_path(spelling) == "s3a://bucket/orders"
    assert RollingFileSink("s3a://bucket/orders").describe()["target"] == "s3://bucket/orders"


@pytest.mark.parametrize("path", ["s3:/bucket/orders", "s3a:bucket/orders", "s3:///orders"])
def test_a_path_that_names_no_bucket_is_refused(path: str) -> None:
    pytest.importorskip("obstore")

    with pytest.raises(Refused, match="it names no bucket"):
        resolve_target(path)


def test_credentials_in_a_path_are_refused_and_not_shown() -> None:
    pytest.importorskip("obstore")

    with pytest.raises(Refused, match="no user or password") as refused:
        RollingFileSink("s3a://AKIA:SECRET@bucket/orders").describe()
    assert "SECRET" not in str(refused.value)


def test_a_session_without_s3a_is_refused_with_what_to_do() -> None:
    with pytest.raises(Refused, match=r"no S3A to write there.*epochal\.session\(\.\.\., s3=True\)"):
        check_writable("archive", "s3://bucket/orders", session_with())

    check_writable("archive", "s3://bucket/orders", session_with("org.apache.hadoop.fs.s3a.S3AFileSystem"))


def test_on_spark_connect_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.sinks.storage.connect.is_connect", lambda _: True)

    with pytest.raises(Refused, match="on Spark Connect only"):
        resolve_target("s3://bucket/orders")


def test_without_obstore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(Refused, match=r"pip install 'epochal\[objects\]'"):
        RollingFileSink("s3://bucket/orders").open("lineage")


@pytest.mark.parametrize(("copies", "limit"), [(True, "5,368,709,120"), (False, "268,435,456")])
def test_a_file_that_could_not_be_published_is_refused_while_its_epoch_is_staged(copies: bool, limit: str) -> None:
    files = ObjectSinkFiles("s3://bucket", MemoryClient(Memory()), lambda: copies)
    epoch = StagedEpoch(EpochFacts(), files=(("data/a", "a", 6 << 30), ("data/b", "b", 1)))

    with pytest.raises(Refused, match=f"6,442,450,944 bytes.*at most {limit} bytes.*max_rows_per_file"):
        check_lengths("archive", files, epoch)
    check_lengths("archive", LocalSinkFiles(), epoch)


def test_no_store_is_asked_about_files_that_any_can_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ObjectSinkFiles("s3://bucket", MemoryClient(Memory()), lambda: pytest.fail("nobody asks"))

    check_lengths("archive", files, StagedEpoch(EpochFacts(), files=(("data/a", "a", commit.RENAMED_ANYWHERE),)))


def test_folders_above_a_target_that_may_not_be_listed_are_passed_over() -> None:
    class OwnFolder(MemoryClient):
        def list_folder(self, prefix: str) -> tuple[list[tuple[str, int]], list[str]]:
            if not prefix.startswith("lake/orders"):
                raise PermissionError(prefix)
            return super().list_folder(prefix)

    memory = Memory()
    files = ObjectSinkFiles("s3://bucket", OwnFolder(memory), lambda: True)
    check_no_delta_table("archive", files, Layout("s3://bucket/lake/orders"))

    files.create("s3://bucket/lake/orders/_delta_log/0.json", b"")
    with pytest.raises(Refused, match="is a Delta table"):
        check_no_delta_table("archive", files, Layout("s3://bucket/lake/orders"))
