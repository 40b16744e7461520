"""What a record names is below the folder that it belongs to, or nothing is touched and the error has the name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

import epochal
from epochal.sinks.cassandra.commit.committer import Committer
from epochal.sinks.cassandra.handle import StagedEpoch as StagedRows
from epochal.sinks.cassandra.ledger_state import LedgerState, StreamState
from epochal.sinks.delta.handle import NewFile, StagedEpoch, StagedFile
from epochal.sinks.files.handle import Concat, Rename
from epochal.sinks.files.handle import StagedEpoch as StagedFiles
from epochal.sinks.files.manifest import EpochFacts, PublishedEpoch
from epochal.sinks.files.sink import HANDLE_VERSION
from epochal.sinks.files.state import open_parts_of
from epochal.sinks.storage import register
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import LocalFiles, below, join
from epochal.txn.model import Attempt, Handle, Json

ATTEMPT = Attempt("1f0c9a2e-77", 0, 1)
HOSTILE = ["../out", "a/../../out", "/out", "a//out", "./out", "", "a/", "..", "a\0b"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no sink writes to, beside the target."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_bytes(b"precious")
    return tmp_path / "outside"


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_elsewhere_is_not_below(name: str) -> None:
    with pytest.raises(JournalCorrupt, match="names a place outside"):
        below("/data/table", name)


def test_a_name_may_have_folders_and_dots() -> None:
    assert below("/data/table", "day=1/..part..x") == "/data/table/day=1/..part..x"


WORK: list[dict[str, Any]] = [
    {"files": (("data/good", "../outside/new", 4),)},
    {"files": (("data/good", "_epochal/manifest/1f0c9a2e-77/000000000007.json", 4),)},
    {"files": (("../../../../../outside/precious", "part-0", 8),)},
    {"files": (("open/../../../../outside/precious", "part-0", 8),)},
    {"markers": (("data/good", "../outside/_SUCCESS", 4),)},
    {"joins": (Concat((("open/../../../../outside/precious", 8), ("data/good", 4)), "part-0"),)},
    {"joins": (Concat((("data/good", 4),), "/outside/part-0"),)},
    {"obsolete": ("open/../../../../outside",)},
    {"obsolete": ("../../../../../outside",)},
    {"obsolete": ("open/",)},
]


@pytest.mark.parametrize("work", WORK, ids=str)
def test_a_handle_of_files_touches_nothing_outside_its_place(
    tmp_path: Path, outside: Path, work: dict[str, Any]
) -> None:
    sink = epochal.RollingFileSink(f"file:{tmp_path}/target")
    home = tmp_path / "target" / "_epochal" / "staged" / ATTEMPT.lineage / ATTEMPT.key / "data"
    home.mkdir(parents=True)
    (home / "good").write_bytes(b"good")
    (home / "other").write_bytes(b"good")
    first: tuple[Rename, ...] = (("data/other", "part-good", 4),)
    answer = StagedFiles(EpochFacts(), **{**work, "files": (*first, *work.get("files", ()))})
    before = all_files(tmp_path)

    with pytest.raises(JournalCorrupt, match="names a place"):
        sink.commit(ATTEMPT, Handle(HANDLE_VERSION, {"target": f"{tmp_path}/target", **answer.to_json()}))
    assert all_files(tmp_path) == before
    assert (outside / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("staged", "name"),
    [
        ("data/good", "../outside/precious"),
        ("data/good", "/outside"),
        ("data/good", "_delta_log/00000000000000000001.json"),
        ("data/good", "_epochal/x"),
        ("../../../../../outside/precious", "part-0.parquet"),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_a_handle_of_a_table_touches_nothing_outside_its_place(
    tmp_path: Path, outside: Path, staged: str, name: str, *, native: bool
) -> None:
    from deltalake import DeltaTable, Schema

    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    table = tmp_path / "table"
    DeltaTable.create(str(table), Schema.from_json(json.dumps(schema)))
    home = table / "_epochal" / "staged" / ATTEMPT.lineage / ATTEMPT.key / "data"
    home.mkdir(parents=True)
    (home / "good").write_bytes(b"good")
    epoch = StagedEpoch(
        target=str(table),
        mode="append",
        native=native,
        schema=schema,
        files=(
            StagedFile("data/good", NewFile("part-good.parquet", 4, {}, "")),
            StagedFile(staged, NewFile(name, 4, {}, "")),
        ),
        offsets="digest",
    )
    before = all_files(tmp_path)

    with pytest.raises(JournalCorrupt, match="names a place"):
        epochal.DeltaSink(f"file:{table}").commit(ATTEMPT, epoch.handle())
    assert all_files(tmp_path) == before
    assert (outside / "precious").read_bytes() == b"precious"


class NothingWritten:
    """A ledger that knows of no epoch."""

    def read(self) -> LedgerState:
        return LedgerState({ATTEMPT.lineage: StreamState(ATTEMPT.lineage)})

    def parts(self, lineage: str, epoch: int) -> set[str]:
        return {f"{lineage} {epoch}"}


@pytest.mark.parametrize("name", ["../../../../outside/precious", "/outside/precious", ""])
def test_a_handle_of_cassandra_reads_nothing_outside_its_place(tmp_path: Path, outside: Path, name: str) -> None:
    assert outside.exists()
    epoch = StagedRows(
        table="shop.orders",
        mode="upsert",
        columns=("id",),
        key=("id",),
        files=((name, 8, 1),),
        stamp=2,
        expiry=None,
        expires=False,
        whole=True,
        totals={},
        limits={},
        mark="epochal",
        offsets="digest",
    )
    committer = Committer(
        name="cassandra",
        endpoint=cast("Any", None),
        keyspace="shop",
        table="orders",
        in_flight=1,
        batch_rows=1,
        ledger=cast("Any", NothingWritten()),
        files=LocalFiles(),
        staging=str(tmp_path / "staged"),
    )

    with pytest.raises(JournalCorrupt, match="names a place outside"):
        committer.commit(ATTEMPT, epoch)


@pytest.mark.parametrize(
    "note",
    [
        {"000000000001 ": {"at": 1.0, "shape": "json 1", "files": [["../../x", 3, None]]}},
        {"000000000001 ../x/": {"at": 1.0, "shape": "json 1", "files": [["x", 3, None]]}},
        {"awaited ../x/": 1.0},
        {"awaited /": 1.0},
    ],
)
def test_a_note_of_open_parts_names_nothing_outside_the_target(note: dict[str, Json]) -> None:
    with pytest.raises(JournalCorrupt, match="names a place outside"):
        open_parts_of({"target": "/data", **note})


@pytest.mark.parametrize("name", ["../x", "/x", "_epochal/x", ""])
def test_a_manifest_lists_nothing_outside_its_target(name: str) -> None:
    entry = PublishedEpoch("l", 1, 1, "digest", 1, ((name, 1),))

    with pytest.raises(JournalCorrupt, match="names a place"):
        PublishedEpoch.decode("manifest.json", entry.encode())


@pytest.mark.parametrize("lineage", [".", "..", "../x", "a/b", "~", "a b"])
def test_a_lineage_is_one_folder_and_comes_back_from_its_name(lineage: str) -> None:
    name = register.safe_name(lineage)

    assert below("/data", name) == join("/data", name)
    assert "/" not in name
    assert register.lineage_from(name) == lineage


def test_a_stream_without_an_id_has_no_folder() -> None:
    with pytest.raises(JournalCorrupt, match="without an id"):
        register.safe_name("")
