"""Servers that answer requests side by side: of clients that create one name at the same time one wins.

A server that lets two win proves nothing about what is built on it. Its copies are raced for too: what a server does
with their condition is why epochal asks for them, or does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from epochal.sinks.storage.objects import probe
from epochal.sinks.storage.objects.clients import clients_for
from epochal.sinks.storage.objects.requests import IDENTITY
from epochal.testing import servers
from epochal.testing.processes import in_threads
from epochal.testing.servers import azure, google
from epochal.testing.servers.store_server import StoreServer
from integration_tests.objects.conftest import QUICK
from integration_tests.objects.stores import skip_without_azurite, skip_without_fake_gcs, skip_without_versitygw

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RACERS = 8
S3_OPTIONS = {"conditional_put": "etag", "copy_if_not_exists": "header: If-None-Match: *"}
COPIES_KEEP_THE_CONDITION = ("az",)
sized = pytest.mark.parametrize("races", [5, pytest.param(200, marks=pytest.mark.matrix)])


@pytest.fixture(scope="module", params=["versitygw", "azurite", "fake-gcs-server"])
def store(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    match request.param:
        case "versitygw":
            skip_without_versitygw(may_build=False)
            started: StoreServer = servers.s3(server="versitygw")
        case "azurite":
            skip_without_azurite(may_fetch=False)
            started = azure.start()
        case _:
            skip_without_fake_gcs(may_build=False)
            started = google.start()
    with started:
        yield started


@pytest.fixture
def racers(store: StoreServer) -> list[ObjectStore]:
    options: Any = {**store.options, **(S3_OPTIONS if store.scheme == "s3" else {})}
    once: Any = {"max_retries": 0}
    return [
        from_url(store.url, config=options, client_options={"allow_http": True}, retry_config=once)
        for _ in range(RACERS)
    ]


def winners(told: Sequence[object]) -> list[int]:
    """Who was told to have made the object; the others must have been told that it is there."""
    lost = [answer for answer in told if isinstance(answer, BaseException)]
    assert all(isinstance(answer, AlreadyExistsError) for answer in lost), lost
    return [who for who, answer in enumerate(told) if not isinstance(answer, BaseException)]


@sized
def test_of_creators_at_one_time_one_wins_and_it_is_its_object(races: int, racers: list[ObjectStore]) -> None:
    for number in range(races):
        key = f"put-{races}/{number}"
        told = in_threads(
            [
                partial(obstore.put, racer, key, b"%d" % who, mode="create", attributes={IDENTITY: str(who)})
                for who, racer in enumerate(racers)
            ]
        )
        won = winners(told)
        found = obstore.get(racers[0], key)

        assert won == [int(bytes(found.bytes()))]
        assert found.attributes[IDENTITY] == str(won[0])


@sized
def test_of_copies_at_one_time_one_wins_where_their_condition_is_kept(
    races: int, store: StoreServer, racers: list[ObjectStore]
) -> None:
    for who, racer in enumerate(racers):
        obstore.put(racer, f"source-{who}", b"%d" % who)
    for number in range(races):
        key = f"copy-{races}/{number}"
        told = in_threads(
            [partial(obstore.copy, racer, f"source-{who}", key, overwrite=False) for who, racer in enumerate(racers)]
        )

        assert len(winners(told)) == (1 if store.scheme in COPIES_KEEP_THE_CONDITION else RACERS)


def test_none_of_them_is_asked_for_copies_by_epochal(store: StoreServer) -> None:
    assert probe.is_proven(clients_for(store.url, store.options), "probes", QUICK) is False


def test_a_client_with_another_key_is_not_let_in(store: StoreServer) -> None:
    if store.scheme != "az":
        pytest.skip("versitygw has its own test, and fake-gcs-server takes any token")
    options: Any = {**store.options, "account_key": "YW5vdGhlcg=="}
    stranger = from_url(store.url, config=options, client_options={"allow_http": True})

    with pytest.raises((BaseError, PermissionError)):
        obstore.put(stranger, "key", b"data")
