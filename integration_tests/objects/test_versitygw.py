"""versitygw, a store that answers requests side by side: what it enforces, and that it is one to kill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from epochal.sinks.storage.objects import open_files, probe
from epochal.sinks.storage.objects.clients import clients_for
from epochal.testing import servers
from epochal.testing.processes import in_threads
from epochal.testing.servers import S3Store
from integration_tests.objects.conftest import QUICK
from integration_tests.objects.stores import skip_without_versitygw

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RACERS = 8
HEADER, BY_PARTS = "header: If-None-Match: *", "multipart"
sized = pytest.mark.parametrize("races", [5, pytest.param(200, marks=pytest.mark.matrix)])


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    skip_without_versitygw(may_build=False)
    with servers.s3(server="versitygw") as started:
        yield started


def clients(store: S3Store, copies: str = HEADER) -> list[ObjectStore]:
    options: Any = {**store.options, "conditional_put": "etag", "copy_if_not_exists": copies}
    once: Any = {"max_retries": 0}
    return [
        from_url(store.url, config=options, client_options={"allow_http": True}, retry_config=once)
        for _ in range(RACERS)
    ]


def winners(told: Sequence[object]) -> int:
    """How many were told that they had made the object; the others must have been told that it is there."""
    lost = [answer for answer in told if isinstance(answer, BaseException)]
    assert all(isinstance(answer, AlreadyExistsError) for answer in lost), lost
    return len(told) - len(lost)


@sized
def test_of_uploads_in_parts_that_end_at_one_time_one_wins(races: int, store: S3Store) -> None:
    racers = clients(store, BY_PARTS)
    for who, racer in enumerate(racers):
        obstore.put(racer, f"source-{who}", b"%d" % who)
    for number in range(races):
        key = f"parts-{races}/{number}"
        told = in_threads(
            [partial(obstore.copy, racer, f"source-{who}", key, overwrite=False) for who, racer in enumerate(racers)]
        )

        assert winners(told) == 1


def test_copies_are_not_asked_for_because_they_overwrite(store: S3Store) -> None:
    racers = clients(store)
    obstore.put(racers[0], "new", b"new")
    obstore.put(racers[0], "taken", b"old")
    obstore.copy(racers[0], "new", "taken", overwrite=False)

    assert bytes(obstore.get(racers[0], "taken").bytes()) == b"new"
    assert probe.is_proven(clients_for(store.url, store.options), "probes", QUICK) is False


def test_after_a_kill_it_has_all_that_it_has_acknowledged(tmp_path: Path) -> None:
    skip_without_versitygw(may_build=False)
    with servers.s3(server="versitygw", folder=tmp_path / "kept") as store:
        files, path = open_files(f"{store.url}/journal", store.options, patience=QUICK)
        for number in range(20):
            assert files.create(f"{path}/{number}", b"%d" % number)
        store.nodes[0].kill()
        store.nodes[0].start()

        assert [files.read(f"{path}/{number}") for number in range(20)] == [b"%d" % number for number in range(20)]
        assert not files.create(f"{path}/0", b"another")
        port = store.endpoint
    with servers.s3(server="versitygw", folder=tmp_path / "kept") as again:
        files, path = open_files(f"{again.url}/journal", again.options, patience=QUICK)

        assert again.endpoint == port
        assert len(files.names(path)) == 20


def test_its_secret_is_random_needed_and_in_no_command_line(store: S3Store) -> None:
    secret = store.options["secret_access_key"]
    options: Any = {**store.options, "secret_access_key": "another"}
    stranger = from_url(store.url, config=options, client_options={"allow_http": True})

    assert secret not in Path(f"/proc/{store.nodes[0].pid}/cmdline").read_text()
    with pytest.raises((BaseError, PermissionError)):
        obstore.put(stranger, "key", b"data")
