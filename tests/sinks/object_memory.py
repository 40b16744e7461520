"""An object store in memory, for tests: as quick as a dictionary, and it fails as a network does."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, TypeVar

from epochal.sinks.storage.objects.faults import Away, Taken, TooLong
from epochal.sinks.storage.objects.requests import Found

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Stored:
    data: bytes
    identity: str
    is_ours: bool = True
    at: float = 0.0
    etag: str | None = None

    def found(self, key: str) -> Found:
        return Found(key, self.identity, self.is_ours, len(self.data), self.etag)


@dataclass
class Memory:
    """One bucket, for any number of clients. `conditional` False: it overwrites."""

    objects: dict[str, Stored] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    conditional: bool = True
    copies: bool = True
    keeps_metadata: bool = True
    late: list[Callable[[], None]] = field(default_factory=list)

    def put(self, key: str, stored: Stored, *, conditional: bool) -> None:
        if conditional and key in self.objects:
            raise Taken(key)
        self.objects[key] = stored


class MemoryClient:
    """A client of it. Of its requests a share is lost, refused or carried out late, by a seed."""

    def __init__(
        self, memory: Memory, *, seed: int = 0, share: float = 0.0, between: Callable[[], None] = lambda: None
    ):
        self.memory, self._chance, self._share, self._between = memory, random.Random(seed), share, between
        self.faults = 0

    def put_new(self, key: str, data: bytes, identity: str) -> None:
        stored = Stored(data, identity) if self.memory.keeps_metadata else Stored(data, f"by-others-{key}", False)
        self._ask(lambda: self.memory.put(key, stored, conditional=self.memory.conditional), writes=True)

    def copy_new(self, source: str, key: str) -> None:
        def copy() -> None:
            if source not in self.memory.objects:
                raise FileNotFoundError(source)
            there = self.memory.objects[source]
            copied = there if there.is_ours else replace(there, identity=f"by-others-{key}")
            self.memory.put(key, copied, conditional=self.memory.copies)

        self._ask(copy, writes=True)

    def copy(self, source: str, key: str) -> None:
        def copy() -> None:
            if source not in self.memory.objects:
                raise FileNotFoundError(source)
            self.memory.put(key, self.memory.objects[source], conditional=False)

        self._ask(copy)

    def put(self, key: str, data: bytes, identity: str) -> None:
        self._ask(lambda: self.memory.put(key, Stored(data, identity), conditional=False))

    def put_parts(self, key: str, content: IO[bytes], identity: str) -> None:
        data = content.read()
        self._ask(lambda: self.memory.put(key, Stored(data, identity), conditional=False))

    def look(self, key: str) -> Found | None:
        def look() -> Found | None:
            there = self.memory.objects.get(key)
            return None if there is None else there.found(key)

        return self._ask(look)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        def get_range() -> bytes:
            if key not in self.memory.objects:
                raise FileNotFoundError(key)
            return self.memory.objects[key].data[start:end]

        return self._ask(get_range)

    def get(self, key: str, *, most: int | None = None) -> tuple[Found, bytes]:
        def get() -> tuple[Found, bytes]:
            if key not in self.memory.objects:
                raise FileNotFoundError(key)
            there = self.memory.objects[key]
            if most is not None and len(there.data) > most:
                raise TooLong(key)
            return there.found(key), there.data

        return self._ask(get)

    def length(self, key: str) -> tuple[int, float] | None:
        def length() -> tuple[int, float] | None:
            there = self.memory.objects.get(key)
            return None if there is None else (len(there.data), there.at)

        return self._ask(length)

    def remove(self, key: str) -> None:
        self._ask(lambda: self.memory.objects.pop(key, None))

    def remove_all(self, keys: Sequence[str]) -> None:
        def remove_all() -> None:
            for key in keys:
                self.memory.objects.pop(key, None)

        self._ask(remove_all)

    def remove_marker(self, key: str) -> None:
        self._ask(lambda: self.memory.objects.pop(f"{key}/", None))

    def list_folder(self, prefix: str) -> tuple[list[tuple[str, int]], list[str]]:
        folder = f"{prefix}/" if prefix else ""
        below = self._below(folder)
        objects = [(key.rstrip("/"), length) for key, length, _ in below if "/" not in key.removeprefix(folder)]
        folders = {
            folder + key.removeprefix(folder).split("/")[0] for key, *_ in below if "/" in key.removeprefix(folder)
        }
        return objects, sorted(folders)

    def walk(self, prefix: str) -> list[tuple[str, int, str]]:
        # A marker is listed without the slash at the end of its name, as obstore does it.
        return [(key.rstrip("/"), length, etag) for key, length, etag in self._below(f"{prefix}/" if prefix else "")]

    def _below(self, folder: str) -> list[tuple[str, int, str]]:
        def below() -> list[tuple[str, int, str]]:
            there = self.memory.objects.items()
            return [(key, len(one.data), one.etag or "") for key, one in there if key.startswith(folder)]

        return self._ask(below)

    def _ask(self, request: Callable[[], Answer], *, writes: bool = False) -> Answer:
        self._between()
        with self.memory.lock:
            if self.memory.late and self._chance.random() < 0.3:
                self.memory.late.pop(self._chance.randrange(len(self.memory.late)))()
            if self._chance.random() >= self._share:
                return request()
            self.faults += 1
            match self._chance.choice(
                ["lost", "refused", "conflict" if writes else "refused", "late" if writes else "lost"]
            ):
                case "lost":
                    try:
                        request()
                    except (Taken, OSError):
                        pass  # nobody hears of it
                case "late":
                    self.memory.late.append(lambda: _quietly(request))
                case "conflict":
                    raise Taken("409")
            raise Away("injected")


def _quietly(request: Callable[[], object]) -> None:
    try:
        request()
    except (Taken, OSError):
        pass  # nobody hears of it
