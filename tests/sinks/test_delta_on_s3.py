"""What a Delta sink refuses on an object store, and what it tells delta-rs of one. No store is asked."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.schema import PrimitiveType

from epochal import DeltaSink
from epochal.sinks.delta.commit import Committer
from epochal.sinks.delta.layout import Layout
from epochal.sinks.delta.stage import footers
from epochal.sinks.delta.table.log import newest_commits
from epochal.sinks.delta.table.places import by_delta_rs, storage_options
from epochal.sinks.storage.objects import ObjectSinkFiles
from epochal.txn.errors import Refused
from tests.sinks.object_memory import Memory, MemoryClient

TABLE = "s3://bucket/lake"


@pytest.fixture
def files() -> ObjectSinkFiles:
    return ObjectSinkFiles("s3://bucket", MemoryClient(Memory()), lambda: True)


def test_delta_rs_gets_a_condition_and_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    options = storage_options("s3a://bucket/lake") or {}

    assert options["conditional_put"] == "etag"
    assert (options["endpoint_url"], options["allow_http"]) == ("http://127.0.0.1:9000", "true")
    assert "SECRET" not in str(options)
    assert storage_options("/lake") is None


def test_only_local_disks_and_s3_are_delta_rs_own() -> None:
    assert [by_delta_rs(path) for path in ("/lake", "s3a://b/lake", "hdfs://h/lake", "gs://b/lake")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("name", ["a%20b", "a?b", "a#b"])
def test_a_path_that_delta_rs_takes_for_another_one_is_refused(files: ObjectSinkFiles, name: str) -> None:
    """It would write its log entries to the table at `a b`, or at `a`."""
    with pytest.raises(Refused, match=r"would write to another one.*without '%', '\?' and '#'"):
        Committer("lake", files, Layout(f"s3://bucket/{name}"))


def test_a_local_path_that_delta_rs_reads_elsewhere_is_not_its_own(tmp_path: Path) -> None:
    """It lists the log of `a%20b` and reads that of `a b`: whose last epoch it took for that of the table."""
    for name, epoch in (("a b", 7), ("other", 1)):
        path = str(tmp_path / name)
        DeltaTable.create(path, Schema([Field("id", PrimitiveType("long"))]))
        noted = CommitProperties(app_transactions=[Transaction("stream", epoch)])
        table = DeltaTable(path)
        table.create_write_transaction([], "append", table.schema(), [], commit_properties=noted)
    (tmp_path / "other").rename(tmp_path / "a%20b")

    assert DeltaTable(str(tmp_path / "a%20b")).transaction_version("stream") == 7
    assert [by_delta_rs(str(tmp_path / name)) for name in ("a%20b", "a\\b", "a b", "100%")] == [
        False,
        False,
        True,
        True,
    ]


def test_deltas_own_code_is_not_asked_to_write_there(files: ObjectSinkFiles) -> None:
    committer = Committer("lake", files, Layout(TABLE))

    with pytest.raises(
        Refused, match="mode='upsert' needs Delta's own code, which merges, and on an object store only"
    ):
        committer.spark_writer("mode='upsert' needs Delta's own code, which merges")


def test_spark_connect_is_refused_by_name() -> None:
    assert DeltaSink(TABLE).connect_faults() == [
        f"{TABLE}: tables on object stores have not been tried on Spark Connect"
    ]


@pytest.mark.parametrize("rows", [1, 100_000])
def test_a_footer_is_read_by_its_end_however_long_the_file_is(rows: int, files: ObjectSinkFiles) -> None:
    data = io.BytesIO()
    pq.write_table(pa.table({"id": range(rows)}), data, compression="none")
    files.create(f"{TABLE}/a.parquet", data.getvalue())

    (footer,) = footers.read(files, [(f"{TABLE}/a.parquet", len(data.getvalue()))])
    assert footer.num_rows == rows


def test_a_footer_that_is_longer_than_the_guess_is_read_in_full(
    files: ObjectSinkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "GUESS", 16)
    data = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), data)
    files.create(f"{TABLE}/a.parquet", data.getvalue())

    (footer,) = footers.read(files, [(f"{TABLE}/a.parquet", len(data.getvalue()))])
    assert footer.num_rows == 2


def test_the_newest_entries_of_a_log_come_first_and_no_more_are_read_than_asked_for(files: ObjectSinkFiles) -> None:
    for version in range(40):
        line = b'{"commitInfo":{"userMetadata":"note %d"}}\n{"add":{"path":"x"}}' % version
        files.create(f"{TABLE}/_delta_log/{version:020d}.json", line)
    files.create(f"{TABLE}/_delta_log/_last_checkpoint", b"{}")

    found = list(newest_commits(files, f"{TABLE}/_delta_log", 38, 3))
    assert found == [(38, "note 38"), (37, "note 37"), (36, "note 36")]


@pytest.fixture
def faulty() -> Callable[[int], ObjectSinkFiles]:
    from epochal.sinks.storage.objects.patience import Patience

    memory = Memory()
    quick = Patience(tries=60, first=0.0, longest=0.0, sleep=lambda _: None)
    return lambda seed: ObjectSinkFiles(
        "s3://bucket", MemoryClient(memory, seed=seed, share=0.4), lambda: True, patience=quick
    )


def test_a_copy_is_made_however_many_answers_are_lost(faulty: Callable[[int], ObjectSinkFiles]) -> None:
    for number in range(200):
        files = faulty(number)
        assert files.create(f"{TABLE}/staged-{number}", b"%d" % number)
        files.copy_over(f"{TABLE}/staged-{number}", f"{TABLE}/part-{number}")
        files.copy_over(f"{TABLE}/staged-{number}", f"{TABLE}/part-{number}")

        assert files.read(f"{TABLE}/part-{number}") == b"%d" % number
    with pytest.raises(FileNotFoundError):
        faulty(0).copy_over(f"{TABLE}/none", f"{TABLE}/part")
