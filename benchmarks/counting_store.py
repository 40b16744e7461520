"""A store in memory that counts what is asked of it, and adds up how long a real one would take to answer.

Nothing waits: a request costs what its kind costs, and requests that go out side by side cost as many rounds as there
are. So a commit of 100,000 files is counted in seconds, with the code that a driver runs. What the driver itself
computes is not in it: that is measured beside it, as processor time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from epochal.sinks.storage.hadoop import at_once
from epochal.sinks.storage.sink_files import AT_ONCE, Miss, lines_in, missed
from epochal.txn.files import Entry, join

PAGE = 1000  # names in one answer to a listing, of a NameNode and of S3

Content = bytes | int | None  # of a file, or its length where nobody reads it; None for a folder


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store: the requests behind each file operation, and what each of them takes."""

    name: str
    requests: Mapping[str, tuple[str, ...]]  # one after the other
    ms: Mapping[str, float]
    a_second: Mapping[str, float]  # requests that one NameNode, or one prefix of a bucket, answers; by kind, or "all"
    joins_in_place: bool = False
    at_once: Callable[[int], int] = lambda _: AT_ONCE  # requests under way, of a step with so many
    version: str = ""  # as long as that of a file in a listing

    def seconds(self, operation: str) -> float:
        """What one operation waits for."""
        return sum(self.ms[request] for request in self.requests[operation]) / 1000


# What each operation of `HadoopCalls.java` asks a NameNode. Blocks go to DataNodes, which are not counted.
HDFS = Kind(
    "HDFS",
    {
        "create": ("create", "addBlock", "complete", "rename"),
        "taken": ("create", "addBlock", "complete", "rename", "getFileInfo", "delete"),
        "read": ("getBlockLocations",),
        "list": ("getListing",),
        "length": ("getFileInfo",),
        "rename": ("rename",),
        "delete": ("delete",),
        "empty": (),
        "folder": ("mkdirs",),
        "join": ("concat",),
    },
    {
        "create": 2.0,
        "addBlock": 2.0,
        "complete": 2.0,
        "rename": 1.5,
        "delete": 1.5,
        "mkdirs": 1.5,
        "concat": 1.5,
        "getBlockLocations": 1.0,
        "getListing": 1.0,
        "getFileInfo": 0.5,
    },
    {"all": 20_000},  # an assumption: it depends on the NameNode's machine, and on how many of them write
    joins_in_place=True,
    at_once=at_once,
    version="1763571600000",
)
# What each operation of `objects.ObjectFiles` asks a bucket: docs/objects.md, by `benchmarks.requests`.
OBJECTS = Kind(
    "object store",
    {
        "create": ("PUT",),
        "taken": ("PUT", "HEAD"),
        "read": ("GET",),
        "list": ("LIST",),
        "length": ("HEAD",),
        "rename": ("HEAD", "COPY", "DELETE"),
        "delete": ("DELETE", "LIST"),
        "empty": ("DELETE", "LIST"),  # a thousand objects below a folder
        "folder": (),
        "join": ("GET", "PUT"),
    },
    {"PUT": 20, "COPY": 30, "LIST": 50, "HEAD": 10, "GET": 15, "DELETE": 15},
    # What AWS promises for a prefix; it says nothing of LIST, which is taken for a GET.
    {"PUT": 3500, "COPY": 3500, "DELETE": 3500, "LIST": 5500, "GET": 5500, "HEAD": 5500},
    version='"d41d8cd98f00b204e9800998ecf8427e"',
)
KINDS = {"hdfs": HDFS, "objects": OBJECTS}


@dataclass
class Asked:
    """What was asked for in one place of the store."""

    operations: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    bytes_written: int = 0
    bytes_read: int = 0

    def __sub__(self, before: Asked) -> Asked:
        return Asked(
            self.operations - before.operations,
            self.requests - before.requests,
            self.seconds - before.seconds,
            self.bytes_written - before.bytes_written,
            self.bytes_read - before.bytes_read,
        )


# Where a path belongs, by what is in it; the first that fits.
PLACES = {
    "/epochal/": "journal",
    "/epochal-live": "live file",
    "/epochal-cut": "watermark file",
    "/checkpoint": "Spark's checkpoint",
    "/_epochal/lineages": "claims",
    "/_epochal/manifest": "manifest",
    "/_epochal/": "staged files",
    "": "target",
}


def place_of(path: str) -> str:
    """What a path belongs to.

    >>> place_of("hdfs://h/s/checkpoint/epochal/e0.json"), place_of("hdfs://h/s/target/day=1/part-0")
    ('journal', 'target')
    """
    return next(place for mark, place in PLACES.items() if mark in path)


class CountingStore:
    """File operations in memory, each with its requests. Names are there; the content of data files is a length."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.asked: dict[str, Asked] = defaultdict(Asked)
        self._folders: dict[str, dict[str, Content]] = {"": {}}

    def put(self, path: str, length: int) -> None:
        """A file that executors have written: not counted here."""
        self._set(path, length)

    def clear(self) -> None:
        """Forget every name, so that what memory still holds is not the store's."""
        self._folders = {"": {}}

    # One file.

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:  # noqa: ARG002  # always
        new = self._get(path) is None
        self._ask("create" if new else "taken", path)
        if new:
            self._set(path, data)
            self.asked[place_of(path)].bytes_written += len(data)
        return new

    def read(self, path: str) -> bytes:
        self._ask("read", path)
        found = self._get(path)
        if not isinstance(found, bytes):
            raise FileNotFoundError(path)
        self.asked[place_of(path)].bytes_read += len(found)
        return found

    def rename_limit(self) -> int | None:
        return None

    def creates_directly(self) -> bool:
        return self.kind is OBJECTS

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.list(path))

    def list(self, path: str) -> list[Entry]:
        found = self._folders.get(path.rstrip("/"), {})
        self._ask("list", path, _pages(len(found)))
        return sorted((self._entry(name, content) for name, content in found.items()), key=lambda entry: entry.name)

    def walk(self, path: str) -> Iterator[Entry]:
        """As on HDFS: a level of folders at a time, side by side. A bucket lists everything below a name at once."""
        folders = [(folder, self._folders[folder]) for folder in self._below(path)]
        if self.kind.joins_in_place:
            for _, level in _levels(path, folders):
                self._ask("list", path, sum(_pages(len(found)) for found in level), many=True)
        else:
            self._ask("list", path, _pages(sum(len(found) for _, found in folders)))
        whole = (
            self._entry(f"{folder}/{name}"[len(path) + 1 :], content)
            for folder, found in folders
            for name, content in found.items()
            if content is not None
        )
        yield from sorted(whole, key=lambda entry: entry.name.split("/"))

    def length(self, path: str) -> int | None:
        self._ask("length", path)
        return self._length(path)

    def modified(self, path: str) -> float | None:
        self._ask("length", path)
        return None if self._length(path) is None else 0.0

    def rename(self, source: str, target: str) -> None:
        self._ask("rename", target)
        self._rename(source, target)

    def make_folder(self, path: str) -> None:
        self._ask("folder", path)
        self._folder(path)

    def delete(self, path: str) -> None:
        below = self._below(path)
        self._ask("delete", path)
        if below:
            self._ask("empty", path, _pages(sum(len(self._folders[folder]) for folder in below)))
        for folder in below:
            del self._folders[folder]
        parent, _, name = path.rpartition("/")
        self._folders.get(parent, {}).pop(name, None)

    def sync(self, path: str) -> None:
        pass

    def move_folder(self, source: str, target: str) -> None:
        """One request on HDFS. In a bucket there are no folders: every object is renamed."""
        below = self._below(source)
        if not below:
            raise FileNotFoundError(source)
        if target in self._folders:
            raise FileExistsError(target)
        objects = sum(content is not None for folder in below for content in self._folders[folder].values())
        self._ask("rename", target, 1 if self.kind.joins_in_place else objects, many=True)
        for folder in below:
            moved = self._folders.pop(folder)
            self._folder(f"{target}{folder[len(source) :]}")
            self._folders[f"{target}{folder[len(source) :]}"] = moved
        parent, _, name = source.rpartition("/")
        self._folders[parent].pop(name)

    def joins_in_place(self, folder: str) -> bool:  # noqa: ARG002  # anywhere, or nowhere
        return self.kind.joins_in_place

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        self._ask("join", path)
        self._join(path, [path, *others])

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        pass

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        self._ask("join", path)
        self._set(path, sum(self._length(source) or 0 for source in sources) - skip * (len(sources) - 1))

    def head(self, path: str, size: int) -> bytes:
        return self.read(path)[:size]

    def chunks(self, path: str) -> Iterator[bytes]:
        yield self.read(path)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        return self.create(path, b"".join(chunks))

    # Many files, side by side.

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:  # noqa: ARG002
        self._ask_many("create", [path for path, _ in contents])
        for path, data in contents:
            if self._get(path) is None:
                self._set(path, data)

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        self._ask_many("length", paths)
        return [self._length(path) for path in paths]

    def line_counts(self, paths: Sequence[str]) -> Sequence[int]:
        self._ask_many("read", paths)
        return [lines_in(content) if isinstance(content := self._get(path), bytes) else 1 for path in paths]

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        self._ask_many("rename", [target for _, target in moves])
        return [missed(self._rename, *move) for move in moves]

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        self._ask_many("join", [group[0] for group in groups])
        return [missed(self._join, group[0], group) for group in groups]

    def join_all_copies(self, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._ask_many("join", [path for path, _ in copies])
        for path, sources in copies:
            self._set(path, sum(self._length(source) or 0 for source in sources))

    def make_folders(self, paths: Sequence[str]) -> None:
        self._ask_many("folder", paths)
        for path in paths:
            self._folder(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        self._ask_many("delete", paths)
        for path in paths:
            for folder in self._below(path):
                del self._folders[folder]
            parent, _, name = path.rpartition("/")
            self._folders.get(parent, {}).pop(name, None)

    # The names, and the bill.

    def _entry(self, name: str, content: Content) -> Entry:
        length = len(content) if isinstance(content, bytes) else content or 0
        return Entry(name, length, content is None, "" if content is None else self.kind.version)

    def _ask(self, operation: str, path: str, times: int = 1, *, many: bool = False) -> None:
        if times:
            asked = self.asked[place_of(path)]
            asked.operations[operation] += times
            for request in self.kind.requests[operation]:
                asked.requests[request] += times
            rounds = math.ceil(times / self.kind.at_once(times)) if many else times
            asked.seconds += rounds * self.kind.seconds(operation)

    def _ask_many(self, operation: str, paths: Sequence[str]) -> None:
        """All are in one place: a step of a commit works on files of one kind."""
        if paths:
            self._ask(operation, paths[0], len(paths), many=True)

    def _get(self, path: str) -> Content:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, {}).get(name)

    def _length(self, path: str) -> int | None:
        content = self._get(path)
        return len(content) if isinstance(content, bytes) else content

    def _set(self, path: str, content: Content) -> None:
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folder(folder)
        self._folders[folder][name] = content

    def _folder(self, path: str) -> None:
        if path not in self._folders:
            self._folders[path] = {}
            parent, _, name = path.rpartition("/")
            self._folder(parent)
            self._folders[parent][name] = None

    def _rename(self, source: str, target: str) -> None:
        content = self._get(source)
        if content is None:
            raise FileNotFoundError(source)
        if self._get(target) is not None:
            raise FileExistsError(target)
        folder, _, name = source.rpartition("/")
        del self._folders[folder][name]
        self._set(target, content)

    def _join(self, path: str, group: Sequence[str]) -> None:
        lengths = [self._length(one) for one in group]
        if None in lengths:
            raise FileNotFoundError(path)
        for one in group[1:]:
            folder, _, name = one.rpartition("/")
            del self._folders[folder][name]
        self._set(path, sum(length or 0 for length in lengths))

    def _below(self, path: str) -> Sequence[str]:
        """A folder and all folders in it."""
        found, todo = [], [path.rstrip("/")]
        while todo:
            folder = todo.pop()
            if (entries := self._folders.get(folder)) is not None:
                found.append(folder)
                todo += [join(folder, name) for name, content in entries.items() if content is None]
        return found


def _levels(
    path: str, folders: Iterable[tuple[str, Mapping[str, Content]]]
) -> Iterator[tuple[int, Sequence[Mapping[str, Content]]]]:
    """Folders by how deep they lie below a path."""
    found = defaultdict[int, list[Mapping[str, Content]]](list)
    for folder, entries in folders:
        found[folder[len(path) :].count("/")].append(entries)
    yield from sorted(found.items())


def _pages(names: int) -> int:
    return max(1, math.ceil(names / PAGE))
