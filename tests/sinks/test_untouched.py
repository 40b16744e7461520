"""A staged file that another program has changed is not published, wherever a listing shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.sinks.files.commit import Publisher
from epochal.sinks.files.handle import StagedEpoch
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import EpochFacts
from epochal.sinks.files.untouched import ACCEPTED, COPIES, check_untouched, versions_of
from epochal.sinks.storage.objects import ObjectSinkFiles
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn.errors import DataLost
from epochal.txn.files import Entry
from epochal.txn.model import Attempt, Outcome
from tests.sinks.object_memory import Memory, MemoryClient, Stored

LAYOUT = Layout("s3://bucket/target")
ATTEMPT = Attempt("1f0c9a2e-0000", 7, 2)
STAGED = {"data/a": b"first\n", "data/b": b"other\n"}
RENAMES = tuple((name, name.removeprefix("data/"), len(data)) for name, data in STAGED.items())


def key_of(name: str) -> str:
    return LAYOUT.source(ATTEMPT, name).removeprefix("s3://bucket/")


def by_spark(name: str, data: bytes, etag: str) -> Stored:
    return Stored(data, f"by-others-{name}", is_ours=False, etag=etag)


@pytest.fixture
def memory() -> Memory:
    return Memory({key_of(name): by_spark(name, data, f"etag of {name}") for name, data in STAGED.items()})


@pytest.fixture
def files(memory: Memory) -> ObjectSinkFiles:
    return ObjectSinkFiles("s3://bucket", MemoryClient(memory), lambda: True)


@pytest.fixture
def epoch(files: ObjectSinkFiles) -> StagedEpoch:
    """As the journal gives it back."""
    versions = versions_of(files, LAYOUT, ATTEMPT, RENAMES, {})
    staged = StagedEpoch(EpochFacts(rows=2, offsets="digest"), files=RENAMES, versions=versions)
    return StagedEpoch.from_json(staged.to_json())


@pytest.fixture
def publish(files: ObjectSinkFiles) -> Callable[[StagedEpoch], Outcome]:
    return Publisher("files", files, LAYOUT, ATTEMPT).publish


Publish = Callable[[StagedEpoch], Outcome]


def shown(memory: Memory) -> list[str]:
    return sorted(key for key in memory.objects if "/_epochal/" not in key)


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"oth", r"data/b should have 6 bytes and has 3"), (b"OTHER\n", r"data/b has its 6 bytes, but was written again")],
    ids=["cut-short", "of-the-same-length"],
)
def test_nothing_of_the_epoch_is_published_until_the_file_is_put_back(
    data: bytes, told: str, memory: Memory, epoch: StagedEpoch, publish: Publish
) -> None:
    memory.objects[key_of("data/b")] = by_spark("data/b", data, "another etag")
    with pytest.raises(DataLost, match=told):
        publish(epoch)
    assert shown(memory) == []

    memory.objects[key_of("data/b")] = by_spark("data/b", STAGED["data/b"], "etag of data/b")
    assert publish(epoch) is Outcome.COMMITTED
    assert shown(memory) == ["target/a", "target/b"]


def test_a_copy_that_was_put_back_under_another_etag_is_published_once_it_is_accepted(
    memory: Memory, epoch: StagedEpoch, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.objects[key_of("data/b")] = by_spark("data/b", STAGED["data/b"], "as KMS makes it")
    with pytest.raises(DataLost, match=f"start with {COPIES}={ACCEPTED} once"):
        publish(epoch)
    monkeypatch.setenv(COPIES, ACCEPTED)

    assert publish(epoch) is Outcome.COMMITTED


def test_what_was_staged_by_an_older_version_is_known_by_its_length_alone(
    memory: Memory, epoch: StagedEpoch, publish: Publish
) -> None:
    body = epoch.to_json()
    del body["versions"]
    older = StagedEpoch.from_json(body)
    memory.objects[key_of("data/a")] = by_spark("data/a", b"cut", "another etag")
    with pytest.raises(DataLost, match="should have 6 bytes and has 3"):
        publish(older)
    memory.objects[key_of("data/a")] = by_spark("data/a", b"FIRST\n", "another etag")

    assert publish(older) is Outcome.COMMITTED


def test_a_commit_that_was_interrupted_goes_on_with_what_is_still_staged(
    memory: Memory, epoch: StagedEpoch, publish: Publish
) -> None:
    memory.objects["target/a"] = memory.objects.pop(key_of("data/a"))

    assert publish(epoch) is Outcome.COMMITTED
    assert shown(memory) == ["target/a", "target/b"]


def test_a_piece_of_an_earlier_epoch_is_known_by_its_length(
    memory: Memory, files: ObjectSinkFiles, epoch: StagedEpoch, publish: Publish
) -> None:
    piece = ("open/000000000005/p", "p", 4)
    memory.objects[key_of("open/000000000005/p")] = by_spark("p", b"row", "an etag")
    renames = (*RENAMES, piece)
    later = replace(epoch, files=renames, versions=versions_of(files, LAYOUT, ATTEMPT, renames, {}))

    assert later.versions == (*epoch.versions, "")
    with pytest.raises(DataLost, match="p should have 4 bytes and has 3"):
        publish(later)


def test_one_listing_tells_it_of_all_files(memory: Memory, epoch: StagedEpoch) -> None:
    listed = []

    class Counting(MemoryClient):
        def walk(self, prefix: str) -> list[tuple[str, int, str]]:
            listed.append(prefix)
            return super().walk(prefix)

    files = ObjectSinkFiles("s3://bucket", Counting(memory), lambda: True)
    known = dict(zip(STAGED, epoch.versions, strict=True))

    assert versions_of(files, LAYOUT, ATTEMPT, RENAMES, known) == epoch.versions
    assert listed == []
    assert versions_of(files, LAYOUT, ATTEMPT, RENAMES, {}) == epoch.versions
    Publisher("files", files, LAYOUT, ATTEMPT).publish(epoch)
    assert listed.count(key_of("data")) == 2, "when it is staged, and before it is shown"


class Listed(LocalSinkFiles):
    """Notes what is listed, below the attempt's folder."""

    def __init__(self, home: str) -> None:
        super().__init__(sync=False)
        self.folders: list[str] = []
        self._home = home

    def list(self, path: str) -> list[Entry]:
        if path.startswith(self._home):
            self.folders.append(path.removeprefix(self._home))
        return super().list(path)


@pytest.mark.parametrize(("published", "listings"), [(3, 3), (20, 41)], ids=["few", "many"])
def test_folders_whose_files_are_not_published_are_not_listed_for_a_few_that_are(
    published: int, listings: int, tmp_path: Path
) -> None:
    layout = Layout(str(tmp_path))
    files = Listed(layout.attempt(ATTEMPT))
    names = [f"data/bucket={number}/a" for number in range(40)]
    files.create_all([(layout.source(ATTEMPT, name), b"row\n") for name in names], durable=False)
    renames = tuple((name, name.removeprefix("data/"), 4) for name in names[:published])
    epoch = StagedEpoch(EpochFacts(), files=renames, has_open_pieces=True)

    check_untouched("files", files, layout, ATTEMPT, epoch)
    assert len(files.folders) == listings
    files.delete(layout.source(ATTEMPT, names[1]))
    files.create(layout.source(ATTEMPT, names[1]), b"ro")
    with pytest.raises(DataLost, match="should have 4 bytes and has 2"):
        check_untouched("files", files, layout, ATTEMPT, epoch)
