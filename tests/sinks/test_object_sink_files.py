"""What sinks need of an object store besides: many objects at once, folders that move, objects that become one.

On a store in memory that loses answers, refuses, conflicts and carries out late.
"""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest

from epochal.sinks.storage.objects import ObjectSinkFiles, sink_files
from epochal.sinks.storage.objects.files import MOST_COPIED, MOST_IN_MEMORY
from epochal.sinks.storage.objects.patience import Patience
from epochal.testing.processes import in_threads
from tests.sinks.object_memory import Memory, MemoryClient, Stored

URL = "s3://bucket"
FOLDER = f"{URL}/folder"
QUICK = Patience(tries=60, first=0.0, sleep=lambda _: None)
copied = pytest.mark.parametrize("copies", [True, False], ids=["copied-by-the-store", "copied-through-memory"])


def files_on(memory: Memory, *, seed: int = 0, share: float = 0.0, copies: bool = True) -> ObjectSinkFiles:
    return ObjectSinkFiles(URL, MemoryClient(memory, seed=seed, share=share), lambda: copies, patience=QUICK)


def by_spark(data: bytes, name: str) -> Stored:
    return Stored(data, f"by-others-{name}", is_ours=False)


@pytest.fixture
def memory() -> Memory:
    return Memory()


def contents(memory: Memory) -> dict[str, bytes]:
    while memory.late:
        memory.late.pop()()
    return {key: stored.data for key, stored in sorted(memory.objects.items())}


@copied
@pytest.mark.parametrize("seed", range(10))
def test_many_objects_of_spark_get_their_names_once_whatever_fails(seed: int, copies: bool, memory: Memory) -> None:
    """As a commit does it: by several processes at once, until one of them has done all."""
    staged = {f"folder/staged/{n}": b"%d" % random.Random(n).randrange(4) for n in range(200)}
    memory.objects |= {key: by_spark(data, key) for key, data in staged.items()}
    moves = [(f"{URL}/{key}", f"{URL}/{key.replace('staged', 'shown')}") for key in staged]

    done: list[int] = []

    def commit(number: int) -> None:
        files = files_on(memory, seed=10 * seed + number, share=0.3, copies=copies)
        done.extend(at for at, miss in enumerate(files.rename_all(moves)) if miss is None)

    assert in_threads([partial(commit, number) for number in range(3)]) == [None] * 3

    assert contents(memory) == {key.replace("staged", "shown"): data for key, data in sorted(staged.items())}
    assert {*done} == {*range(len(moves))}


@copied
@pytest.mark.parametrize("seed", range(10))
def test_a_folder_moves_object_by_object_and_a_crash_leaves_what_the_next_call_finishes(
    seed: int, copies: bool, memory: Memory
) -> None:
    pieces = {f"folder/data/day={n % 3}/part-{n}": b"%d" % n for n in range(40)}
    memory.objects |= {key: by_spark(data, key) for key, data in pieces.items()}
    files = files_on(memory, seed=seed, share=0.3, copies=copies)
    for key in random.Random(seed).sample([*pieces], 15):  # a driver was killed in the midst
        files.rename(f"{URL}/{key}", f"{URL}/{key.replace('data', 'open')}")
    half = random.Random(seed).choice([key for key in pieces if key in memory.objects])
    memory.objects[half.replace("data", "open")] = by_spark(pieces[half], "copied, and not removed")

    files.move_folder(f"{FOLDER}/data", f"{FOLDER}/open")

    assert contents(memory) == {key.replace("data", "open"): data for key, data in sorted(pieces.items())}
    with pytest.raises(FileNotFoundError):
        files.move_folder(f"{FOLDER}/data", f"{FOLDER}/open")


def test_a_folder_does_not_move_over_other_objects(memory: Memory) -> None:
    memory.objects |= {"folder/data/a": by_spark(b"1", "a"), "folder/open/a": by_spark(b"2", "b")}

    with pytest.raises(FileExistsError):
        files_on(memory).move_folder(f"{FOLDER}/data", f"{FOLDER}/open")
    assert contents(memory) == {"folder/data/a": b"1", "folder/open/a": b"2"}


@pytest.mark.parametrize("part", [1, 4, 1000], ids=["in-many-parts", "in-parts", "in-one-request"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_objects_become_one_whatever_fails(
    part: int, share: float, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_files, "PART", part)
    memory.objects |= {f"folder/{n}": by_spark(b"head" + b"%d" % n * n, str(n)) for n in range(12)}
    memory.objects["folder/whole"] = by_spark(b"of an earlier try", "whole")
    sources = [f"{FOLDER}/{n}" for n in range(12)]
    files = files_on(memory, seed=part, share=share)

    files.join_copies(f"{FOLDER}/whole", sources, skip=4)
    files.join_all_copies([(f"{FOLDER}/all-{n}", sources[: n + 1]) for n in range(12)])

    found = contents(memory)
    assert found["folder/whole"] == b"head" + b"".join(b"%d" % n * n for n in range(12))
    for number in range(12):
        assert found[f"folder/all-{number}"] == b"".join(b"head" + b"%d" % n * n for n in range(number + 1))


def test_a_source_that_is_missing_makes_no_object(memory: Memory) -> None:
    with pytest.raises(FileNotFoundError):
        files_on(memory).join_copies(f"{FOLDER}/whole", [f"{FOLDER}/none"])
    assert contents(memory) == {}


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_lengths_lines_heads_and_pieces_are_read_whatever_fails(
    share: float, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_files, "PART", 3)
    texts = {f"{FOLDER}/{n}": b"line\n" * n for n in range(20)}
    memory.objects |= {path.removeprefix(f"{URL}/"): by_spark(data, path) for path, data in texts.items()}
    files = files_on(memory, seed=3, share=share)

    assert files.lengths([*texts, f"{FOLDER}/none"]) == [*map(len, texts.values()), None]
    assert files.line_counts([*texts]) == [*range(20)]
    assert [files.head(path, 7) for path in texts] == [data[:7] for data in texts.values()]
    assert [b"".join(files.chunks(path)) for path in texts] == [*texts.values()]
    assert all(len(piece) <= 3 for piece in files.chunks(f"{FOLDER}/9"))
    with pytest.raises(FileNotFoundError):
        files.head(f"{FOLDER}/none", 3)
    with pytest.raises(FileNotFoundError):
        next(files.chunks(f"{FOLDER}/none"))


@pytest.mark.parametrize("many", [5, 50], ids=["one-by-one", "by-a-listing"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_many_are_made_and_removed_whatever_fails(many: int, share: float, memory: Memory) -> None:
    memory.objects |= {
        "folder/stays": Stored(b"", "1"),
        "folder/1-stays": Stored(b"", "2"),
        "folder/1": Stored(b"", "3"),
    }
    files = files_on(memory, seed=many, share=share)

    files.create_all([(f"{FOLDER}/{n}", b"new") for n in range(many)])
    files.create_all([(f"{FOLDER}/{n}/below/it", b"new") for n in range(many)])
    assert files.read(f"{FOLDER}/1") == b"", "what exists is not changed"
    files.delete_all([f"{FOLDER}/{n}" for n in range(many)])

    assert [*contents(memory)] == ["folder/1-stays", "folder/stays"]


def test_content_in_pieces_is_created_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_on(memory)

    assert files.create_from(f"{FOLDER}/a", iter([b"one", b"two"]))
    assert not files.create_from(f"{FOLDER}/a", (pytest.fail("nobody asks for it") for _ in range(1)))
    assert contents(memory) == {"folder/a": b"onetwo"}
    monkeypatch.setattr(sink_files, "PART", 4)  # what is longer goes in parts
    assert files.create_from(f"{FOLDER}/b", iter([b"one", b"two"]))
    assert not files.create_from(f"{FOLDER}/b", iter([b"other"]))
    assert contents(memory) == {"folder/a": b"onetwo", "folder/b": b"onetwo"}


def test_how_long_a_file_may_be_that_is_renamed_depends_on_who_copies(memory: Memory) -> None:
    assert files_on(memory, copies=True).rename_limit() == MOST_COPIED
    assert files_on(memory, copies=False).rename_limit() == MOST_IN_MEMORY


def test_nothing_is_joined_in_place_and_folders_need_no_making(memory: Memory) -> None:
    files = files_on(memory)
    files.make_folders([FOLDER])
    files.sync_all([f"{FOLDER}/a"], within=FOLDER)

    assert not files.joins_in_place(FOLDER)
    with pytest.raises(OSError, match="cannot join"):
        files.join_all_in_place([[f"{FOLDER}/a", f"{FOLDER}/b"]])
    assert contents(memory) == {}


def test_after_an_error_no_other_step_is_begun_and_none_is_running(memory: Memory) -> None:
    running, begun, most = 0, 0, 200
    lock = threading.Lock()

    class Forbidden(MemoryClient):
        def length(self, key: str) -> tuple[int, float] | None:
            nonlocal running, begun
            with lock:
                running, begun = running + 1, begun + 1
            try:
                if key.endswith("/7"):
                    raise PermissionError(key)
                return super().length(key)
            finally:
                with lock:
                    running -= 1

    files = ObjectSinkFiles(URL, Forbidden(memory), lambda: True, patience=QUICK)
    with pytest.raises(PermissionError, match="folder/7"):
        files.lengths([f"{FOLDER}/{n}" for n in range(most)])

    assert running == 0
    assert begun < most
