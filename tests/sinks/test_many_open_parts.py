"""An epoch beside very many open parts costs what it changes. Shown by counts, which no machine makes slower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epochal.sinks.files import opened, queue, state
from epochal.sinks.files.policies.rolling import Rolling
from epochal.sinks.files.stage import closing
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn.json_value import Json
from epochal.txn.state.typed import Edit
from epochal.txn.state.versions import SinkState
from tests.sinks.many_parts import ManyParts

FEW, MANY = 200, 1000  # open parts
TOUCHED = 10  # parts that an epoch closes, and as many that it opens


class Counts:
    """What one epoch looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        for module, name in ((state, "_read"), (state, "_bucket"), (queue.Queue, "_is_true")):
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))
        iterate = SinkState.__iter__

        def iterated(version: SinkState) -> Iterator[str]:
            for key in iterate(version):
                self.seen["entries gone through"] += 1
                yield key

        monkeypatch.setattr(SinkState, "__iter__", iterated)
        self._watch_index(monkeypatch)
        for name in ("list", "names", "walk", "length", "lengths", "rename_all", "delete_all", "join_all_copies"):
            monkeypatch.setattr(LocalSinkFiles, name, self._listed(name, getattr(LocalSinkFiles, name)))

    def _watch_index(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The parts that the index goes through."""
        keys = opened.Opened._keys

        def gone_through(index: opened.Opened) -> Iterator[Any]:
            for key in keys(index):
                self.seen["parts gone through"] += 1
                yield key

        monkeypatch.setattr(opened.Opened, "_keys", gone_through)

    def _counted(self, name: str, function: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.seen[name] += 1
            return function(*args, **kwargs)

        return counted

    def _listed(self, name: str, function: Any) -> Any:
        """Counts what a file operation is given or gives."""

        def listed(files: LocalSinkFiles, given: Any) -> Any:
            answer = function(files, given)
            if name == "walk":
                answer = [*answer]
            many = given if isinstance(given, list) else answer
            self.seen[f"files in {name}"] += len(many) if isinstance(many, list | tuple) else 1
            return answer

        return listed


def looked_at(root: Path, open_parts: int, epochs: int, **options: Any) -> Counter[str]:
    """What the last of some epochs looks at beside so many open parts; the first one looks at all."""
    world = ManyParts(str(root), **options)
    world.epoch(range(open_parts))
    with pytest.MonkeyPatch.context() as monkeypatch:
        counts = Counts(monkeypatch)
        for epoch in range(epochs):
            first = epoch * TOUCHED
            counts.seen.clear()
            world.epoch([*range(first, first + TOUCHED), *range(open_parts + first, open_parts + first + TOUCHED)])
    assert world.sink.open_size(world.coordinator.journal.read().sink_state("files"))[0] == open_parts
    return counts.seen


@pytest.mark.parametrize(
    "options",
    [{}, {"rolling": Rolling(max_rows=2, max_age="1 h", inactivity="50 min")}],
    ids=["rows", "times"],
)
def test_an_epoch_looks_at_as_much_beside_many_open_parts_as_beside_few(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    few = looked_at(tmp_path / "few", FEW, 3, **options)
    many = looked_at(tmp_path / "many", MANY, 3, **options)

    assert few["_read"] > TOUCHED  # it is counted
    assert {name: count for name, count in many.items() if count > few[name]} == {}


def test_a_start_goes_through_what_is_open_once_and_looks_at_what_it_closes(tmp_path: Path) -> None:
    world = ManyParts(str(tmp_path))
    world.epoch(range(MANY))
    world.restart()
    with pytest.MonkeyPatch.context() as monkeypatch:
        counts = Counts(monkeypatch)
        world.epoch([*range(TOUCHED), *range(MANY, MANY + TOUCHED)])

    assert counts.seen["entries gone through"] <= MANY + 10
    assert counts.seen["parts gone through"] == MANY  # limits may be lower than before
    assert counts.seen["_read"] <= MANY + 10 * TOUCHED


def test_buckets_that_await_their_marker_are_not_gone_through(tmp_path: Path) -> None:
    def changed(buckets: int) -> tuple[int, dict[str, Json]]:
        ends: dict[str, Json] = {f"awaited bucket={number}/": 1e9 + number for number in range(buckets)}
        before = SinkState({"target": "/t", **ends})
        index = opened.Opened().follow(before)
        looks = 0

        class Watched(dict[str, float]):
            def __iter__(self) -> Iterator[str]:
                nonlocal looks
                looks += 1
                return super().__iter__()

            def keys(self) -> Any:
                nonlocal looks
                looks += 1
                return super().keys()

        index.awaited = Watched(index.awaited)
        edit = Edit(before)
        index.change(edit, "/t", looked_at=(), left=(), headers={}, awaited={}, over=("bucket=3/",))
        return looks, edit.changes

    assert changed(MANY) == (0, {"awaited bucket=3/": None})
    assert changed(4)[1] == {"awaited bucket=3/": None}
    assert changed(4)[0] == 0


def test_files_of_a_large_folder_are_looked_up_and_not_listed(tmp_path: Path) -> None:
    counts = looked_at(tmp_path, MANY, 2)

    assert counts["files in lengths"] <= (closing.LISTED_FROM + 2) * TOUCHED
    assert counts["files in walk"] <= 2 * TOUCHED
