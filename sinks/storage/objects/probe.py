"""Asks a store whether its conditions hold, by a race. A name or a version would not tell.

Several threads, each with a client of its own, create one name at a time; then they copy to one name. Of each race one
must win, and nobody else may be told so. A store without conditional writes is refused. One without conditional copies
is not: it is never asked for any (`ObjectFiles` copies through memory, and creates the copy under the condition).
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from epochal.sinks.storage.objects.clients import Clients
from epochal.sinks.storage.objects.faults import Away, Taken
from epochal.sinks.storage.objects.patience import Patience
from epochal.sinks.storage.objects.requests import Requests
from epochal.txn.errors import Refused

log = logging.getLogger("epochal")

RACERS, ROUNDS = 4, 6
DEAD = 24 * 3600  # seconds: a probe of that age was killed

_proven: dict[tuple[str, str, str], bool] = {}
_lock = threading.Lock()


def is_proven(clients: Clients, folder: str, patience: Patience) -> bool:
    """Whether a bucket's conditional copies hold. Refused if its conditional writes do not. Asked once a process."""
    place = clients.url, clients.endpoint, clients.account
    with _lock:
        if place not in _proven:
            racers = [clients.make() for _ in range(RACERS)]
            _proven[place] = Probe(clients.url, racers, folder, patience, is_azure=clients.is_azure).run()
        return _proven[place]


class Probe:
    """One probe of one bucket, in a folder of its own that it removes."""

    def __init__(
        self, url: str, racers: Sequence[Requests], folder: str, patience: Patience, *, is_azure: bool = False
    ) -> None:
        self._url, self._racers, self._patience, self._is_azure = url, racers, patience, is_azure
        self._whole = folder
        self._folder = f"{folder}/{int(time.time()):012d}-{uuid.uuid4().hex}"

    def run(self) -> bool:
        """The answer of `is_proven`."""
        begun = time.monotonic()
        try:
            with ThreadPoolExecutor(len(self._racers), "epochal-probe") as pool:
                for number in range(ROUNDS):
                    self._race_of_writes(pool, f"{self._folder}/put-{number}")
                if self._is_azure:
                    self._refuse_folders()
                # Azure may answer a copy before it is made; a rename would then remove what is still being copied.
                copies = not self._is_azure and all(
                    self._is_race_of_copies_won_once(pool, number) for number in range(ROUNDS)
                )
        finally:
            self._clean()
        told = {"store": self._url, "conditional_copies": copies, "seconds": round(time.monotonic() - begun, 3)}
        log.info("object store probed", extra=told)
        return copies

    def _race_of_writes(self, pool: ThreadPoolExecutor, key: str) -> None:
        for _ in self._patience.rounds():
            identities = [uuid.uuid4().hex for _ in self._racers]
            answers = _race(
                pool,
                [
                    lambda racer=racer, one=one: racer.put_new(key, one.encode(), one)  # type: ignore[misc]
                    for racer, one in zip(self._racers, identities, strict=True)
                ],
            )
            self._raise_what_stays(answers)
            won = [one for one, answer in zip(identities, answers, strict=True) if answer is None]
            if len(won) > 1:
                raise self._refused(
                    f"of {len(self._racers)} writers that created one name at the same time {len(won)} were told that "
                    "they had: it ignores the condition If-None-Match"
                )
            there = self._patience.until_answered(lambda: self._racers[0].look(key))
            if there is None and not won:
                continue  # each met a fault, or another one that met it
            if there is None:
                raise self._refused("one writer was told that it had created a name, and there is no such object")
            if not there.is_ours:
                raise self._refused("it does not keep the metadata of objects, which says who made one")
            if there.identity not in (won or identities):
                raise self._refused("one writer was told that it had created a name, and another one's object is there")
            return
        raise OSError(f"{self._url}: the store did not answer, so it is not known whether its conditions hold")

    def _refuse_folders(self) -> None:
        """Refuse an account with a hierarchical namespace, where a folder is an object that stays."""
        if self._patience.until_answered(lambda: self._racers[0].look(self._folder)) is not None:
            raise self._refused(
                "it has folders of its own (a hierarchical namespace), which are objects by this protocol. Name it by "
                "abfss://, which Hadoop reaches"
            )

    def _raise_what_stays(self, answers: Sequence[Exception | None]) -> None:
        """Raise an error that another try would meet again."""
        for answer in answers:
            if isinstance(answer, PermissionError | FileNotFoundError):
                raise answer
            if isinstance(answer, OSError) and not isinstance(answer, Away):
                raise self._refused(f"a write under a condition failed: {answer}")

    def _is_race_of_copies_won_once(self, pool: ThreadPoolExecutor, number: int) -> bool:
        target = f"{self._folder}/copy-{number}"
        sources = {f"{self._folder}/source-{number}-{racer}": uuid.uuid4().hex for racer in range(len(self._racers))}
        for source, identity in sources.items():
            self._make(source, identity)
        for is_last in self._patience.rounds():
            answers = _race(
                pool,
                [
                    lambda racer=racer, source=source: racer.copy_new(source, target)  # type: ignore[misc]
                    for racer, source in zip(self._racers, sources, strict=True)
                ],
            )
            if any(isinstance(answer, OSError) and not isinstance(answer, Away) for answer in answers):
                return False  # it has no such request
            won = [one for one, answer in zip(sources.values(), answers, strict=True) if answer is None]
            there = self._patience.until_answered(lambda: self._racers[0].look(target))
            if there is None and not won and not is_last:
                continue
            # The copy must have kept the identity of its source.
            return len(won) <= 1 and there is not None and there.identity in (won or sources.values())
        return False

    def _make(self, key: str, identity: str) -> None:
        def make() -> None:
            try:
                self._racers[0].put_new(key, identity.encode(), identity)
            except (
                Taken
            ):  # by a try before, whose answer was lost; or nobody has it, and another request was in the way
                if self._racers[0].look(key) is None:
                    raise Away(key) from None

        self._patience.until_answered(make)

    def _clean(self) -> None:
        """Remove what this probe has made, and what probes that were killed long ago have left."""
        store = self._racers[0]
        dead = f"{self._whole}/{int(time.time()) - DEAD:012d}"

        def clean() -> None:
            keys = [key for key, *_ in store.walk(self._whole)]
            old = [key for key in keys if key < dead or f"{key}/".startswith(f"{self._folder}/")]
            if old and self._is_azure:
                for key in sorted(old, reverse=True):  # a folder that is an object can be removed once it is empty
                    store.remove(key)
            elif old:
                store.remove_all(old)

        self._patience.until_answered(clean)

    def _refused(self, why: str) -> Refused:
        return Refused(
            f"{self._url}: no record can be made exactly once in this store: {why}. Nothing was written but the probe, "
            "which was removed. Use a store that enforces conditional writes (docs/objects.md has those that were "
            "tried), HDFS or a local disk"
        )


def _race(pool: ThreadPoolExecutor, runners: Sequence[Callable[[], None]]) -> list[Exception | None]:
    """What each raised, all started at once."""
    gate = threading.Barrier(len(runners))

    def run(runner: Callable[[], None]) -> Exception | None:
        gate.wait()
        try:
            runner()
        except (OSError, Taken) as fault:
            return fault
        return None

    return list(pool.map(run, runners))
