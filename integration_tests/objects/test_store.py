"""`ObjectFiles` by obstore, on a server that speaks S3's protocol."""

from __future__ import annotations

import base64
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.store import from_url

from epochal.sinks.storage.objects import ObjectFiles, ObjectSinkFiles, open_files, open_target
from epochal.sinks.storage.objects.clients import clients_for
from epochal.testing import servers
from epochal.testing.processes import in_processes, in_threads
from epochal.testing.servers.store_server import StoreServer
from epochal.testing.servers.waiting import wait_until
from epochal.testing.store_proxy import StoreProxy
from epochal.txn.errors import OptionError, Refused
from epochal.txn.files import Entry
from integration_tests.objects.conftest import QUICK
from integration_tests.objects.stores import skip_if_signatures_count

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SECRET = "wJalrXUtnFEMI-SECRET"
KEY = base64.b64encode(SECRET.encode()).decode()
RACERS = 6


def bare(any_store: StoreServer, folder: str) -> ObjectStore:
    """A client that is not epochal's."""
    options: Any = any_store.options
    store: ObjectStore = from_url(folder, config=options, client_options={"allow_http": True})
    return store


def test_files_are_created_read_listed_renamed_and_deleted(files: ObjectFiles, folder: str) -> None:
    assert files.create(f"{folder}/a", b"first")
    assert not files.create(f"{folder}/a", b"second")
    assert files.create(f"{folder}/b/c", b"")
    files.rename(f"{folder}/b/c", f"{folder}/b/d")
    with pytest.raises(FileExistsError):
        files.rename(f"{folder}/b/d", f"{folder}/a")
    with pytest.raises(FileNotFoundError, match="no such object"):
        files.read(f"{folder}/b/c")

    assert files.read(f"{folder}/a") == b"first"
    assert files.list(folder) == [Entry("a", 5, False), Entry("b", 0, True)]
    assert list(files.walk(folder)) == [Entry("a", 5, False), Entry("b/d", 0, False)]
    assert (files.length(f"{folder}/a"), files.length(folder)) == (5, None)
    assert (files.modified(f"{folder}/a") or 0) > 1_000_000_000
    files.delete(folder)
    assert list(files.walk(folder)) == []


@pytest.mark.parametrize("copies", [False, True], ids=["through-memory", "within-the-store"])
def test_objects_of_many_parts_are_joined_read_and_renamed(copies: bool, any_store: StoreServer, folder: str) -> None:
    if copies:
        skip_if_signatures_count(any_store)
    if any_store.scheme == "gs":
        pytest.skip("fake-gcs-server has no uploads in parts")
    pieces = [bytes([number]) * (7 << 20) for number in range(3)]
    with StoreProxy(any_store.endpoint, conditional_copies=copies) as proxy:
        client = clients_for(any_store.url, any_store.options_at(proxy.endpoint)).make()
        files = ObjectSinkFiles(any_store.url, client, lambda: copies, patience=QUICK)
        files.create_all([(f"{folder}/{number}", piece) for number, piece in enumerate(pieces)])
        files.join_copies(f"{folder}/whole", [f"{folder}/{number}" for number in range(3)], skip=1)
        files.move_folder(folder, f"{folder}-moved")
        asked = proxy.requests["POST"], bool(proxy.requests["COPY"])

        whole = pieces[0] + pieces[1][1:] + pieces[2][1:]
        assert files.names(folder) == ()
        assert files.names(f"{folder}-moved") == ("0", "1", "2", "whole")
        assert b"".join(files.chunks(f"{folder}-moved/whole")) == whole
        assert files.head(f"{folder}-moved/whole", 10) == whole[:10]
        files.delete(f"{folder}-moved")
    begun = 2 if any_store.scheme == "s3" else 0  # Azure has no request for either
    assert asked == (begun, copies), "one upload in parts is begun and completed"


def test_a_source_that_vanishes_while_objects_are_joined_is_named(any_store: StoreServer, folder: str) -> None:
    files, _ = open_target(folder, any_store.options, patience=QUICK)
    files.create(f"{folder}/0", bytes(9 << 20))

    with pytest.raises(FileNotFoundError):
        files.join_copies(f"{folder}/whole", [f"{folder}/0", f"{folder}/none"])
    assert files.length(f"{folder}/whole") is None


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "a%20b", "a~2", "ä", "day=1", "a:b", "a\\b", "a*b", "a'\"b"])
def test_a_name_is_read_back_as_it_was_written(
    name: str, any_store: StoreServer, files: ObjectFiles, folder: str
) -> None:
    if any_store.scheme == "az" and "\\" in name:
        with pytest.raises(OSError, match="cannot have this name"):
            files.create(f"{folder}/{name}", b"")
        return
    assert files.create(f"{folder}/{name}/{name}", name.encode())
    files.rename(f"{folder}/{name}/{name}", f"{folder}/{name}/2")

    assert files.read(f"{folder}/{name}/2") == name.encode()
    assert files.names(folder) == (name,)
    files.delete(f"{folder}/{name}")
    assert files.names(folder) == ()


@pytest.mark.parametrize("name", ["../a", "./a"])
def test_a_name_that_leads_elsewhere_is_an_error(name: str, files: ObjectFiles, folder: str) -> None:
    with pytest.raises(OSError, match="cannot have this name"):
        files.create(f"{folder}/{name}", b"")


def test_listings_and_removals_go_on_after_a_thousand_names(
    any_store: StoreServer, files: ObjectFiles, folder: str
) -> None:
    store = bare(any_store, folder)
    for number in range(1_005):
        obstore.put(store, f"{number:04d}", b"")

    assert len(files.names(folder)) == 1_005
    files.delete(folder)
    assert files.names(folder) == ()


def test_a_removal_of_many_passes_over_those_that_are_not_there(any_store: StoreServer, folder: str) -> None:
    client = clients_for(any_store.url, any_store.options).make()
    place = folder.removeprefix(f"{any_store.url}/")
    keys = [f"{place}/{number:03d}" for number in range(600)]  # more than obstore asks for at a time
    for key in keys[-3:]:
        client.put_new(key, b"", "identity")
    client.remove_all(keys)

    assert client.walk(place) == []


def test_an_object_of_another_program_can_be_renamed(any_store: StoreServer, files: ObjectFiles, folder: str) -> None:
    store = bare(any_store, folder)
    obstore.put(store, "theirs", b"data")
    obstore.put(store, "twin", b"data")

    files.rename(f"{folder}/theirs", f"{folder}/taken")
    with pytest.raises(FileExistsError):
        files.rename(f"{folder}/twin", f"{folder}/taken")
    assert files.names(folder) == ("taken", "twin")


def test_create_has_one_winner_among_clients(any_store: StoreServer, folder: str) -> None:
    racers = [open_files(folder, any_store.options, patience=QUICK)[0] for _ in range(RACERS)]
    racers[0].create(f"{folder}/first", b"")  # the probe

    for number in range(20):
        path = f"{folder}/{number}"
        told = in_threads([partial(racer.create, path, b"%d" % who) for who, racer in enumerate(racers)])
        assert told.count(True) == 1
        assert told.count(False) == RACERS - 1
        assert int(racers[0].read(path)) == told.index(True)


def test_a_missing_bucket_is_an_error_and_no_empty_folder(any_store: StoreServer) -> None:
    if any_store.scheme == "gs":
        pytest.skip("fake-gcs-server answers 500 to a question for a bucket that is not there")
    files, path = open_files(f"{any_store.scheme}://there-is-none/a", any_store.options, patience=QUICK)

    with pytest.raises(FileNotFoundError, match="no such bucket"):
        files.names(path)
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        files.create(f"{path}/a", b"")


@pytest.mark.usefixtures("unproven")
def test_a_store_is_probed_before_the_first_write_and_nothing_of_that_stays(
    any_store: StoreServer, folder: str
) -> None:
    with StoreProxy(any_store.endpoint) as proxy:
        files, path = open_files(f"{folder}/journal", any_store.options_at(proxy.endpoint), patience=QUICK)
        assert files.names(path) == ()
        reading = proxy.requests.total()
        assert files.create(f"{path}/a", b"")
        first = proxy.requests.total() - reading
        assert files.create(f"{path}/b", b"")
        second = proxy.requests.total() - reading - first

    assert (reading, second) == (1, 1)
    assert 20 < first < 100
    assert [entry.name for entry in files_of(any_store, folder).walk(folder)] == ["journal/a", "journal/b"]


@pytest.mark.usefixtures("unproven")
def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    any_store: StoreServer, folder: str
) -> None:
    skip_if_signatures_count(any_store)
    with StoreProxy(any_store.endpoint, ignores_conditions=True) as proxy:
        files, path = open_files(f"{folder}/journal", any_store.options_at(proxy.endpoint), patience=QUICK)
        for _ in range(2):
            with pytest.raises(Refused, match="ignores the condition If-None-Match"):
                files.create(f"{path}/a", b"")

    assert list(files_of(any_store, folder).walk(folder)) == []


@pytest.mark.usefixtures("unproven")
def test_a_store_with_conditional_copies_is_asked_for_them(any_store: StoreServer, folder: str) -> None:
    skip_if_signatures_count(any_store)
    with StoreProxy(any_store.endpoint, conditional_copies=True) as proxy:
        files, path = open_files(f"{folder}/journal", any_store.options_at(proxy.endpoint), patience=QUICK)
        files.create(f"{path}/a", b"data")
        files.create(f"{path}/b", b"data")
        before = proxy.requests.copy()
        files.rename(f"{path}/a", f"{path}/c")
        asked = proxy.requests - before
        with pytest.raises(FileExistsError):
            files.rename(f"{path}/b", f"{path}/c")

        removal = "DELETE many" if any_store.scheme == "s3" else "DELETE"
        assert asked == {"HEAD": 1, "COPY": 1, removal: 1}
        assert files.names(path) == ("b", "c")


def files_of(any_store: StoreServer, folder: str) -> ObjectFiles:
    return open_files(folder, any_store.options, patience=QUICK)[0]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://epochal", {"endpoint": "http://127.0.0.1:9", "secret_access_key": SECRET, "access_key_id": SECRET}),
        ("gs://bucket", {"service_account_key": f'{{"private_key": "{SECRET}"}}'}),
        ("abfss://box@account.dfs.core.windows.net", {"account_key": SECRET}),
        (
            "abfss://box@account.dfs.core.windows.net",
            {"sas_token": f"sv=1&sig={SECRET}", "endpoint": "http://127.0.0.1:9"},
        ),
        ("gs://bucket", {"bearer_token": SECRET, "base_url": "http://127.0.0.1:9"}),
        (
            "az://box",
            {"account_name": "account", "account_key": KEY, "endpoint": "http://127.0.0.1:9/account"},
        ),
        (
            "az://box",
            {"account_name": "account", "sas_token": f"sv=1&sig={SECRET}", "endpoint": "http://127.0.0.1:9/account"},
        ),
        ("s3://epochal", {"no_such_option": SECRET}),
    ],
    ids=["s3", "gs", "abfss-key", "abfss-sas", "gs-token", "az-key", "az-sas", "wrong-option"],
)
def test_no_repr_and_no_error_has_a_credential(
    url: str, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    said = [repr(clients_for(url, options))]
    try:
        files, _ = open_files(f"{url}/folder", {**options, "timeout": "1s"}, patience=QUICK)
        said.append(repr(files) + repr(vars(files)))
        files.length(f"{url}/folder/a")
    except (OSError, Refused) as fault:
        said += [repr(fault), str(fault), repr(fault.__cause__)]

    assert len(said) > 1
    assert not [secret for secret in (SECRET, KEY) if secret in "".join(said) + caplog.text]


def test_a_forked_process_is_told_to_start_anew(files: ObjectFiles, folder: str) -> None:
    files.create(f"{folder}/a", b"")

    (told,) = in_processes([partial(files.read, f"{folder}/a")])

    assert isinstance(told, OSError)
    assert "cannot be used in a forked process" in str(told)


def test_the_server_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    code = "from epochal.testing import servers; s = servers.s3(own=True); print(s.nodes[0].pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()

    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 20, lambda: "the server outlived its parent")


def test_options_of_the_server_are_checked() -> None:
    with pytest.raises(OptionError) as told:
        servers.s3(bucket="No", port=70_000, timeout=0)

    assert len(told.value.faults) == 3
