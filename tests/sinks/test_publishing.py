"""The second phase with parts that stay open and parts that are joined in place, from every state a crash can leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from epochal.sinks.files.commit import Publisher
from epochal.sinks.files.handle import Concat, StagedEpoch
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn.errors import DataLost, TwoJournals
from epochal.txn.files import TEMPORARY
from epochal.txn.model import Attempt, Outcome
from tests.txn.syncs import Synced

ATTEMPT = Attempt("1f0c9a2e-0000", 7, 2)
NAME = "part-000000000007-00000-1f0c9a2e.json"


class Joining(LocalSinkFiles):
    """Local files that can be joined as HDFS's can: neighbours only, at once, the others are gone then."""

    def __init__(self, dies_after: int = 1000) -> None:
        super().__init__(sync=False)
        self.steps_left = dies_after

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        self._step()
        return super().create(path, data, durable=durable)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        self._step()
        assert {Path(other).parent for other in others} == {Path(path).parent}
        parts = [Path(other).read_text() for other in others]
        with open(path, "a", encoding="utf-8") as whole:
            whole.write("".join(parts))
        for other in others:
            Path(other).unlink()

    def move_folder(self, source: str, target: str) -> None:
        self._step()
        super().move_folder(source, target)

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise RuntimeError("dead")


def staged(target: Path) -> StagedEpoch:
    """Two open pieces of earlier epochs and one new one become a part; another new one stays open."""
    layout = Layout(str(target))
    for name, text in (
        ("open/000000000005/a", "5\n"),
        ("open/000000000006/a", "66\n"),
        ("data/a", "777\n"),
        ("data/b", "b\n"),
    ):
        path = Path(layout.source(ATTEMPT, name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return StagedEpoch(
        EpochFacts(rows=2, offsets="digest"),
        joins=(Concat((("open/000000000005/a", 2), ("open/000000000006/a", 3), ("data/a", 4)), NAME),),
        has_open_pieces=True,
        obsolete=("open/000000000005", "open/000000000006"),
    )


def publish(target: Path, work: StagedEpoch, files: LocalSinkFiles) -> Outcome:
    return Publisher("files", files, Layout(str(target)), ATTEMPT).publish(work)


def tree(target: Path) -> set[str]:
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}


LEFT = {NAME, "_epochal/manifest/1f0c9a2e-0000/000000000007.json", "_epochal/open/1f0c9a2e-0000/000000000007/b"}


def test_pieces_become_one_part_in_order_and_what_stays_open_waits(tmp_path: Path) -> None:
    outcome = publish(tmp_path, staged(tmp_path), Joining())

    assert outcome is Outcome.COMMITTED
    assert (tmp_path / NAME).read_text() == "5\n66\n777\n"
    assert tree(tmp_path) == LEFT


def test_wherever_a_crash_stops_it_the_next_try_comes_to_the_same(tmp_path: Path) -> None:
    for steps in range(8):
        target = tmp_path / str(steps)
        work = staged(target)
        with pytest.raises(RuntimeError, match="dead"):
            publish(target, work, Joining(dies_after=steps))
        outcome = publish(target, work, Joining())

        assert outcome is Outcome.COMMITTED
        assert (target / NAME).read_text() == "5\n66\n777\n"
        assert tree(target) == LEFT
    publish(tmp_path / "whole", staged(tmp_path / "whole"), Joining(dies_after=8))  # there is no ninth


def test_a_repeat_changes_nothing(tmp_path: Path) -> None:
    work = staged(tmp_path)
    publish(tmp_path, work, Joining())

    assert publish(tmp_path, work, Joining()) is Outcome.ALREADY_COMMITTED
    assert tree(tmp_path) == LEFT


def test_a_piece_that_is_lost_stops_the_query(tmp_path: Path) -> None:
    work = staged(tmp_path)
    Path(Layout(str(tmp_path)).source(ATTEMPT, "open/000000000006/a")).unlink()

    with pytest.raises(DataLost):
        publish(tmp_path, work, Joining())
    assert not (tmp_path / NAME).exists()


def test_one_who_slept_while_others_went_on_finds_nothing_lost(tmp_path: Path) -> None:
    work = staged(tmp_path)

    class Sleeper(Joining):
        """While it sleeps before the move, another finishes the epoch, and a later one closes what it left open."""

        def move_folder(self, source: str, target: str) -> None:
            publish(tmp_path, work, Joining())
            self.delete(target)
            super().move_folder(source, target)

    assert publish(tmp_path, work, Sleeper()) is Outcome.COMMITTED
    assert (tmp_path / NAME).read_text() == "5\n66\n777\n"


def test_open_rows_that_are_lost_stop_the_query(tmp_path: Path) -> None:
    work = staged(tmp_path)
    Path(Layout(str(tmp_path)).source(ATTEMPT, "data/b")).unlink()
    Path(Layout(str(tmp_path)).source(ATTEMPT, "data/a")).rename(tmp_path / "a")
    Path(Layout(str(tmp_path)).source(ATTEMPT, "data")).rmdir()

    with pytest.raises(DataLost, match="belong to open parts"):
        publish(tmp_path, StagedEpoch(work.facts, has_open_pieces=True), Joining())


@pytest.mark.parametrize("joins", [True, False], ids=["joined", "renamed"])
def test_one_who_slept_while_its_file_was_compacted_away_finds_nothing_lost(tmp_path: Path, joins: bool) -> None:
    work = staged(tmp_path)
    if not joins:
        work = StagedEpoch(work.facts, files=(("data/a", NAME, 4),))

    class Sleeper(Joining):
        """While it sleeps before its first rename, another finishes the epoch, and a compaction replaces its file."""

        def rename(self, source: str, target: str) -> None:
            if self.length(str(tmp_path / Layout("").manifest_name(ATTEMPT))) is None:
                publish(tmp_path, work, Joining())
                self.delete(str(tmp_path / NAME))
            super().rename(source, target)

    assert publish(tmp_path, work, Sleeper()) is Outcome.COMMITTED
    assert not (tmp_path / NAME).exists()
    assert not Path(Layout(str(tmp_path)).attempt(ATTEMPT)).exists()


@pytest.mark.parametrize("step", ["create", "rename"])
def test_one_who_sleeps_before_it_lists_the_epoch_finds_it_listed(tmp_path: Path, step: str) -> None:
    work = staged(tmp_path)

    class Sleeper(Joining):
        """While it sleeps, before or after it has written the manifest's entry, another finishes the epoch."""

        def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
            if step == "create":
                publish(tmp_path, work, Joining())
            return super().create(path, data, durable=durable)

        def rename(self, source: str, target: str) -> None:
            if step == "rename" and "manifest" in target:
                publish(tmp_path, work, Joining())
            super().rename(source, target)

    assert publish(tmp_path, work, Sleeper()) is Outcome.COMMITTED
    assert tree(tmp_path) == LEFT


def test_one_who_finds_another_generation_listed_stops(tmp_path: Path) -> None:
    work = staged(tmp_path)

    class Second(Joining):
        """While it is about to list the epoch, a generation that was not decided is listed."""

        def rename(self, source: str, target: str) -> None:
            if "manifest" in target:
                entry = work.entry(Attempt(ATTEMPT.lineage, ATTEMPT.epoch, 3))
                LocalSinkFiles(sync=False).create(target, entry.encode())
            super().rename(source, target)

    with pytest.raises(TwoJournals, match=r"another start \(generation 3\) than the one .* \(generation 2\)"):
        publish(tmp_path, work, Second())


def test_who_dies_while_it_writes_the_manifests_entry_leaves_nothing_behind(tmp_path: Path) -> None:
    work = staged(tmp_path)
    home = Path(Layout(str(tmp_path)).attempt(ATTEMPT))

    class Torn(Joining):
        """Dies when the entry is half-written, under the name that it has until it is whole."""

        def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
            Path(path).with_name(f"{TEMPORARY}manifest.json-0").write_bytes(data[:9])
            raise RuntimeError("dead")

    with pytest.raises(RuntimeError, match="dead"):
        publish(tmp_path, work, Torn())
    assert [path.name for path in home.glob(".*")] == [f"{TEMPORARY}manifest.json-0"]

    assert publish(tmp_path, work, Joining()) is Outcome.COMMITTED
    assert tree(tmp_path) == LEFT


def test_the_manifest_says_what_was_told_when_the_epoch_was_staged(tmp_path: Path) -> None:
    facts = EpochFacts(rows=3, offsets="o", digest="d", header="a,b")
    work = StagedEpoch.from_json(StagedEpoch(facts, files=(("data/a", NAME, 4),)).to_json())
    entry = work.entry(ATTEMPT)

    assert work.facts == facts
    assert (entry.rows, entry.offsets, entry.digest, entry.header) == (3, "o", "d", "a,b")
    assert (entry.epoch, entry.generation, entry.files) == (7, 2, ((NAME, 4),))


def test_names_of_published_files_are_synced_before_the_manifest_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(str(tmp_path))
    for name in ("data/a", "data/b", "data/open"):
        path = Path(layout.source(ATTEMPT, name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    moves = (("data/a", f"day=1/hour=2/{NAME}", 2), ("data/b", f"day=2/{NAME}", 2))
    synced = Synced(monkeypatch.setattr)
    listed: list[int] = []
    monkeypatch.setattr(
        "epochal.txn.failpoints.hit",
        lambda name: listed.append(len(synced.paths)) if name == "before-manifest" else None,
    )
    Publisher("files", LocalSinkFiles(), layout, ATTEMPT).publish(
        StagedEpoch(EpochFacts(), files=moves, has_open_pieces=True)
    )

    before = set(synced.paths[: listed[0]])
    assert before >= {str(tmp_path / folder) for folder in ("day=1/hour=2", "day=1", "day=2")} | {str(tmp_path)}
    assert layout.open(ATTEMPT.lineage) in before


def test_a_staged_file_that_was_cut_short_is_not_published(tmp_path: Path) -> None:
    layout, files = Layout(str(tmp_path)), LocalSinkFiles(sync=False)
    for name, text in (("data/a", "whole\n"), ("data/b", "cu")):
        files.create(layout.source(ATTEMPT, name), text.encode())
    epoch = StagedEpoch(EpochFacts(rows=2, offsets="digest"), files=(("data/a", "a", 6), ("data/b", "b", 4)))

    with pytest.raises(DataLost, match=r"data/b should have 4 bytes and has 2"):
        Publisher("files", files, layout, ATTEMPT).publish(epoch)
    assert not (tmp_path / "b").exists()

    Path(layout.source(ATTEMPT, "data/b")).write_text("cut\n")
    assert Publisher("files", files, layout, ATTEMPT).publish(epoch) is Outcome.COMMITTED
