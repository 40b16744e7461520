"""`epochal.cut` on local disks, without Spark: which epoch every sink shows, and what pins each one there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import epochal
from epochal import CutGone, Refused
from epochal.sinks.delta.table.commit_notes import note
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn.choices import Choices, tokens
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Handle, Json, Outcome
from tests.sinks.compacting import name_of, publish
from tests.txn.keeping import Keeping

QUERY = "1f0c9a2e-0000-4000-8000-000000000000"
COLUMNS: Any = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


class Lake(DirectoryParticipant):
    """The protocol's side of a Delta sink: a commit is a version of a real table."""

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {"type": "delta", "target": f"{self._path}-table", "name": self.name}

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        outcome = super().commit(attempt, handle)
        if outcome is Outcome.COMMITTED:
            write_deltalake(
                f"{self._path}-table",
                pa.table({"id": pa.array([attempt.epoch], pa.int64())}),
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": note(attempt, "offsets")},
                    app_transactions=[Transaction(attempt.lineage, attempt.epoch)],
                ),
            )
        return outcome


class Archive(DirectoryParticipant):
    """The protocol's side of a file sink: a commit is an entry in a real manifest."""

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        target = f"{self._path}-files"
        reading: Json = {"columns": COLUMNS}
        return {"type": "files", "target": target, "name": self.name, "format": "json", "reading": reading}

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        parts = {name_of(attempt.epoch, lineage=attempt.lineage): b'{"id": 1}\n'}
        publish(LocalSinkFiles(), attempt.epoch, parts, lineage=attempt.lineage, target=f"{self._path}-files")
        return super().commit(attempt, handle)


class Stream:
    """One query on a disk."""

    def __init__(self, root: Path) -> None:
        self.root, self.checkpoint = root, str(root / "checkpoint")
        self.query: StandInQuery[Sequence[Json]] = StandInQuery(LocalFiles(), self.checkpoint, query_id=QUERY)

    def run(self, *sinks: DirectoryParticipant, through: int, eager: bool = False, new: str = "") -> None:
        coordinator: Coordinator[Sequence[Json]] = Coordinator(
            journals=lambda n: Journal(LocalFiles(), f"{self.checkpoint}/epochal{'' if n == 1 else f'~{n}'}"),
            checkpoint=self.query.checkpoint,
            participants=sinks,
            eager=eager,
            choices=Choices(new=tokens(new or None)),
        )
        coordinator.begin()
        self.query.run(through + 1, lambda epoch: [epoch], coordinator.run, coordinator.settle)

    def lake(self) -> Lake:
        return Lake(str(self.root / "lake"), name="lake")

    def archive(self) -> Archive:
        return Archive(str(self.root / "archive"), name="archive")

    def plain(self) -> DirectoryParticipant:
        return DirectoryParticipant(str(self.root / "plain"), name="plain")


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_each_sink_is_pinned_at_the_epoch_that_all_of_them_show(stream: Stream) -> None:
    stream.run(stream.lake(), stream.archive(), through=2)
    cut = epochal.cut(stream.checkpoint)

    assert (cut.lineage, cut.epoch, list(cut.sinks), cut.left_out) == (QUERY, 2, ["archive", "lake"], {})
    assert cut.at.startswith("20")
    assert cut.sinks["lake"].pin == {"version": 2}
    assert cut.sinks["lake"].pin["version"] == epochal.epoch_version(cut.sinks["lake"].target, cut.lineage, cut.epoch)
    assert cut.sinks["archive"].pin == {"files": 3, "bytes": 30, "streams": [QUERY]}
    assert (cut.sinks["archive"].kind, cut.sinks["archive"].target) == ("files", str(stream.root / "archive-files"))
    assert cut.sinks["archive"].notes == ()


def test_a_sink_that_is_ahead_is_pinned_at_the_common_epoch(stream: Stream) -> None:
    stream.run(stream.lake(), stream.archive(), through=1)
    table = str(stream.root / "lake-table")
    ahead = note(Attempt(QUERY, 2, 1), "offsets")
    write_deltalake(
        table,
        pa.table({"id": [2]}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": ahead}),
    )

    assert DeltaTable(table).version() == 2
    assert epochal.cut(stream.checkpoint).sinks["lake"].pin == {"version": 1}


def test_a_store_without_a_past_is_left_out_and_named(stream: Stream) -> None:
    stream.run(stream.archive(), stream.plain(), through=0)
    cut = epochal.cut(stream.checkpoint)

    assert list(cut.sinks) == ["archive"]
    assert cut.left_out == {
        "plain": "a directory store shows its newest state only: it cannot be read as it was after an epoch"
    }


def test_a_kind_that_is_not_installed_here_is_left_out_and_named(stream: Stream) -> None:
    keeping = Keeping(str(stream.root / "keeping"), name="keeping")
    stream.run(stream.archive(), keeping, through=0)

    assert epochal.cut(stream.checkpoint).left_out == {"keeping": "no sink of type 'keeping' is installed here"}


def test_before_the_first_epoch_there_is_a_cut_without_sinks(stream: Stream) -> None:
    stream.run(stream.archive(), stream.lake(), through=-1)
    cut = epochal.cut(stream.checkpoint)

    assert (cut.epoch, cut.sinks, cut.at) == (-1, {}, "")
    assert cut.left_out == {"archive": "no epoch is done yet", "lake": "no epoch is done yet"}


def test_an_eager_stream_has_a_cut_as_soon_as_its_sinks_show_the_epoch(stream: Stream) -> None:
    stream.run(stream.archive(), through=1, eager=True)

    assert epochal.cut(stream.checkpoint).epoch == 1


def test_a_stream_that_goes_on_as_a_new_one_has_its_old_cut_until_its_first_epoch(stream: Stream) -> None:
    stream.run(stream.archive(), stream.lake(), through=2)
    for name in ("offsets/2", "commits/2", "offsets/1", "commits/1"):
        Path(stream.checkpoint, name).unlink()
    stream.query.checkpoint._highest = -1
    stream.run(stream.archive(), stream.lake(), through=0, new="1f0c9a2e@2")
    before = epochal.cut(stream.checkpoint)
    stream.run(stream.archive(), stream.lake(), through=1)
    after = epochal.cut(stream.checkpoint)

    assert (before.lineage, before.epoch) == (QUERY, 2)
    assert (after.lineage, after.epoch) == (f"{QUERY}~2", 1)
    assert after.sinks["archive"].pin["streams"] == [QUERY, f"{QUERY}~2"]
    assert after.sinks["archive"].pin["files"] == 4  # epochs 0 to 2 of the old stream, and 1 of the new
    assert after.sinks["lake"].pin["others"] == [QUERY]


def test_a_table_whose_history_is_gone_is_an_error_that_says_why(stream: Stream) -> None:
    stream.run(stream.lake(), through=1)
    shutil.rmtree(stream.root / "lake-table")

    with pytest.raises(CutGone, match="lake-table is not a Delta table any more: it was removed or moved"):
        epochal.cut(stream.checkpoint)
    write_deltalake(str(stream.root / "lake-table"), pa.table({"id": [1]}))
    with pytest.raises(CutGone, match="its history has no epoch 1 of stream 1f0c9a2e, which the journal has as done"):
        epochal.cut(stream.checkpoint)


def test_a_folder_that_is_no_checkpoint_or_has_no_journal_is_refused(stream: Stream, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not the checkpoint of a streaming query"):
        epochal.cut(str(tmp_path / "nowhere"))
    with pytest.raises(Refused, match="holds no journal: epochal has not run on this checkpoint"):
        epochal.cut(stream.checkpoint)


def test_a_cut_needs_no_spark(stream: Stream) -> None:
    stream.run(stream.lake(), stream.archive(), through=0)
    code = (
        f"import sys, epochal; print(epochal.cut({stream.checkpoint!r}).epoch, 'pyspark.sql' in sys.modules, "
        "any('SparkContext' in dir(m) and m._active_spark_context for m in [sys.modules.get('pyspark')] if m))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["0", "False", "False"]


def test_a_sink_that_is_not_in_a_cut_is_answered_with_the_nearest_name_and_all_of_them() -> None:
    frames: Any = {"lake": object(), "archive": object()}
    found = epochal.CutFrames(epochal.Cut(QUERY, 41, "", left_out={"serving": "it has no past"}), frames)

    with pytest.raises(KeyError) as misspelled:
        found["larke"]
    with pytest.raises(KeyError) as left_out:
        found["serving"]

    assert str(misspelled.value) == (
        "the stream has no sink 'larke'. Did you mean 'lake'? In the cut of epoch 41: 'lake', 'archive'"
    )
    assert str(left_out.value) == "sink 'serving' is not in the cut of epoch 41: it has no past"
    assert found.get("larke") is None
    assert found["lake"] is frames["lake"]
