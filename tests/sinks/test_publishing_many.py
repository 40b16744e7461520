"""The second phase with many files at once: whatever part of a chunk is done, a repeat finishes it, once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from epochal.sinks.files import commit
from epochal.sinks.files.commit import Publisher
from epochal.sinks.files.handle import Concat, StagedEpoch
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.storage.sink_files import LocalSinkFiles, Miss
from epochal.txn.errors import DataLost
from epochal.txn.model import Outcome
from tests.sinks.test_publishing import ATTEMPT, Joining, tree

PARTS = range(4)

Step = TypeVar("Step")


class SideBySide(Joining):
    """Does the steps of a chunk in any order, as threads do, and may die in the midst of it."""

    def __init__(self, seed: int = 0, dies_after: int = 1000) -> None:
        super().__init__(dies_after)
        self._random = random.Random(seed)

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> list[Miss | None]:
        return self._shuffled(super().rename_all, moves)

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> list[Miss | None]:
        return self._shuffled(super().join_all_in_place, groups)

    def _shuffled(
        self, act: Callable[[Sequence[Step]], Sequence[Miss | None]], steps: Sequence[Step]
    ) -> list[Miss | None]:
        order = self._random.sample(range(len(steps)), len(steps))
        answers: dict[int, Miss | None] = {place: act([steps[place]])[0] for place in order}
        return [answers[place] for place in range(len(steps))]


def staged(target: Path) -> StagedEpoch:
    """Parts of two pieces to be joined, files that are whole, a marker for each bucket; one piece stays open."""
    layout = Layout(str(target))
    joins, moves, markers = [], [], []
    for part in PARTS:
        write(layout, f"open/000000000006/{part}", f"open {part}\n")
        write(layout, f"data/{part}", f"new {part}\n")
        write(layout, f"data/whole-{part}", f"whole {part}\n")
        write(layout, f"marker-{part}", "")
        joins.append(Concat(((f"open/000000000006/{part}", 7), (f"data/{part}", 6)), f"b={part}/joined"))
        moves.append((f"data/whole-{part}", f"b={part}/whole", 8))
        markers.append((f"marker-{part}", f"b={part}/_SUCCESS", 0))
    write(layout, "data/stays", "open\n")
    obsolete = ("open/000000000006",)
    return StagedEpoch(
        EpochFacts(rows=3), tuple(moves), tuple(joins), tuple(markers), has_open_pieces=True, obsolete=obsolete
    )


def write(layout: Layout, name: str, text: str) -> None:
    path = Path(layout.source(ATTEMPT, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def publish(target: Path, work: StagedEpoch, files: LocalSinkFiles) -> Outcome:
    return Publisher("files", files, Layout(str(target)), ATTEMPT).publish(work)


def check_whole(target: Path) -> None:
    for part in PARTS:
        assert (target / f"b={part}/joined").read_text() == f"open {part}\nnew {part}\n"
        assert (target / f"b={part}/whole").read_text() == f"whole {part}\n"
    assert tree(target) == {
        *(f"b={part}/{name}" for part in PARTS for name in ("joined", "whole", "_SUCCESS")),
        "_epochal/manifest/1f0c9a2e-0000/000000000007.json",
        "_epochal/open/1f0c9a2e-0000/000000000007/stays",
    }


@pytest.mark.parametrize("chunk", [1, 2, 500])
def test_wherever_a_crash_stops_a_chunk_the_next_try_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(commit, "CHUNK", chunk)
    # Of each part two renames, a join and a rename; its whole file; its marker. Then the open one and the manifest.
    steps = 6 * len(PARTS) + 3
    for dies_after in range(steps):
        target = tmp_path / str(dies_after)
        work = staged(target)
        with pytest.raises(RuntimeError, match="dead"):
            publish(target, work, SideBySide(dies_after, dies_after))
        outcome = publish(target, work, SideBySide())

        assert outcome is Outcome.COMMITTED
        check_whole(target)
    publish(tmp_path / "whole", staged(tmp_path / "whole"), SideBySide(dies_after=steps))  # there is no further one


def test_crash_after_crash_in_the_same_chunk_comes_to_the_same(tmp_path: Path) -> None:
    work = staged(tmp_path)
    for seed in range(30):
        with pytest.raises(RuntimeError, match="dead"):
            publish(tmp_path, work, SideBySide(seed, dies_after=2))
    publish(tmp_path, work, SideBySide())

    check_whole(tmp_path)


def test_markers_wait_for_every_file_and_the_manifest_for_every_marker(tmp_path: Path) -> None:
    published: list[str] = []

    class Watched(SideBySide):
        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            published.append(Path(target).name)

    publish(tmp_path, staged(tmp_path), Watched())
    seen = [name for name in published if not name.isdecimal()]

    assert seen[: 2 * len(PARTS)] == ["joined"] * len(PARTS) + ["whole"] * len(PARTS)
    assert seen[2 * len(PARTS) :] == ["_SUCCESS"] * len(PARTS) + ["000000000007.json"]


def test_a_chunk_whose_piece_is_lost_shows_none_of_its_parts_and_names_the_one(tmp_path: Path) -> None:
    work = staged(tmp_path)
    Path(Layout(str(tmp_path)).source(ATTEMPT, "open/000000000006/2")).unlink()

    for _ in range(2):  # a repeat finds it no better
        with pytest.raises(DataLost, match=r"joined-2/0000. should have 13 bytes after joining|b=2/joined should"):
            publish(tmp_path, work, SideBySide())
    assert not any((tmp_path / f"b={part}/joined").exists() for part in (1, 2, 3))  # the first went alone
    assert not (tmp_path / "_epochal/manifest").exists()


def test_a_file_of_the_recorded_length_was_published_by_an_earlier_try(tmp_path: Path) -> None:
    work = staged(tmp_path)
    layout = Layout(str(tmp_path))
    for part in (0, 3):
        target = tmp_path / f"b={part}/whole"
        target.parent.mkdir()
        Path(layout.source(ATTEMPT, f"data/whole-{part}")).rename(target)
    outcome = publish(tmp_path, work, SideBySide())

    assert outcome is Outcome.COMMITTED
    check_whole(tmp_path)


@pytest.mark.parametrize("name", ["joined", "whole"])
def test_a_foreign_file_at_one_of_many_names_stops_the_query_and_is_named(tmp_path: Path, name: str) -> None:
    work = staged(tmp_path)
    (tmp_path / "b=2").mkdir()
    (tmp_path / f"b=2/{name}").write_text("of somebody else")

    with pytest.raises(DataLost, match=rf"b=2/{name} should have \d+ bytes, but another file with 16 bytes has its"):
        publish(tmp_path, work, SideBySide())
    assert (tmp_path / f"b=2/{name}").read_text() == "of somebody else"
    (tmp_path / f"b=2/{name}").unlink()
    publish(tmp_path, work, SideBySide())
    check_whole(tmp_path)


def test_a_foreign_file_of_the_recorded_length_is_not_taken_for_ours_while_ours_is_staged(tmp_path: Path) -> None:
    work = staged(tmp_path)
    (tmp_path / "b=2").mkdir()
    (tmp_path / "b=2/whole").write_text("foreign\n")

    with pytest.raises(DataLost, match=r"b=2/whole should have 8 bytes, .* the staged file is still there"):
        publish(tmp_path, work, SideBySide())


def test_what_is_named_twice_is_published_once(tmp_path: Path) -> None:
    work = staged(tmp_path)
    twice = StagedEpoch(
        work.facts, work.files * 2, work.joins, work.markers * 2, has_open_pieces=True, obsolete=work.obsolete
    )
    publish(tmp_path, twice, SideBySide())

    check_whole(tmp_path)


def test_a_chunk_that_was_published_is_checked_in_one_question(tmp_path: Path) -> None:
    asked: list[int] = []

    class Asked(SideBySide):
        def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
            asked.append(len(paths))
            return super().lengths(paths)

    work = staged(tmp_path)
    whole = StagedEpoch(work.facts, files=work.files)
    with pytest.raises(RuntimeError, match="dead"):
        publish(tmp_path, whole, SideBySide(dies_after=len(PARTS)))  # all renamed, nothing listed
    publish(tmp_path, whole, Asked())

    others = len(PARTS) - 1
    # The first alone, then the others: target and source of each.
    assert asked == [2, 2 * others]


def test_a_fault_that_is_no_miss_is_raised_as_it_is(tmp_path: Path) -> None:
    class Denied(SideBySide):
        def rename(self, source: str, target: str) -> None:
            if "b=3" in target:
                raise PermissionError(target)
            super().rename(source, target)

    work = staged(tmp_path)
    with pytest.raises(PermissionError, match="b=3/joined"):
        publish(tmp_path, work, Denied())
    publish(tmp_path, work, SideBySide())

    check_whole(tmp_path)
