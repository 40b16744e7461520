"""`SinkFiles` on an object store: many requests side by side, and what has to be done object by object there."""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TypeVar

from epochal.sinks.storage.objects.faults import Away
from epochal.sinks.storage.objects.files import MOST_COPIED, MOST_IN_MEMORY, ObjectFiles
from epochal.sinks.storage.objects.requests import PART, Found
from epochal.sinks.storage.sink_files import Miss, lines_in, missed
from epochal.txn.files import join

SIDE_BY_SIDE = 16  # requests; a bucket takes thousands a second
LISTED_FROM = 20  # objects of one folder: they are found by listing it, not one by one
JOINING = 4  # files that are joined at a time

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ObjectSinkFiles(ObjectFiles):
    """One bucket, with what sinks need besides."""

    def move_folder(self, source: str, target: str) -> None:
        """Move object by object. A crash leaves some of them moved; the next call moves the others."""
        names = [entry.name for entry in self.walk(source)]
        if not names:
            raise FileNotFoundError(source)
        for miss in self.rename_all([(join(source, name), join(target, name)) for name in names]):
            if miss is not None:
                raise miss

    def rename_limit(self) -> int | None:
        return MOST_COPIED if self._check() else MOST_IN_MEMORY

    def creates_directly(self) -> bool:
        return True

    def joins_in_place(self, folder: str) -> bool:  # noqa: ARG002  # nowhere
        return False

    def join_in_place(self, path: str, others: Sequence[str]) -> None:  # noqa: ARG002
        raise OSError(f"{path}: an object store cannot join objects without a new one")

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        """Make an object of the contents of others, through a temporary file. A crash leaves nothing of it."""
        with tempfile.TemporaryFile(prefix="epochal-") as whole:
            for number, source in enumerate(sources):
                whole.writelines(self._chunks(source, skip if number else 0))
            self._put_whole(path, whole)

    def _put_whole(self, path: str, whole: IO[bytes]) -> None:
        """Make an object of a file, in place of whatever has the name."""
        key = self._key(path)
        self._check()
        identity, is_long = uuid.uuid4().hex, whole.tell() > PART

        def put() -> None:
            whole.seek(0)
            if is_long:
                self._requests.put_parts(key, whole, identity)
            else:
                self._requests.put(key, whole.read(), identity)

        self._patience.until_answered(put)

    def join_all_copies(self, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._each(lambda copy: self.join_copies(*copy), copies, at_once=JOINING)

    def head(self, path: str, size: int) -> bytes:
        length = self._length_of(path)
        return self._range(self._key(path), 0, min(size, length)) if length else b""

    def chunks(self, path: str) -> Iterator[bytes]:
        return self._chunks(path, 0)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        """Through a temporary file. What has more than one part is uploaded in parts, which has no condition."""
        if self.length(path) is not None:
            return False
        with tempfile.TemporaryFile(prefix="epochal-") as whole:
            whole.writelines(chunks)
            if whole.tell() > PART:
                self._put_whole(path, whole)
                return True
            whole.seek(0)
            return self.create(path, whole.read())

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        """Nothing to do: what a store has answered is durable."""

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        self._each(lambda one: self.create(*one, durable=durable), contents)

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        return self._each(self.length, paths)

    def line_counts(self, paths: Sequence[str]) -> Sequence[int]:
        return self._each(lambda path: lines_in(self.read(path)), paths)

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        """All new names are given first, then all old ones are removed, a thousand in a request."""

        def renamed(move: tuple[str, str]) -> Found | Miss:
            try:
                return self._renamed(*move)
            except (FileNotFoundError, FileExistsError) as miss:
                return miss

        answers = self._each(renamed, moves)
        done = [answer for answer in answers if isinstance(answer, Found)]
        try:
            self._requests.remove_all([found.key for found in done])
        except Away:
            self._each(self._remove, done)  # one by one, with a look at who has the name now
        return [None if isinstance(answer, Found) else answer for answer in answers]

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        return [missed(self.join_in_place, group[0], group[1:]) for group in groups]

    def make_folders(self, paths: Sequence[str]) -> None:
        """Nothing to do: a folder is there as soon as something is in it."""

    def delete_all(self, paths: Sequence[str]) -> None:
        by_folder: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            by_folder[path.rpartition("/")[0]].append(path)
        single: list[str] = []
        for folder, group in by_folder.items():
            if len(group) < LISTED_FROM:
                single += group
            else:
                self._delete_in(folder, {self._key(path) for path in group})
        self._each(self.delete, single)

    def _delete_in(self, folder: str, keys: set[str]) -> None:
        """Remove objects of one folder, and what is below their names."""
        start = len(self._key(folder)) + 1

        def remove() -> None:
            there = [key for key, *_ in self._requests.walk(self._key(folder))]
            self._requests.remove_all([key for key in there if f"{key[:start]}{key[start:].partition('/')[0]}" in keys])

        self._patience.until_answered(remove)

    def _chunks(self, path: str, start: int) -> Iterator[bytes]:
        key, length = self._key(path), self._length_of(path)
        for at in range(start, length, PART):
            yield self._range(key, at, min(at + PART, length))

    def _length_of(self, path: str) -> int:
        length = self.length(path)
        if length is None:
            raise FileNotFoundError(path)
        return length

    def _each(
        self, act: Callable[[Item], Answer], items: Sequence[Item], *, at_once: int = SIDE_BY_SIDE
    ) -> list[Answer]:
        """Do something for each item, side by side. After an error no other is begun, and none is running."""
        if len(items) < 2:
            return [act(item) for item in items]
        failed = threading.Event()

        def unless_failed(item: Item) -> Answer:
            if failed.is_set():
                raise _NotBegun
            try:
                return act(item)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(min(at_once, len(items)), "epochal-objects") as pool:
            answers = [pool.submit(unless_failed, item) for item in items]
        faults = [fault for answer in answers if (fault := answer.exception()) and not isinstance(fault, _NotBegun)]
        if faults:
            raise faults[0]
        return [answer.result() for answer in answers]


class _NotBegun(Exception):
    """A step that was not begun, because another one had failed."""
