"""Savepoints and restores with everything on an object store, killed at their steps, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from epochal.spark_plugins.moving.in_place import InPlace
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.spark_plugins.restore_marks import FOLDER, Marks, content_of
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import Faults, StoreProxy
from epochal.txn.errors import Refused
from integration_tests.objects.forks import DONE, KILLED, Forks
from integration_tests.objects.moves import Moves
from integration_tests.steps import NAMES_OF_RESTORES, NAMES_OF_SAVEPOINTS

FAULTS = Faults(lost=0.05, failed=0.04, refused=0.05, slow=0.05, pause=0.01)
HITS = {"restore-file": (1, 4, 8), "restore-target": (1, 2), "savepoint-object": (1, 5)}
matrix = [pytest.mark.matrix, pytest.mark.timeout(3600)]


def cases(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Every failpoint, some at several hits. A sweep needs what a dead savepoint has left."""
    points = [name for name in names if not name.endswith("-sweep")]
    return [(name, hit) for name in points for hit in HITS.get(name.partition("-")[2], (1,))]


@pytest.fixture(scope="module")
def forks(s3: S3Store) -> Iterator[Forks]:
    with Forks("integration_tests.objects.moves", s3.environment) as started:
        yield started


@pytest.fixture
def streams(reached: S3Store, folder: str, tmp_path: Path) -> Callable[[Forks, str], Moves]:
    """Streams, each in a folder of its own."""

    def make(forks: Forks, name: str) -> Moves:
        (tmp_path / name).mkdir()
        return Moves(forks, f"{folder}/{name}", tmp_path / name)

    return make


Make = Callable[[Forks, str], Moves]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([("after-savepoint-object", 4)], id="sample"),
        pytest.param(cases(NAMES_OF_SAVEPOINTS), id="whole", marks=matrix),
    ],
)
def test_a_savepoint_that_is_killed_is_none_or_whole(
    points: list[tuple[str, int]], forks: Forks, streams: Make
) -> None:
    for point, hit in points:
        stream = streams(forks, f"{point}-{hit}")
        stream.run(3)
        assert stream.savepoint(points=f"{point}=kill@{hit}")[0] == KILLED, point
        store = SavepointStore(*resolve_checkpoint(f"{stream.place}/backups"))
        whole = store.manifests()
        assert [store.missing(manifest) for manifest in whole] == [[]] * len(whole)
        stream.run(4)
        stream.saved()

        assert [m.epoch for m in store.manifests()] == [*([2] if whole else []), 3]
        needed = {file.sha256 for m in store.manifests() for file in m.files}
        objects = {e.name.rpartition("/")[2] for e in store.files.walk(f"{store.place}/objects")}
        assert objects == needed, f"{point}@{hit}: what was left was not swept"
        assert store.files.names(f"{store.place}/taking") == ()
        assert stream.command("savepoints", store.place, "--verify")[0] == 0


@pytest.mark.parametrize("ahead", [pytest.param(0, marks=pytest.mark.matrix), 2], ids=["nothing since", "ahead"])
@pytest.mark.parametrize("lost", [False, pytest.param(True, marks=pytest.mark.matrix)], ids=["at hand", "lost"])
@pytest.mark.parametrize(
    "points",
    [
        pytest.param([("after-restore-file", 3)], id="sample"),
        pytest.param(cases(NAMES_OF_RESTORES), id="whole", marks=matrix),
    ],
)
def test_a_restore_that_is_killed_is_finished_by_a_repeat_and_two_streams_never_start(
    points: list[tuple[str, int]], lost: bool, ahead: int, forks: Forks, streams: Make
) -> None:
    for point, hit in points:
        if lost and point.endswith("-close"):
            continue
        case, options = f"{point}@{hit}", ["--lost-original"] if lost else []
        stream = streams(forks, f"{point}-{hit}")
        stream.run(3)
        savepoint = stream.saved()
        stream.run(3 + ahead)
        files, place = resolve_checkpoint(stream.original)
        if lost:
            files.move_folder(f"{place}/epochal", f"{place}-hidden/epochal")
        assert stream.restore(savepoint, *options, points=f"{point}=kill@{hit}")[0] == KILLED, case
        if lost:
            files.move_folder(f"{place}-hidden/epochal", f"{place}/epochal")  # it was only cut off
        new = stream.starts(stream.new)
        assert new is (point == "after-restore-rename"), case
        assert not (new and stream.starts(stream.original)), f"{case}: both can start"
        if not new:
            if point != "before-restore-begin":
                code, said = stream.command("status", stream.new)
                assert (code, "has not ended" in said) == (2, True), said
            if lost:
                files.move_folder(f"{place}/epochal", f"{place}-hidden/epochal")
            code, said = stream.restore(savepoint, *options)
            assert code == 0, said
            if lost:
                files.move_folder(f"{place}-hidden/epochal", f"{place}/epochal")
        assert not stream.starts(stream.original), f"{case}: the original can start"
        stream.run(6, stream.new)

        assert stream.shown() == [Counter(range(6))] * 2, case


@pytest.mark.matrix
def test_a_stream_that_has_moved_moves_back_and_a_fork_begins_after_its_savepoint(
    forks: Forks, streams: Make, tmp_path: Path
) -> None:
    stream = streams(forks, "stream")
    stream.run(3)
    savepoint = stream.saved()
    assert stream.restore(savepoint)[0] == 0
    stream.run(4, stream.new)
    on_disk = str(tmp_path / "on-disk")
    assert stream.restore(stream.saved(stream.new), to=on_disk)[0] == 0
    stream.run(5, on_disk)
    back = f"{stream.place}/back"
    assert stream.restore(stream.saved(on_disk), to=back)[0] == 0
    stream.run(6, back)
    assert stream.shown() == [Counter(range(6))] * 2
    moved = [stream.command("savepoint", place, f"{stream.place}/backups") for place in (stream.new, on_disk)]
    assert [(code, "the stream has moved to" in said) for code, said in moved] == [(2, True)] * 2
    taken = stream.restore(savepoint, "--fork", to=back)

    assert taken[0] == 2
    assert "is not empty" in taken[1]
    assert stream.restore(savepoint, "--fork", to=f"{stream.place}/fork")[0] == 0
    (tmp_path / "fork").mkdir()
    fork = Moves(forks, stream.place, tmp_path / "fork")
    fork.run(5, f"{stream.place}/fork")
    assert fork.shown() == [Counter([3, 4])] * 2


@pytest.mark.matrix
def test_of_two_restores_into_one_folder_one_is_refused_and_what_failed_leaves_nothing(
    forks: Forks, streams: Make
) -> None:
    stream = streams(forks, "stream")
    stream.run(2)
    savepoint = stream.saved()
    files, new = resolve_checkpoint(stream.new)
    running = InPlace.at(files, new, savepoint)  # by this process, which lives
    code, said = stream.restore(savepoint)
    assert (code, "runs here" in said) == (2, True), said
    running.give_up()
    assert content_of(files, new) == []
    assert stream.restore("s3://no-such-bucket/backups/none")[0] != 0
    files.create(f"{new}/foreign", b"")  # somebody else writes there
    code, said = stream.restore(savepoint)
    assert (code, "is not empty" in said) == (2, True), said
    files.delete(f"{new}/foreign")
    assert stream.restore(savepoint)[0] == 0
    late = InPlace(files, new, new, running.mark)
    with pytest.raises(Refused, match="has come to be"):
        late.check([])
    late.give_up()

    stream.run(4, stream.new)
    assert stream.shown() == [Counter(range(4))] * 2


@pytest.mark.matrix
def test_a_restore_that_was_given_up_lets_the_original_start_again(forks: Forks, streams: Make) -> None:
    stream = streams(forks, "stream")
    stream.run(2)
    savepoint = stream.saved()
    assert stream.restore(savepoint, points="after-restore-journal=kill")[0] == KILLED
    assert not stream.starts(stream.original)
    code, said = stream.restore(savepoint, to=f"{stream.place}/elsewhere")
    assert code == 2, said
    assert "the original cannot be closed: there is no journal in" in said
    assert stream.command("retire", stream.original, "--undo")[0] == 0

    code, said = stream.restore(savepoint)
    assert code == 0, said
    assert stream.command("retire", stream.original, "--undo")[0] == 2
    stream.run(3, stream.new)
    assert stream.shown() == [Counter(range(3))] * 2


@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_a_store_that_fails_only_costs_time(streams: Make, s3: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreProxy(s3.endpoint, FAULTS, seed=7) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with Forks("integration_tests.objects.moves") as forks:
            stream = streams(forks, "stream")
            for number in range(5):
                place = f"{stream.place}/{number}"
                source = f"{stream.place}/{number - 1}" if number else stream.original
                stream.run(2 * number + 2, source)
                code, said = stream.restore(stream.saved(source), to=place)
                assert code == DONE, said
            stream.run(12, f"{stream.place}/4")
        files, place = resolve_checkpoint(f"{stream.place}/4")
        last, marks = Marks(files, place).last(), files.names(f"{place}/{FOLDER}")
    print(f"\n{proxy.requests.total()} requests, {proxy.injected.total()} faults of the store")

    assert stream.shown() == [Counter(range(12))] * 2
    assert last is not None
    assert not last.is_begun
    assert marks == ("000001.json", "000002.json")
