"""Thousands of faults of a real client's requests: nothing is lost, and each winner is told so exactly once.

A proxy loses answers, refuses, answers 500 after the fact, carries requests out late and delays them, by a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from epochal.sinks.storage.objects import ObjectFiles
from epochal.testing.processes import in_threads
from epochal.testing.servers.store_server import StoreServer
from epochal.testing.store_proxy import Faults, StoreProxy
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Staged
from epochal.txn.records import GenerationStarted, Prepared, Seal
from integration_tests.objects.stores import skip_if_signatures_count

RACERS = 4
FAULTS = Faults(lost=0.12, failed=0.05, refused=0.12, late=0.05, slow=0.06, pause=0.01)  # two of five requests

# Names that are raced for: of each kind as many.
sized = pytest.mark.parametrize(
    "names",
    [
        pytest.param(40, id="sample"),
        pytest.param(1500, id="long", marks=[pytest.mark.matrix, pytest.mark.timeout(3600)]),
    ],
)


@contextmanager
def failing(any_store: StoreServer, seed: int, *, copies: bool = False) -> Iterator[StoreProxy]:
    with StoreProxy(any_store.endpoint, FAULTS, seed=seed, conditional_copies=copies) as proxy:
        yield proxy
        proxy.settle()
    print(f"\n{proxy.requests.total()} requests, {proxy.injected.total()} faults: {dict(proxy.injected)}")


@sized
def test_of_concurrent_creators_exactly_one_is_told_so(
    names: int, any_store: StoreServer, behind: Callable[..., ObjectFiles], files: ObjectFiles, folder: str
) -> None:
    with failing(any_store, names) as proxy:
        racers = [behind(proxy.endpoint) for _ in range(RACERS)]
        for number in range(names):
            path = f"{folder}/{number:06d}"
            told = in_threads([partial(racer.create, path, b"%d" % who) for who, racer in enumerate(racers)])
            assert told.count(True) == 1, told
            assert told.count(False) == RACERS - 1, told
            assert int(files.read(path)) == told.index(True)

    assert len(files.names(folder)) == names
    assert proxy.injected.total() > names


@sized
@pytest.mark.parametrize("copies", [False, True], ids=["through-memory", "within-the-store"])
def test_of_renames_to_one_name_exactly_one_is_done(
    names: int,
    copies: bool,
    any_store: StoreServer,
    behind: Callable[..., ObjectFiles],
    files: ObjectFiles,
    folder: str,
) -> None:
    if copies:
        skip_if_signatures_count(any_store)
    with failing(any_store, names, copies=copies) as proxy:
        racers = [behind(proxy.endpoint, copies) for _ in range(RACERS)]
        for number in range(names // 2):
            for who in range(RACERS):
                files.create(f"{folder}/{number:06d}-{who}", b"%d" % who)
            target = f"{folder}/shown/{number:06d}"
            told = in_threads(
                [partial(racer.rename, f"{folder}/{number:06d}-{who}", target) for who, racer in enumerate(racers)]
            )
            assert told.count(None) == 1, told
            assert sum(isinstance(answer, FileExistsError) for answer in told) == RACERS - 1, told
            assert int(files.read(target)) == told.index(None)

    assert bool(proxy.requests["COPY"]) is copies
    assert len(files.names(f"{folder}/shown")) == names // 2
    assert len(files.names(folder)) == 1 + names // 2 * (RACERS - 1), "what did not win is still under its own name"


@sized
def test_of_attempts_and_seals_in_a_journal_the_first_wins_and_both_sides_know_it(
    names: int, any_store: StoreServer, behind: Callable[..., ObjectFiles], files: ObjectFiles, folder: str
) -> None:
    """Two drivers: the older records PREPARED, the newer seals. Whoever was first, both hear the same."""
    with failing(any_store, names) as proxy:
        older, newer = (Journal(behind(proxy.endpoint), f"{folder}/epochal") for _ in range(2))
        assert older.claim(GenerationStarted(1, "a query", 0))
        for epoch in range(names // 2):
            staged = {"left": Staged(Handle(1, {"file": f"{epoch}"}), epoch)}
            record = Prepared(epoch, 1, "offsets", staged, older.now(), 0)
            prepared, sealed = in_threads([partial(older.prepare, record), partial(newer.seal, epoch, 1, by=2)])
            assert {prepared, sealed} == {True, False}
            found = Journal(files, f"{folder}/epochal").attempt(epoch, 1)
            assert isinstance(found, Prepared if prepared else Seal)

    assert len(files.names(f"{folder}/epochal")) == 1 + names // 2
