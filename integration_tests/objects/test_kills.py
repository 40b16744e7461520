"""Drivers with their journal on an object store, killed at every request and failpoint, also while the store fails.

Without Spark: a stand-in writes the checkpoint in Spark's order. What is judged is read from the bare files.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.testing.servers.store_server import StoreServer
from epochal.testing.store_proxy import Faults, StoreProxy
from epochal.txn.failpoints import PROTOCOL, names
from epochal.txn.files import Files, LocalFiles
from integration_tests.objects.forks import DONE, KILLED, OVERTAKEN
from integration_tests.objects.lives import Life, Lives, rows_of

FAULTS = Faults(lost=0.08, failed=0.04, refused=0.08, slow=0.05, pause=0.01)
PUBLISHED = re.compile(r"(\d{12})\.\d{6}\..+")
MEANT_TO_STAY = re.compile(
    r"checkpoint/(metadata|(offsets|commits)/\d+)"
    r"|checkpoint/epochal/(g\d{6}|e\d{12}\.(g\d{6}|decided|done)|s\d{12})\.json"
    r"|checkpoint/epochal-cut/\d{12}\.json"
    r"|(left|right)/(\d{12}\.\d{6}\.[^/]+|_lineages/claim-\d+\.json)"
)
UNREACHED = ("roll", "rolled", "roll-seal", "segment", "segment-merge", "state", "snapshot", "purge")
POINTS = [
    name for name in (*names(PROTOCOL), *names("directory")) if name.partition("-")[2] not in UNREACHED
]  # that a short stream without rolling meets

long = [pytest.mark.matrix, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as started:
        yield started


@pytest.fixture(params=["journal", "everything"])
def life(any_store: StoreServer, folder: str, tmp_path: Path, request: pytest.FixtureRequest) -> Life:
    local = str(tmp_path) if request.param == "journal" else ""
    return Life(bucket=any_store.url, place=folder, local=local, options=any_store.options)


def case_of(life: Life, number: object) -> Life:
    local = f"{life.local}/{number}" if life.local else ""
    return replace(life, place=f"{life.place}/{number}", local=local)


def files_of(life: Life) -> tuple[Files, Files]:
    """The files of the journal, and those of checkpoint and targets."""
    remote = life.files()
    return remote, LocalFiles() if life.local else remote


def frozen(life: Life) -> list[str]:
    """What is wrong with a state that a crash has left."""
    _, files = files_of(life)
    faults = []
    for sink in life.sinks:
        shown = [name for name in files.names(life.target(sink)) if PUBLISHED.fullmatch(name)]
        epochs = [int(name[:12]) for name in shown]
        committed = {int(name) for name in files.names(f"{life.checkpoint}/commits") if name.isdecimal()}
        if epochs != list(range(len(epochs))):
            faults.append(f"{sink} shows epochs {epochs}")
        if not life.eager and not set(epochs) <= committed:
            faults.append(f"{sink} shows epochs {epochs}, and Spark has committed {sorted(committed)}")
        for name in shown:
            lines = files.read(f"{life.target(sink)}/{name}").decode().splitlines()[1:]
            if [json.loads(line) for line in lines] != rows_of(int(name[:12])):
                faults.append(f"{sink}/{name} holds {lines}")
    return faults


def finished(life: Life) -> list[str]:
    """What is wrong with a state that a driver has run to its end."""
    remote, files = files_of(life)
    faults = frozen(life)
    for sink in life.sinks:
        epochs = [int(name[:12]) for name in files.names(life.target(sink)) if PUBLISHED.fullmatch(name)]
        if epochs != list(range(life.epochs)):
            faults.append(f"not exactly once: {sink} shows epochs {epochs} of {life.epochs}")
    journal = remote.names(life.journal)
    wanted = [f"e{epoch:012d}.{word}.json" for epoch in range(life.epochs) for word in ("decided", "done")]
    faults += [f"the journal lacks {name}" for name in wanted if name not in journal]
    there = {entry.name for entry in remote.walk(life.place)}
    if life.local:
        there |= {entry.name for entry in files.walk(life.local) if ".epochal-tmp-" not in entry.name}
    return faults + [f"left over: {name}" for name in sorted(there) if not MEANT_TO_STAY.fullmatch(name)]


def killed_and_finished(lives: Lives, *killed: Life) -> list[str]:
    """What is wrong after drivers were killed one after the other, and one more has run to its end."""
    for life in killed:
        ((ending, said),) = lives.run(life)
        if ending not in (KILLED, DONE):
            return [f"{life} ended with {ending}: {said}"]
        if faults := frozen(life):
            return [f"{life}: {fault}" for fault in faults]
    last = replace(killed[-1], write=0, failpoint="")
    ((ending, said),) = lives.run(last)
    return [f"the last driver ended with {ending}: {said}"] if ending != DONE else finished(last)


@pytest.mark.parametrize("every", [pytest.param(13, id="sample"), pytest.param(1, id="whole", marks=long)])
def test_a_kill_at_any_request_that_writes_leaves_every_epoch_exactly_once(
    every: int, life: Life, lives: Lives
) -> None:
    ((ending, writes),) = lives.run(case_of(life, "counted"))
    assert ending == DONE, writes
    assert finished(case_of(life, "counted")) == []
    points = [(write, side) for write in range(1, int(writes) + 1) for side in ("before", "after")]
    kills = points[random.Random(every).randrange(every) :: every]

    faults = []
    for write, side in kills:
        case = replace(case_of(life, f"{write}-{side}"), write=write, side=side)
        again = replace(case, write=1 + write % 5, side="after")  # and once more in the recovery
        faults += killed_and_finished(lives, case, again)
    print(f"\n{len(kills)} of {len(points)} kills at requests, each with another in the recovery")
    assert faults == []


@pytest.mark.parametrize("every", [pytest.param(11, id="sample"), pytest.param(1, id="whole", marks=long)])
@pytest.mark.parametrize("eager", [False, True], ids=["checkpoint", "eager"])
def test_a_kill_at_any_failpoint_while_the_store_fails_leaves_every_epoch_exactly_once(
    every: int, eager: bool, life: Life, lives: Lives, any_store: StoreServer
) -> None:
    life = replace(life, eager=eager, sinks=("left", "right"))
    points = [(name, hit) for name in POINTS for hit in (1, 2)][int(eager) :: every]
    faults = []
    with StoreProxy(any_store.endpoint, FAULTS, seed=every) as proxy:
        for name, hit in points:
            case = replace(case_of(life, f"{name}-{hit}"), failpoint=name, hit=hit)
            faults += killed_and_finished(lives, replace(case, options=any_store.options_at(proxy.endpoint)))
    print(f"\n{len(points)} kills, {proxy.requests.total()} requests, {proxy.injected.total()} faults of the store")
    assert faults == []


@pytest.mark.parametrize("cases", [pytest.param(2, id="sample"), pytest.param(60, id="long", marks=long)])
def test_of_two_drivers_that_begin_together_nothing_is_lost_or_doubled(
    cases: int, life: Life, lives: Lives, any_store: StoreServer
) -> None:
    endings = []
    faults = []
    with StoreProxy(any_store.endpoint, FAULTS, seed=cases) as proxy:
        for number in range(cases):
            case = replace(case_of(life, number), options=any_store.options_at(proxy.endpoint))
            ended = lives.run(case, case)
            endings += [code for code, _ in ended]
            faults += [said for code, said in ended if code not in (DONE, OVERTAKEN)]
            faults += frozen(case) or killed_and_finished(lives, case)
    print(f"\n{cases} pairs, {endings.count(OVERTAKEN)} drivers were overtaken")
    assert faults == []
