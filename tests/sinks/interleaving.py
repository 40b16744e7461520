"""Every way in which the file operations of some programs can follow each other, without those that come to the same.

Programs run in threads that stop before each operation; a schedule says whose turn it is. What a program will do next
depends on nothing but what its operations have answered, so two schedules that lead to the same disk and the same
answers have the same future, and one of them is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from epochal.sinks.files.layout import HOME
from epochal.txn.files import Entry
from tests.sinks.compacting import MemoryDisk

Program = Callable[["PacedDisk"], object]


class _Ended(BaseException):
    """Ends a thread whose schedule is over."""


class PacedDisk(MemoryDisk):
    """One program's view of the disk: waits before each operation, and remembers each answer."""

    def __init__(self, disk: MemoryDisk, name: str, *, at_reads: bool) -> None:
        super().__init__()
        self._name = name
        self._at_reads = at_reads
        self.content = disk.content  # the same for all
        self.answers: list[str] = []
        self._may_go, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.is_over = False
        self.fault: BaseException | None = None

    def start(self, program: Program) -> None:
        self._thread = threading.Thread(target=self._run, args=(program,), name=self._name, daemon=True)
        self._thread.start()
        self._has_stopped.acquire()

    def step(self) -> None:
        """Let it do one operation, and come to the next."""
        self._may_go.release()
        self._has_stopped.acquire()

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._may_go.release()
        self._thread.join()

    def _run(self, program: Program) -> None:
        try:
            program(self)
        except _Ended:
            return
        except BaseException as fault:  # noqa: BLE001  # reported by whoever plays the schedule
            self.fault = fault
        self.is_over = True
        self._has_stopped.release()

    def _wait(self) -> None:
        if self.is_over:
            raise _Ended  # in a clean-up on the way out
        self._has_stopped.release()
        self._may_go.acquire()
        if self.is_over:
            raise _Ended

    def _wait_to_read(self) -> None:
        if self._at_reads:
            self._wait()

    def _note(self, answer: object) -> None:
        self.answers.append(str(answer))

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        self._wait()
        made = super().create(path, data, durable=durable)
        self._note((path, made))
        return made

    def read(self, path: str) -> bytes:
        if f"/{HOME}/" not in path or path not in self.content:
            self._wait_to_read()  # records and manifests are never changed and never removed: any time is as good
        self._note((path, self.content.get(path)))
        return super().read(path)

    def names(self, path: str) -> tuple[str, ...]:
        self._wait_to_read()
        found = super().names(path)
        self._note((path, found))
        return found

    def list(self, path: str) -> list[Entry]:
        self._wait_to_read()
        found = MemoryDisk(self.content).list(path)
        self._note((path, found))
        return found

    def length(self, path: str) -> int | None:
        self._wait_to_read()
        found = super().length(path)
        self._note((path, found))
        return found

    def modified(self, path: str) -> float | None:
        raise NotImplementedError

    def rename(self, source: str, target: str) -> None:
        self._wait()
        self._note((source, source in self.content, target in self.content))
        super().rename(source, target)

    def delete(self, path: str) -> None:
        self._wait()
        self._note(path)
        super().delete(path)

    def head(self, path: str, size: int) -> bytes:
        self._wait_to_read()
        self._note((path, self.content.get(path)))
        return MemoryDisk(self.content).head(path, size)

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        self._wait()
        self._note((path, [self.content.get(source) for source in sources]))
        copy = MemoryDisk(self.content)
        copy.join_copies(path, sources, skip=skip)
        self.content[path] = copy.content[path]


@dataclass(frozen=True)
class State:
    """What a schedule leads to."""

    schedule: tuple[int, ...]
    history: tuple[dict[str, bytes], ...]  # the disk after each step
    over: tuple[bool, ...]

    @property
    def is_new(self) -> bool:
        """Whether the last step has changed the disk."""
        return len(self.history) == 1 or self.history[-1] != self.history[-2]

    @property
    def disk(self) -> dict[str, bytes]:
        return self.history[-1]


def explore(start: dict[str, bytes], programs: Sequence[Program], *, at_reads: bool) -> Iterator[State]:
    """Every state that the programs can come to, if others get in before each change, or before each read too."""
    seen: set[int] = set()
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        disk = MemoryDisk(start)
        paced = [PacedDisk(disk, f"program {number}", at_reads=at_reads) for number in range(len(programs))]
        yield from _play(disk, list(zip(paced, programs, strict=True)), waiting.pop(), seen, waiting)


def _play(
    disk: MemoryDisk,
    programs: Sequence[tuple[PacedDisk, Program]],
    schedule: tuple[int, ...],
    seen: set[int],
    waiting: list[tuple[int, ...]],
) -> Iterator[State]:
    """From the start along a schedule, then on for as long as it is new, noting the ways that are not taken."""
    paced = [one for one, _ in programs]
    history = [dict(disk.content)]
    try:
        for one, program in programs:
            one.start(program)
        for number in schedule:
            paced[number].step()
            history.append(dict(disk.content))
        while True:
            _check_faults(paced, schedule)
            over = tuple(one.is_over for one in paced)
            key = hash((frozenset(disk.content.items()), tuple(tuple(one.answers) for one in paced), over))
            if key in seen:
                return
            seen.add(key)
            yield State(schedule, tuple(history), over)
            ways = [number for number, is_over in enumerate(over) if not is_over]
            if not ways:
                return
            waiting += [(*schedule, number) for number in ways[1:]]
            schedule = (*schedule, ways[0])
            paced[ways[0]].step()
            history.append(dict(disk.content))
    finally:
        for one in paced:
            one.end()


def _check_faults(paced: Sequence[PacedDisk], schedule: tuple[int, ...]) -> None:
    for one in paced:
        if one.fault is not None:
            raise AssertionError(f"after {schedule}: {one.fault!r}") from one.fault
