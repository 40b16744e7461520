from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn.files import TEMPORARY, Entry, create_by_rename, is_local, join, local_path, sweep
from tests.txn.syncs import Synced

ROOT = Path(__file__).parents[2]
RACERS = 8


@pytest.fixture
def files() -> LocalSinkFiles:
    return LocalSinkFiles(sync=False)


def race(*runners: Callable[[], object]) -> list[object]:
    """What each gave or raised, all started at once."""
    gate = threading.Barrier(len(runners))

    def run(runner: Callable[[], object]) -> object:
        gate.wait()
        try:
            return runner()
        except OSError as fault:
            return type(fault)

    with ThreadPoolExecutor(len(runners)) as pool:
        return list(pool.map(run, runners))


def temporary(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(TEMPORARY)]


def test_create_makes_a_file_and_the_folders_above_it(files: LocalSinkFiles, tmp_path: Path) -> None:
    created = files.create(str(tmp_path / "a" / "b" / "file"), b"data")

    assert created
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"data"


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_create_is_the_same_with_and_without_sync(sync: bool, durable: bool, tmp_path: Path) -> None:
    files = LocalSinkFiles(sync=sync)

    assert files.create(str(tmp_path / "file"), b"data", durable=durable)
    assert os.listdir(tmp_path) == ["file"]


def test_create_leaves_a_file_that_is_there_alone(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"first")

    assert not files.create(str(tmp_path / "file"), b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_create_takes_a_broken_link_for_a_name_that_is_taken(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to("nowhere")

    assert not files.create(str(tmp_path / "file"), b"data")


def test_create_has_one_winner_among_threads(files: LocalSinkFiles, tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / str(number)
        won = race(*[partial(files.create, str(path), b"%d" % who) for who in range(RACERS)])

        assert won.count(True) == 1
        assert int(path.read_bytes()) == won.index(True)
    assert temporary(tmp_path) == []


def test_create_has_one_winner_among_processes(tmp_path: Path) -> None:
    code = f"""
import sys
from epochal.sinks.storage.sink_files import LocalSinkFiles
sys.stdin.readline()
files = LocalSinkFiles(sync=False)
print(*[n for n in range(200) if files.create({str(tmp_path)!r} + "/" + str(n), sys.argv[1].encode())])
"""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(who)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [(number, who) for who, racer in enumerate(racers) for number in racer.communicate(timeout=60)[0].split()]

    assert sorted(int(number) for number, _ in wins) == list(range(200))
    assert all(int((tmp_path / number).read_bytes()) == who for number, who in wins)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can get longer than a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_create_leaves_nothing_on_a_full_disk(files: LocalSinkFiles, tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match="File too large"):
        files.create(str(tmp_path / "file"), b"x" * 100)

    assert os.listdir(tmp_path) == []
    assert files.create(str(tmp_path / "file"), b"x" * 100)


def test_a_temporary_file_that_a_full_disk_keeps_is_swept_by_the_next_start(
    files: LocalSinkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise OSError(errno.EIO, "cannot delete", path)

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", refused)
        with full_disk(), pytest.raises(OSError, match="File too large"):
            files.create(str(tmp_path / "file"), b"x" * 100)
    left = temporary(tmp_path)

    assert len(left) == 1
    assert sweep(files, str(tmp_path)) == left
    assert os.listdir(tmp_path) == []


def test_create_by_rename_leaves_nothing_when_writing_fails(files: LocalSinkFiles, tmp_path: Path) -> None:
    def write(temporary: str) -> None:
        Path(temporary).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space left"):
        create_by_rename(files, str(tmp_path / "file"), write)

    assert os.listdir(tmp_path) == []


def test_create_tries_again_when_a_start_sweeps_its_temporary_file(
    files: LocalSinkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, swept = os.link, iter([True, True])

    def sweep_then_link(source: str, target: str) -> None:
        if next(swept, False):
            os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", sweep_then_link)

    assert files.create(str(tmp_path / "file"), b"data")
    assert os.listdir(tmp_path) == ["file"]


def test_create_gives_up_when_something_keeps_removing_its_temporary_file(
    files: LocalSinkFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(source: str, target: str) -> None:
        os.unlink(source)
        raise FileNotFoundError(source)

    monkeypatch.setattr(os, "link", swept)

    with pytest.raises(OSError, match="vanished three times; is another program cleaning"):
        files.create(str(tmp_path / "file"), b"data")


def test_rename_moves_a_file(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"data")

    files.rename(str(tmp_path / "old"), str(tmp_path / "new"))

    assert os.listdir(tmp_path) == ["new"]
    assert (tmp_path / "new").read_bytes() == b"data"


def test_rename_does_not_overwrite(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"data")
    (tmp_path / "new").write_bytes(b"other")

    with pytest.raises(FileExistsError):
        files.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    assert (tmp_path / "old").read_bytes() == b"data"
    assert (tmp_path / "new").read_bytes() == b"other"


@pytest.mark.parametrize("there", [False, True])
def test_rename_of_nothing_is_an_error_whether_or_not_the_target_is_there(
    files: LocalSinkFiles, tmp_path: Path, there: bool
) -> None:
    if there:
        (tmp_path / "new").touch()

    with pytest.raises(FileNotFoundError):
        files.rename(str(tmp_path / "old"), str(tmp_path / "new"))


def test_rename_finishes_what_a_crash_left_half_done(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"data")
    os.link(tmp_path / "old", tmp_path / "new")

    files.rename(str(tmp_path / "old"), str(tmp_path / "new"))

    assert os.listdir(tmp_path) == ["new"]


def test_rename_to_one_name_has_one_winner(files: LocalSinkFiles, tmp_path: Path) -> None:
    for number in range(40):
        target = tmp_path / f"target-{number}"
        for who in range(RACERS):
            (tmp_path / f"{number}-{who}").write_bytes(b"%d" % who)
        sources = [str(tmp_path / f"{number}-{who}") for who in range(RACERS)]
        results = race(*[partial(files.rename, source, str(target)) for source in sources])

        assert results.count(None) == 1
        assert results.count(FileExistsError) == RACERS - 1
        assert int(target.read_bytes()) == results.index(None)


def test_rename_of_one_file_by_several_leaves_it_under_its_new_name(files: LocalSinkFiles, tmp_path: Path) -> None:
    for number in range(40):
        source, target = tmp_path / f"source-{number}", tmp_path / f"target-{number}"
        source.write_bytes(b"data")
        results = race(*[partial(files.rename, str(source), str(target))] * RACERS)

        assert None in results
        assert {result for result in results if result} <= {FileNotFoundError, FileExistsError}
        assert not source.exists()
        assert target.read_bytes() == b"data"


def test_delete_removes_a_file_a_folder_or_nothing(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "below" / "file").touch()
    (tmp_path / "file").touch()

    for name in ("folder", "file", "nothing"):
        files.delete(str(tmp_path / name))

    assert os.listdir(tmp_path) == []


def test_delete_of_a_link_leaves_what_it_leads_to(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")

    files.delete(str(tmp_path / "link"))

    assert sorted(os.listdir(tmp_path)) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_a_tree_can_be_deleted_by_several_at_once(files: LocalSinkFiles, tmp_path: Path) -> None:
    for number in range(10):
        for name in range(20):
            folder = tmp_path / f"tree-{number}" / str(name % 5)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(name)).touch()
        results = race(*[partial(files.delete, str(tmp_path / f"tree-{number}"))] * RACERS)

        assert results == [None] * RACERS
    assert os.listdir(tmp_path) == []


def test_listings_are_sorted(files: LocalSinkFiles, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    (tmp_path / "bb").mkdir()

    assert files.names(str(tmp_path)) == ("a", "b", "bb", "c")
    assert files.list(str(tmp_path)) == [
        Entry("a", 3, False),
        Entry("b", 3, False),
        Entry("bb", 0, True),
        Entry("c", 3, False),
    ]


def test_walk_gives_every_file_below_in_order(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "b" / "d").mkdir(parents=True)
    (tmp_path / "b" / "d" / "two").write_bytes(b"22")
    (tmp_path / "b" / "c").write_bytes(b"1")
    (tmp_path / "a").touch()
    (tmp_path / "empty").mkdir()

    assert list(files.walk(str(tmp_path))) == [
        Entry("a", 0, False),
        Entry("b/c", 1, False),
        Entry("b/d/two", 2, False),
    ]


def test_what_is_not_there_is_empty_and_has_no_length(files: LocalSinkFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "nothing")

    assert files.names(path) == ()
    assert files.list(path) == []
    assert list(files.walk(path)) == []
    assert files.length(path) is None
    assert files.modified(path) is None
    with pytest.raises(FileNotFoundError):
        files.read(path)


def test_a_file_is_no_folder(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    path = str(tmp_path / "file")

    assert files.names(path) == ()
    assert files.list(path) == []
    assert files.length(f"{path}/below") is None
    assert files.modified(f"{path}/below") is None
    assert files.length(path) == 4
    assert files.modified(path) == os.stat(path).st_mtime
    assert files.read(path) == b"data"


def test_a_folder_can_be_made_twice(files: LocalSinkFiles, tmp_path: Path) -> None:
    for _ in range(2):
        files.make_folder(str(tmp_path / "a" / "b"))

    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("sync", [False, True])
def test_sync_reaches_files_and_folders(sync: bool, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path):
        LocalSinkFiles(sync=sync).sync(str(path))


@pytest.mark.parametrize(
    ("path", "local"),
    [("/data", True), ("data", True), ("file:/data", True), ("file:///data", True), ("hdfs://host/data", False)],
)
def test_local_paths_are_told_from_others(path: str, local: bool) -> None:
    assert is_local(path) is local


def test_a_local_uri_becomes_a_plain_path() -> None:
    assert local_path("file:/data/a b#?%20") == local_path("file:///data/a b#?%20") == "/data/a b#?%20"
    assert local_path("data") == os.path.abspath("data")


def test_joining_keeps_one_slash() -> None:
    assert join("hdfs://host/data/", "a") == join("hdfs://host/data", "a") == "hdfs://host/data/a"
    assert join("/", "a") == "/a"


def test_a_folder_moves_to_a_free_name_with_all_that_is_in_it(files: LocalSinkFiles, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("here")

    files.move_folder(str(tmp_path / "a"), str(tmp_path / "c"))

    assert (tmp_path / "c" / "b" / "file").read_text() == "here"
    assert not (tmp_path / "a").exists()


def test_a_folder_moves_over_nothing(files: LocalSinkFiles, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    with pytest.raises(FileExistsError):
        files.move_folder(str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(FileNotFoundError):
        files.move_folder(str(tmp_path / "none"), str(tmp_path / "c"))
    assert (tmp_path / "b" / "file").read_text() == "b"


def test_files_are_joined_by_copying_and_stay(files: LocalSinkFiles, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")

    files.join_copies(str(tmp_path / "below" / "whole"), [str(tmp_path / "a"), str(tmp_path / "b")])

    assert (tmp_path / "below" / "whole").read_text() == "a\nb\n"
    assert (tmp_path / "a").exists()
    assert not files.joins_in_place(str(tmp_path))
    with pytest.raises(OSError, match="without copying"):
        files.join_in_place(str(tmp_path / "a"), [str(tmp_path / "b")])


def test_what_others_begin_with_can_be_left_out_of_a_joined_file(files: LocalSinkFiles, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"head\n{name}\n")

    files.join_copies(str(tmp_path / "whole"), [str(tmp_path / name) for name in ("a", "b", "c")], skip=5)

    assert (tmp_path / "whole").read_text() == "head\na\nb\nc\n"
    assert files.head(str(tmp_path / "whole"), 6) == b"head\na"
    assert files.head(str(tmp_path / "whole"), 100) == b"head\na\nb\nc\n"


@pytest.mark.parametrize("count", [2, 200])
def test_few_and_many_files_are_synced(files: LocalSinkFiles, tmp_path: Path, count: int) -> None:
    paths = [tmp_path / str(number) for number in range(count)]
    for path in paths:
        path.touch()

    files.sync_all([str(path) for path in paths], within=str(tmp_path))


def test_the_folders_that_lead_to_files_are_synced_once_and_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    (target / "a" / "b").mkdir(parents=True)
    paths = [str(target / "a" / "b" / name) for name in ("1", "2")] + [str(target / "a" / "3")]
    for path in paths:
        Path(path).touch()
    synced = Synced(monkeypatch.setattr)

    LocalSinkFiles().sync_all(paths, within=str(target))

    assert synced.paths == [*paths, str(target / "a" / "b"), str(target / "a"), str(target)]


def test_a_folder_is_synced_again_only_for_names_that_are_new_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, target = LocalSinkFiles(), tmp_path / "target"

    def synced_for(name: str) -> list[str]:
        path = target / "staged" / name / "part"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with monkeypatch.context() as patched:
            synced = Synced(patched.setattr)
            files.sync_all([str(path)], within=str(target))
        return [os.path.relpath(path, target) for path in synced.paths]

    first, second = synced_for("0"), synced_for("1")
    shutil.rmtree(target / "staged")
    (target / "other").mkdir()  # takes the inode, if that is given out again
    third = synced_for("2")

    assert first == ["staged/0/part", "staged/0", "staged", "."]
    assert second == ["staged/1/part", "staged/1", "staged"]
    assert third == ["staged/2/part", "staged/2", "staged", "."]


def test_the_names_of_new_folders_are_synced_with_the_file_that_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch.setattr)
    LocalSinkFiles().create(str(tmp_path / "a" / "b" / "file"), b"")
    first = {path for path in synced.paths if "tmp-" not in path}
    synced.paths.clear()
    LocalSinkFiles().create(str(tmp_path / "a" / "b" / "other"), b"")

    assert first == {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}
    assert {path for path in synced.paths if "tmp-" not in path} == {str(tmp_path / "a" / "b")}


def test_what_a_power_cut_may_undo_is_whole_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(monkeypatch.setattr)
    LocalSinkFiles().create(str(tmp_path / "a" / "file"), b"data", durable=False)

    # The content is synced before it gets its name, which is not: a name with half its content would be a torn record.
    assert [os.path.basename(path).startswith(TEMPORARY) for path in synced.paths] == [True]


def test_a_folder_that_may_not_be_read_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    opened = os.open

    def opening(path: str, flags: int, *rest: int) -> int:
        if path == str(tmp_path):
            raise PermissionError(path)
        return opened(path, flags, *rest)

    monkeypatch.setattr("os.open", opening)

    LocalSinkFiles().sync_all([str(tmp_path / "a" / "file")], within=str(tmp_path))
