"""Rolling files published on an object store by drivers that are killed at every request, also while the store fails.

Without Spark: epochs are staged by plain requests. What is judged is read from the bare objects.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import from_url

from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import Faults, StoreProxy
from epochal.txn.failpoints import PROTOCOL, names
from epochal.txn.files import LocalFiles
from integration_tests.objects.forks import DONE, KILLED, OVERTAKEN
from integration_tests.objects.lives import Life, Lives, rows_of
from integration_tests.objects.stores import skip_if_signatures_count

FAULTS = Faults(lost=0.08, failed=0.04, refused=0.08, slow=0.05, pause=0.01)
SHOWN = re.compile(r"bucket=\d/part-(\d{12})-\d{5}-5eed0000\.json")
MEANT_TO_STAY = re.compile(
    r"bucket=\d/part-\d{12}-\d{5}-5eed0000\.json|_SUCCESS-\d{12}-5eed0000"
    r"|_epochal/(lineages/claim-\d{12}\.json|manifest/[^/]+/\d{12}\.json)"
)
# Of the sink's own steps, those that files without a policy take.
POINTS = [
    name
    for name in (*names(PROTOCOL), *names("files"))
    if name.partition("-")[2] in ("write", "rename", "marker", "manifest", "cleanup", "prepared", "decided", "abort")
]

long = [pytest.mark.matrix, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as started:
        yield started


@pytest.fixture(params=[False, True], ids=["through-memory", "within-the-store"])
def copies(s3: S3Store, request: pytest.FixtureRequest) -> bool:
    if request.param:
        skip_if_signatures_count(s3)
    return bool(request.param)


@pytest.fixture
def life(s3: S3Store, folder: str, tmp_path: Path) -> Life:
    return Life(bucket=s3.url, place=folder, local=str(tmp_path), options=s3.options, kind="files")


def case_of(life: Life, number: object, **changes: Any) -> Life:
    return replace(life, place=f"{life.place}/{number}", local=f"{life.local}/{number}", **changes)


def objects_of(life: Life, s3: S3Store) -> dict[str, bytes]:
    """Everything in the target, by a client that is not epochal's."""
    options: Any = s3.options
    store = from_url(life.target("left"), config=options, client_options={"allow_http": True})
    keys = [meta["path"] for page in obstore.list(store) for meta in page]
    return {key: bytes(obstore.get(store, key).bytes()) if SHOWN.fullmatch(key) else b"" for key in keys}


def frozen(life: Life, s3: S3Store) -> list[str]:
    """What is wrong with a state that a crash has left."""
    rows: dict[int, list[Any]] = {}
    for key, data in sorted(objects_of(life, s3).items()):
        if found := SHOWN.fullmatch(key):
            rows.setdefault(int(found[1]), []).append(json.loads(data))
    files = LocalFiles()
    committed = {int(name) for name in files.names(f"{life.checkpoint}/commits") if name.isdecimal()}
    faults = [f"epoch {epoch} is shown, and Spark has not committed it" for epoch in rows if epoch not in committed]
    last = max(rows, default=-1)
    for epoch in range(last + 1):
        wanted = rows_of(epoch)
        shown = sorted(rows.get(epoch, []), key=json.dumps)
        if shown != wanted and (epoch != last or any(row not in wanted for row in shown)):
            faults.append(f"epoch {epoch} of {last} shows {shown}")
    return faults


def finished(life: Life, s3: S3Store) -> list[str]:
    """What is wrong with a state that a driver has run to its end."""
    faults, there = frozen(life, s3), objects_of(life, s3)
    rows = sorted((json.loads(data) for key, data in there.items() if SHOWN.fullmatch(key)), key=json.dumps)
    if rows != [row for epoch in range(life.epochs) for row in rows_of(epoch)]:
        faults.append(f"not exactly once: {rows}")
    markers = [key for key in there if key.startswith("_SUCCESS")]
    if len(markers) != life.epochs:
        faults.append(f"markers {markers} of {life.epochs} epochs")
    return faults + [f"left over: {key}" for key in sorted(there) if not MEANT_TO_STAY.fullmatch(key)]


def killed_and_finished(lives: Lives, s3: S3Store, *killed: Life) -> list[str]:
    """What is wrong after drivers were killed one after the other, and one more has run to its end."""
    for life in killed:
        ((ending, said),) = lives.run(life)
        if ending not in (KILLED, DONE):
            return [f"{life} ended with {ending}: {said}"]
        if faults := frozen(life, s3):
            return [f"{life}: {fault}" for fault in faults]
    last = replace(killed[-1], write=0, failpoint="")
    ((ending, said),) = lives.run(last)
    return [f"{last} ended with {ending}: {said}"] if ending != DONE else finished(last, s3)


@pytest.mark.parametrize("every", [pytest.param(25, id="sample"), pytest.param(1, id="whole", marks=long)])
def test_a_kill_at_any_request_that_writes_shows_every_row_exactly_once(
    every: int, copies: bool, life: Life, lives: Lives, s3: S3Store
) -> None:
    with StoreProxy(s3.endpoint, conditional_copies=copies) as proxy:
        life = replace(life, copies=copies, options={**s3.options, "endpoint": proxy.endpoint})
        ((ending, writes),) = lives.run(case_of(life, "counted"))
        assert ending == DONE, writes
        assert finished(case_of(life, "counted"), s3) == []
        points = [(write, side) for write in range(1, int(writes) + 1) for side in ("before", "after")]
        kills = points[random.Random(every).randrange(every) :: every]

        faults = []
        for write, side in kills:
            case = case_of(life, f"{write}-{side}", write=write, side=side)
            again = replace(case, write=1 + write % 7, side="after")  # and once more in the recovery
            faults += killed_and_finished(lives, s3, case, again)
        copied = proxy.requests["COPY"]
    print(f"\n{len(kills)} of {len(points)} kills at requests, each with another in the recovery")
    assert faults == []
    assert bool(copied) is copies


@pytest.mark.parametrize("every", [pytest.param(10, id="sample"), pytest.param(1, id="whole", marks=long)])
def test_a_kill_at_any_failpoint_while_the_store_fails_shows_every_row_exactly_once(
    every: int, copies: bool, life: Life, lives: Lives, s3: S3Store
) -> None:
    points = [(name, hit) for name in POINTS for hit in (1, 2)][int(copies) :: every]
    faults = []
    with StoreProxy(s3.endpoint, FAULTS, seed=every, conditional_copies=copies) as proxy:
        life = replace(life, copies=copies, options={**s3.options, "endpoint": proxy.endpoint})
        for name, hit in points:
            faults += killed_and_finished(lives, s3, case_of(life, f"{name}-{hit}", failpoint=name, hit=hit))
    print(f"\n{len(points)} kills, {proxy.requests.total()} requests, {proxy.injected.total()} faults of the store")
    assert faults == []


@pytest.mark.parametrize("cases", [pytest.param(2, id="sample"), pytest.param(60, id="long", marks=long)])
def test_two_drivers_that_begin_together_show_every_row_exactly_once(
    cases: int, copies: bool, life: Life, lives: Lives, s3: S3Store
) -> None:
    endings = []
    faults = []
    with StoreProxy(s3.endpoint, FAULTS, seed=cases, conditional_copies=copies) as proxy:
        life = replace(life, copies=copies, options={**s3.options, "endpoint": proxy.endpoint})
        for number in range(cases):
            case = case_of(life, number)
            ended = lives.run(case, case)
            endings += [code for code, _ in ended]
            faults += [said for code, said in ended if code not in (DONE, OVERTAKEN)]
            faults += frozen(case, s3) or killed_and_finished(lives, s3, case)
    print(f"\n{cases} pairs, {endings.count(OVERTAKEN)} drivers were overtaken")
    assert faults == []
