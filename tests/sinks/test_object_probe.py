"""The probe: which stores are refused, which may copy, and that nothing of it stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from epochal.sinks.storage.objects import probe
from epochal.sinks.storage.objects.clients import Clients
from epochal.sinks.storage.objects.patience import Patience
from epochal.sinks.storage.objects.probe import Probe, is_proven
from epochal.txn.errors import Refused
from tests.sinks.object_memory import Memory, MemoryClient, Stored

QUICK = Patience(tries=40, first=0.0, sleep=lambda _: None)


def probe_of(memory: Memory, *, share: float = 0.0, seed: int = 0) -> Probe:
    racers = [MemoryClient(memory, seed=seed * 10 + number, share=share) for number in range(probe.RACERS)]
    return Probe("s3://bucket", racers, "folder-probe", QUICK)


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    while memory.late:
        memory.late.pop()()


@pytest.mark.parametrize("copies", [True, False])
def test_a_store_that_keeps_conditions_is_proven_and_nothing_stays(copies: bool, memory: Memory) -> None:
    memory.copies = copies
    memory.objects["folder/file"] = Stored(b"", "1")

    assert probe_of(memory).run() is copies
    assert [*memory.objects] == ["folder/file"]


@pytest.mark.parametrize("seed", range(20))
def test_faults_change_no_verdict(seed: int, memory: Memory) -> None:
    assert probe_of(memory, share=0.3, seed=seed).run()

    memory.copies = False
    assert not probe_of(memory, share=0.3, seed=seed).run()

    memory.conditional = False
    with pytest.raises(Refused):
        probe_of(memory, share=0.3, seed=seed).run()


def test_a_store_that_overwrites_is_refused_with_what_to_do(memory: Memory) -> None:
    memory.conditional = False

    with pytest.raises(Refused, match=r"ignores the condition If-None-Match.*Use a store that enforces"):
        probe_of(memory).run()
    assert memory.objects == {}


def test_a_store_that_checks_and_writes_in_two_steps_is_refused(memory: Memory) -> None:
    gate = threading.Barrier(probe.RACERS)

    class TwoSteps(MemoryClient):
        def put_new(self, key: str, data: bytes, identity: str) -> None:
            is_free = key not in self.memory.objects
            gate.wait(10)
            if is_free:
                self.memory.objects[key] = Stored(data, identity)

    racers = [TwoSteps(memory) for _ in range(probe.RACERS)]

    with pytest.raises(Refused, match="were told that they had"):
        Probe("s3://bucket", racers, "folder-probe", QUICK).run()


def test_a_store_that_loses_metadata_is_refused(memory: Memory) -> None:
    memory.keeps_metadata = False

    with pytest.raises(Refused, match="does not keep the metadata"):
        probe_of(memory).run()


class Folders(MemoryClient):
    """Of an account with a hierarchical namespace: a folder is an object, which can be removed when it is empty."""

    def put_new(self, key: str, data: bytes, identity: str) -> None:
        super().put_new(key, data, identity)
        parts = key.split("/")
        for end in range(1, len(parts)):
            self.memory.objects.setdefault("/".join(parts[:end]), Stored(b"", "by-others", False))

    def remove(self, key: str) -> None:
        if any(other.startswith(f"{key}/") for other in self.memory.objects):
            raise OSError("the store answered 409 DirectoryIsNotEmpty")
        super().remove(key)


def test_an_azure_account_with_folders_of_its_own_is_refused(memory: Memory) -> None:
    racers = [Folders(memory) for _ in range(probe.RACERS)]

    with pytest.raises(Refused, match=r"hierarchical namespace.*Name it by abfss://"):
        Probe("az://box", racers, "folder-probe", QUICK, is_azure=True).run()
    assert [*memory.objects] == ["folder-probe"], "what is empty and was there before is not the probe's to remove"


def test_azure_is_never_asked_for_copies(memory: Memory) -> None:
    asked: list[str] = []

    class Noting(MemoryClient):
        def copy_new(self, source: str, key: str) -> None:
            asked.append(key)

    racers = [Noting(memory) for _ in range(probe.RACERS)]

    assert not Probe("az://box", racers, "folder-probe", QUICK, is_azure=True).run()
    assert asked == []
    assert memory.objects == {}


@pytest.mark.parametrize("fault", [PermissionError("no"), FileNotFoundError("no bucket")])
def test_a_wrong_key_or_bucket_is_no_verdict_on_the_store(fault: OSError, memory: Memory) -> None:
    class Failing(MemoryClient):
        def put_new(self, key: str, data: bytes, identity: str) -> None:
            raise fault

    with pytest.raises(type(fault)):
        Probe("s3://bucket", [Failing(memory)] * probe.RACERS, "folder-probe", QUICK).run()


def test_a_store_that_knows_no_such_condition_is_refused(memory: Memory) -> None:
    class Failing(MemoryClient):
        def put_new(self, key: str, data: bytes, identity: str) -> None:
            raise OSError("the store answered 501 NotImplemented")

    with pytest.raises(Refused, match="answered 501 NotImplemented"):
        Probe("s3://bucket", [Failing(memory)] * probe.RACERS, "folder-probe", QUICK).run()


def test_what_a_killed_probe_has_left_is_removed_after_a_day_and_no_other(memory: Memory) -> None:
    running = f"folder-probe/{2**39:012d}-a/put-0"
    memory.objects |= {"folder-probe/000000000001-a/put-0": Stored(b"", "1"), running: Stored(b"", "2")}

    probe_of(memory).run()

    assert [*memory.objects] == [running]


def test_a_bucket_is_probed_once_a_process(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_proven", {})
    made: list[MemoryClient] = []

    def make(memory: Memory) -> MemoryClient:
        made.append(MemoryClient(memory))
        return made[-1]

    clients = Clients("s3://bucket", "", "", False, partial(make, memory))  # type: ignore[arg-type]

    assert [is_proven(clients, "folder-probe", QUICK) for _ in range(3)] == [True] * 3
    assert len(made) == probe.RACERS
