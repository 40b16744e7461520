"""Exactness of `ObjectFiles`, on a store in memory that loses answers, refuses, conflicts and carries out late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from epochal.sinks.storage.objects.clients import clients_for
from epochal.sinks.storage.objects.faults import Away, Taken, answered, fault_of
from epochal.sinks.storage.objects.files import ObjectFiles
from epochal.sinks.storage.objects.patience import Patience
from epochal.testing.processes import in_threads
from epochal.txn.files import Entry, Files, sweep
from tests.sinks.object_memory import Memory, MemoryClient, Stored

URL = "s3://bucket"
FOLDER = f"{URL}/folder"
QUICK = Patience(tries=40, first=0.0, sleep=lambda _: None)
RACERS = 4


def files_on(memory: Memory, client: MemoryClient | None = None, *, copies: bool = True) -> ObjectFiles:
    return ObjectFiles(URL, client or MemoryClient(memory), lambda: copies, patience=QUICK)


def clients_of(memory: Memory, seed: int, share: float) -> list[MemoryClient]:
    return [MemoryClient(memory, seed=seed * RACERS + number, share=share) for number in range(RACERS)]


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(params=[True, False], ids=["copied-by-the-store", "copied-through-memory"])
def files(memory: Memory, request: pytest.FixtureRequest) -> ObjectFiles:
    return files_on(memory, copies=request.param)


class Failing(MemoryClient):
    """Its first writes have the given fates: carried out or not, and then no answer, or a conflict."""

    def __init__(self, memory: Memory, *fates: str) -> None:
        super().__init__(memory)
        self._fates = list(fates)

    def put_new(self, key: str, data: bytes, identity: str) -> None:
        self._meet(lambda: MemoryClient.put_new(self, key, data, identity))

    def copy_new(self, source: str, key: str) -> None:
        self._meet(lambda: MemoryClient.copy_new(self, source, key))

    def remove(self, key: str) -> None:
        self._meet(lambda: MemoryClient.remove(self, key))

    def _meet(self, request: Callable[[], None]) -> None:
        fate = self._fates.pop(0) if self._fates else "done"
        if fate in ("done", "lost"):
            request()
        if fate == "conflict":
            raise Taken("409")
        if fate in ("lost", "refused"):
            raise Away(fate)


def test_create_makes_an_object_once(files: ObjectFiles) -> None:
    assert files.create(f"{FOLDER}/file", b"first")
    assert not files.create(f"{FOLDER}/file", b"first"), "the same content is no proof that it is the same call"
    assert files.read(f"{FOLDER}/file") == b"first"


@pytest.mark.parametrize(
    "fates", [["lost"], ["refused"], ["conflict"], ["refused", "conflict", "lost"], ["lost", "refused"]], ids=",".join
)
def test_a_writer_whose_answers_fail_is_told_that_it_has_created_the_name(fates: list[str], memory: Memory) -> None:
    files = files_on(memory, Failing(memory, *fates))

    assert files.create(f"{FOLDER}/file", b"data")
    assert files_on(memory).read(f"{FOLDER}/file") == b"data"


@pytest.mark.parametrize("fates", [["lost"], ["refused"], ["conflict"]], ids=",".join)
def test_a_writer_whose_answers_fail_is_not_told_so_for_the_same_content_of_another(
    fates: list[str], memory: Memory
) -> None:
    files_on(memory).create(f"{FOLDER}/file", b"data")

    assert not files_on(memory, Failing(memory, *fates)).create(f"{FOLDER}/file", b"data")


def test_a_store_that_never_answers_is_an_error_that_says_what_is_not_known(memory: Memory) -> None:
    files = files_on(memory, Failing(memory, *["refused"] * 100))

    with pytest.raises(OSError, match="whether it was made is not known"):
        files.create(f"{FOLDER}/file", b"data")


def test_conflicts_without_end_are_an_error(memory: Memory) -> None:
    with pytest.raises(OSError, match="in the way each time"):
        files_on(memory, Failing(memory, *["conflict"] * 100)).create(f"{FOLDER}/file", b"data")


def test_rename_moves_an_object_with_its_identity(files: ObjectFiles, memory: Memory) -> None:
    files.create(f"{FOLDER}/old", b"data")
    identity = memory.objects["folder/old"].identity

    files.rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert memory.objects == {"folder/new": Stored(b"data", identity)}


def test_rename_takes_no_name_that_is_taken(files: ObjectFiles) -> None:
    files.create(f"{FOLDER}/old", b"data")
    files.create(f"{FOLDER}/new", b"data")

    with pytest.raises(FileExistsError):
        files.rename(f"{FOLDER}/old", f"{FOLDER}/new")
    assert files.names(FOLDER) == ("new", "old")


@pytest.mark.parametrize("there", [False, True])
def test_rename_of_nothing_is_an_error_whether_or_not_the_target_is_there(files: ObjectFiles, there: bool) -> None:
    if there:
        files.create(f"{FOLDER}/new", b"data")

    with pytest.raises(FileNotFoundError):
        files.rename(f"{FOLDER}/old", f"{FOLDER}/new")


def test_rename_to_its_own_name_removes_nothing(files: ObjectFiles) -> None:
    files.create(f"{FOLDER}/file", b"data")

    with pytest.raises(FileExistsError):
        files.rename(f"{FOLDER}/file", f"{FOLDER}/file")
    assert files.read(f"{FOLDER}/file") == b"data"


def test_rename_finishes_what_a_crash_left_half_done(files: ObjectFiles, memory: Memory) -> None:
    files.create(f"{FOLDER}/old", b"data")
    memory.objects["folder/new"] = memory.objects["folder/old"]

    files.rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert files.names(FOLDER) == ("new",)


def test_an_object_of_another_program_gets_an_identity_on_its_way_through_memory(memory: Memory) -> None:
    files = files_on(memory, copies=False)
    theirs = Stored(b"data", "by-others-1", is_ours=False)
    memory.objects |= {"folder/old": theirs, "folder/twin": replace(theirs, identity="by-others-2")}

    files.rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert memory.objects["folder/new"] == Stored(b"data", "by-others-1")
    with pytest.raises(FileExistsError):
        files.rename(f"{FOLDER}/twin", f"{FOLDER}/new")


@pytest.mark.parametrize("etag", [None, "the same"], ids=["by-content", "by-etag"])
@pytest.mark.parametrize(
    "fates", [["lost"], ["lost", "lost"], ["refused", "lost"], ["conflict"], ["done", "lost"]], ids=",".join
)
def test_an_object_of_another_program_that_the_store_has_copied_is_known_by_what_it_holds(
    etag: str | None, fates: list[str], memory: Memory
) -> None:
    memory.objects["folder/old"] = Stored(b"data", "by-others-1", is_ours=False, etag=etag)

    files_on(memory, Failing(memory, *fates)).rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert [(key, one.data) for key, one in memory.objects.items()] == [("folder/new", b"data")]


def test_a_copy_of_another_programs_object_that_a_crash_left_is_finished(memory: Memory) -> None:
    memory.objects["folder/old"] = Stored(b"data", "by-others-1", is_ours=False)
    memory.objects["folder/new"] = Stored(b"data", "by-others-2", is_ours=False)

    files_on(memory).rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert [*memory.objects] == ["folder/new"]


@pytest.mark.parametrize(
    "there",
    [
        Stored(b"datb", "by-others-2", is_ours=False, etag="another"),
        Stored(b"data-", "by-others-2", is_ours=False, etag="the same"),
        Stored(b"data", "of another call", is_ours=True, etag="the same"),
    ],
    ids=["another-content", "another-length", "made-by-epochal"],
)
def test_any_other_object_under_the_name_is_no_copy(there: Stored, memory: Memory) -> None:
    memory.objects["folder/old"] = Stored(b"data", "by-others-1", is_ours=False, etag="the same")
    memory.objects["folder/new"] = there

    with pytest.raises(FileExistsError):
        files_on(memory).rename(f"{FOLDER}/old", f"{FOLDER}/new")
    assert memory.objects["folder/new"] == there
    assert "folder/old" in memory.objects


def test_a_large_object_is_compared_to_its_end(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.sinks.storage.objects.files.COMPARED", 3)
    memory.objects["folder/old"] = Stored(b"0123456789", "1", is_ours=False)
    memory.objects["folder/new"] = Stored(b"012345678x", "2", is_ours=False)

    with pytest.raises(FileExistsError):
        files_on(memory).rename(f"{FOLDER}/old", f"{FOLDER}/new")
    memory.objects["folder/new"] = Stored(b"0123456789", "2", is_ours=False)
    files_on(memory).rename(f"{FOLDER}/old", f"{FOLDER}/new")
    assert [*memory.objects] == ["folder/new"]


def test_what_no_store_copies_and_memory_does_not_hold_is_an_error(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.sinks.storage.objects.files.FEW_IN_MEMORY", 2)
    monkeypatch.setattr("epochal.sinks.storage.objects.files.MOST_IN_MEMORY", 4)
    memory.objects |= {"folder/few": Stored(b"1234", "1"), "folder/many": Stored(b"12345", "2")}

    files_on(memory, copies=False).rename(f"{FOLDER}/few", f"{FOLDER}/new")
    with pytest.raises(OSError, match="many"):
        files_on(memory, copies=False).rename(f"{FOLDER}/many", f"{FOLDER}/newer")
    assert sorted(memory.objects) == ["folder/many", "folder/new"]


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(
    "fates",
    [["lost"], ["refused"], ["conflict"], ["done", "lost"], ["done", "refused"], ["lost", "lost"]],
    ids=",".join,
)
def test_rename_whose_answers_fail_moves_the_object(fates: list[str], copies: bool, memory: Memory) -> None:
    files_on(memory).create(f"{FOLDER}/old", b"data")

    files_on(memory, Failing(memory, *fates), copies=copies).rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert files_on(memory).names(FOLDER) == ("new",)


def test_rename_removes_no_object_that_got_the_old_name_since(memory: Memory) -> None:
    newer = Stored(b"newer", "another")

    class Replaced(Failing):
        def remove(self, key: str) -> None:
            MemoryClient.remove(self, key)
            memory.objects[key] = newer  # another process uses the name, and our answer is lost
            raise Away("lost")

    files_on(memory).create(f"{FOLDER}/old", b"data")
    files_on(memory, Replaced(memory)).rename(f"{FOLDER}/old", f"{FOLDER}/new")

    assert memory.objects["folder/old"] == newer


@pytest.mark.parametrize("seed", range(20))
def test_of_concurrent_creators_exactly_one_is_told_so_whatever_fails(seed: int, memory: Memory) -> None:
    clients = clients_of(memory, seed, 0.4)

    for number in range(100):
        path = f"{FOLDER}/{number}"
        calls = [partial(files_on(memory, client).create, path, b"%d" % who) for who, client in enumerate(clients)]
        told = in_threads(calls)

        assert sorted(told, key=str) == [False] * (RACERS - 1) + [True]
        assert int(memory.objects[f"folder/{number}"].data) == told.index(True)
    carry_out_what_is_late(memory)
    assert len(memory.objects) == 100
    assert sum(client.faults for client in clients) > 100


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_of_renames_to_one_name_exactly_one_is_done_whatever_fails(seed: int, copies: bool, memory: Memory) -> None:
    clients = clients_of(memory, seed, 0.4)

    for number in range(50):
        for who in range(RACERS):
            memory.objects[f"{number}-{who}"] = Stored(b"same", f"{seed}-{number}-{who}")
        calls = [
            partial(files_on(memory, client, copies=copies).rename, f"{URL}/{number}-{who}", f"{FOLDER}/{number}")
            for who, client in enumerate(clients)
        ]
        told = in_threads(calls)
        carry_out_what_is_late(memory)

        assert told.count(None) == 1
        assert sum(isinstance(answer, FileExistsError) for answer in told) == RACERS - 1
        winner = told.index(None)
        assert memory.objects[f"folder/{number}"].identity == f"{seed}-{number}-{winner}"
        assert {key for key in memory.objects if key.startswith(f"{number}-")} == {
            f"{number}-{who}" for who in range(RACERS) if who != winner
        }


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_one_object_renamed_by_several_is_there_once_whatever_fails(seed: int, copies: bool, memory: Memory) -> None:
    clients = clients_of(memory, seed, 0.4)

    for number in range(50):
        memory.objects[f"{number}"] = Stored(b"data", f"{seed}-{number}")
        calls = [
            partial(files_on(memory, client, copies=copies).rename, f"{URL}/{number}", f"{FOLDER}/{number}")
            for client in clients
        ]
        told = in_threads(calls)
        carry_out_what_is_late(memory)

        assert None in told
        assert all(answer is None or isinstance(answer, FileNotFoundError | FileExistsError) for answer in told)
        assert memory.objects[f"folder/{number}"].identity == f"{seed}-{number}"
        assert f"{number}" not in memory.objects


class TrustsTheAnswer(ObjectFiles):
    """What `ObjectFiles` would be without looking who has a name."""

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        for _ in QUICK.rounds():
            try:
                self._requests.put_new(self._key(path), data, "x")
            except Taken:
                return False
            except Away:
                continue
            return True
        raise AssertionError


class TrustsTheContent(ObjectFiles):
    """What it would be if the same content were proof enough."""

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        return super().create(path, data) or self.read(path) == data


@pytest.mark.parametrize("wrong", [TrustsTheAnswer, TrustsTheContent])
def test_the_races_see_a_wrong_implementation(wrong: type[ObjectFiles], memory: Memory) -> None:
    clients = clients_of(memory, 1, 0.4)
    counts = set()
    for number in range(50):
        files: list[Files] = [wrong(URL, client, lambda: True, patience=QUICK) for client in clients]
        calls = [partial(one.create, f"{FOLDER}/{number}", b"same") for one in files]
        counts.add(in_threads(calls).count(True))

    assert counts != {1}


def carry_out_what_is_late(memory: Memory) -> None:
    while memory.late:
        memory.late.pop()()


def test_listings_are_sorted_and_know_folders(files: ObjectFiles) -> None:
    for name in ("b", "a", "c/d", "c/e/f"):
        files.create(f"{FOLDER}/{name}", name.encode())
    files.create(f"{URL}/folder-beside/file", b"")

    assert files.list(FOLDER) == [Entry("a", 1, False), Entry("b", 1, False), Entry("c", 0, True)]
    assert files.names(f"{FOLDER}/") == ("a", "b", "c")
    assert [entry.name for entry in files.walk(FOLDER)] == ["a", "b", "c/d", "c/e/f"]
    assert files.names(URL) == ("folder", "folder-beside")


def test_markers_that_other_programs_make_of_folders_are_not_listed(files: ObjectFiles, memory: Memory) -> None:
    memory.objects |= {
        "folder/": Stored(b"", "1"),
        "folder/below/": Stored(b"", "2"),
        "folder/below/file": Stored(b"", "3"),
    }

    assert files.names(FOLDER) == ("below",)
    assert files.names(f"{FOLDER}/below") == ("file",)
    assert [entry.name for entry in files.walk(FOLDER)] == ["below/file"]


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_markers_of_folders_are_removed_with_the_folder(share: float, memory: Memory) -> None:
    names = ["folder/", "folder/a/", "folder/a/b/", "folder/a/file", "folder-beside/"]
    memory.objects |= {name: Stored(b"", name) for name in names}

    files_on(memory, MemoryClient(memory, seed=1, share=share)).delete(FOLDER)

    assert [*memory.objects] == ["folder-beside/"]


def test_a_marker_that_cannot_be_removed_ends_nothing(memory: Memory) -> None:
    class Google(MemoryClient):
        def remove_marker(self, key: str) -> None:
            pass

    memory.objects["folder/"] = Stored(b"", "1")

    files_on(memory, Google(memory)).delete(FOLDER)  # ends


def test_what_is_not_there_is_empty_and_has_no_length(files: ObjectFiles) -> None:
    assert files.names(FOLDER) == ()
    assert files.list(FOLDER) == []
    assert list(files.walk(FOLDER)) == []
    assert files.length(FOLDER) is None
    assert files.modified(FOLDER) is None
    with pytest.raises(FileNotFoundError):
        files.read(FOLDER)


def test_delete_removes_an_object_a_folder_or_nothing(files: ObjectFiles, memory: Memory) -> None:
    for name in ("file", "folder/a", "folder/b/c", "folder-beside/d"):
        files.create(f"{URL}/{name}", b"")

    for name in ("file", "folder", "nothing"):
        files.delete(f"{URL}/{name}")

    assert [*memory.objects] == ["folder-beside/d"]


def test_a_folder_can_be_deleted_by_several_at_once_whatever_fails(memory: Memory) -> None:
    for number in range(10):
        for name in range(20):
            memory.objects[f"folder/{name}"] = Stored(b"", f"{number}-{name}")
        clients = clients_of(memory, number, 0.2)

        assert in_threads([partial(files_on(memory, client).delete, FOLDER) for client in clients]) == [None] * RACERS
        assert memory.objects == {}


def test_folders_need_not_be_made_and_sync_does_nothing(files: ObjectFiles, memory: Memory) -> None:
    files.make_folder(FOLDER)
    files.sync(FOLDER)

    assert memory.objects == {}
    assert sweep(files, FOLDER) == []


def test_both_spellings_of_a_bucket_are_one_and_another_bucket_is_refused(files: ObjectFiles) -> None:
    files.create("s3a://bucket/a", b"1")

    assert files.read("s3://bucket/a") == b"1"
    with pytest.raises(ValueError, match="s3://other is not s3://bucket"):
        files.read("s3://other/a")


def test_nothing_is_written_before_the_store_is_proven(memory: Memory) -> None:
    class Unproven(Exception):
        pass

    def check() -> bool:
        assert not memory.objects
        raise Unproven

    files = ObjectFiles(URL, MemoryClient(memory), check)

    assert files.names(FOLDER) == ()  # reading asks for no proof
    with pytest.raises(Unproven):
        files.create(f"{FOLDER}/file", b"")
    with pytest.raises(Unproven):
        files.rename(f"{FOLDER}/old", f"{FOLDER}/new")
    assert not memory.objects


def test_no_error_quotes_what_obstore_says() -> None:
    exceptions = pytest.importorskip("obstore.exceptions")
    said = "Error performing PUT https://host/x?sig=s3cr3t - status code: 503 x: <Error><Code>SlowDown</Code>s3cr3t"

    for kind in ("GenericError", "PermissionDeniedError", "UnauthenticatedError", "AlreadyExistsError", "JoinError"):
        meant = fault_of("s3://bucket/a", getattr(exceptions, kind)(said))
        assert "s3cr3t" not in f"{meant!r} {meant}"
        assert not isinstance(meant, exceptions.BaseError)
    assert "s3cr3t" not in str(fault_of("s3://bucket/a", FileNotFoundError(said)))
    assert "s3cr3t" not in str(fault_of("s3://bucket/a", ValueError(said)))


def test_the_signed_address_of_a_marker_is_in_no_error() -> None:
    pytest.importorskip("obstore")
    options = {"endpoint": "http://127.0.0.1:9", "secret_access_key": "SECRET", "access_key_id": "KEY"}

    with pytest.raises(Away) as told:
        clients_for("s3://bucket", options).make().remove_marker("folder/a")

    assert str(told.value) == "s3://bucket/folder/a/: the store did not answer"
    assert told.value.__cause__ is None
    assert told.value.__context__ is None


@pytest.mark.parametrize(("status", "kind"), [(None, Away), (503, Away), (403, PermissionError), (400, OSError)])
def test_what_a_status_means_that_no_request_should_be_answered_with(status: int | None, kind: type[OSError]) -> None:
    assert type(answered("s3://bucket/a", status)) is kind


@pytest.mark.parametrize("kind", ["NotSupportedError", "InvalidPathError"])
def test_what_a_store_does_not_know_is_not_tried_again(kind: str) -> None:
    exceptions = pytest.importorskip("obstore.exceptions")
    meant = fault_of("s3://bucket/a", getattr(exceptions, kind)("no"))

    assert isinstance(meant, OSError)
    assert not isinstance(meant, Away)


@pytest.mark.parametrize("creates", [True, False])
def test_a_machine_without_a_role_does_not_make_an_object_look_absent(creates: bool) -> None:
    exceptions = pytest.importorskip("obstore.exceptions")
    said = "Error performing GET http://169.254.169.254/latest/meta-data - status code: 404 Not Found: "
    meant = fault_of("s3://bucket/a", exceptions.GenericError(said), creates=creates)

    assert isinstance(meant, OSError)
    assert not isinstance(meant, FileNotFoundError)
    assert "credentials" in str(meant)
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment" in str(meant)


def test_a_conflict_is_a_taken_name_only_for_what_creates() -> None:
    exceptions = pytest.importorskip("obstore.exceptions")
    conflict = exceptions.AlreadyExistsError("Server returned non-2xx status code: 409 Conflict: ")

    assert isinstance(fault_of("s3://bucket/a", conflict), Taken)
    assert isinstance(fault_of("s3://bucket/a", conflict, creates=False), Away)


@pytest.mark.parametrize(
    ("status", "again"),
    [(500, True), (503, True), (429, True), (409, True), (408, True), (400, False), (501, False), (None, True)],
)
def test_what_is_worth_another_try(status: int | None, again: bool) -> None:
    exceptions = pytest.importorskip("obstore.exceptions")
    said = "error sending request" if status is None else f"Server returned non-2xx status code: {status} x: "

    assert isinstance(fault_of("s3://bucket/a", exceptions.GenericError(said)), Away) is again
