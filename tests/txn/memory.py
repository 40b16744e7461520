"""`Files` in a dict: quick, and with nothing of the machine in it."""

from __future__ import annotations

from collections.abc import Iterator

from epochal.txn.files import Entry, walk


class MemoryFiles:
    """One file system of plain files; folders are whatever stands before a slash."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.times: dict[str, float] = {}  # when files were written, for those where a test says so

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        if path in self.content:
            return False
        self.content[path] = data
        return True

    def read(self, path: str) -> bytes:
        if any(other.startswith(path + "/") for other in list(self.content)):
            raise IsADirectoryError(path)
        try:
            return self.content[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def names(self, path: str) -> tuple[str, ...]:
        start = len(path) + 1
        return tuple(sorted({p[start:].partition("/")[0] for p in list(self.content) if p.startswith(path + "/")}))

    def list(self, path: str) -> list[Entry]:
        found = []
        for name in self.names(path):
            length = self.length(f"{path}/{name}")
            found.append(Entry(name, length or 0, length is None))
        return found

    def walk(self, path: str) -> Iterator[Entry]:
        return walk(self, path)

    def length(self, path: str) -> int | None:
        data = self.content.get(path)
        return None if data is None else len(data)

    def modified(self, path: str) -> float | None:
        return None if path not in self.content else self.times.get(path, 0.0)

    def rename(self, source: str, target: str) -> None:
        if target in self.content:
            raise FileExistsError(target)
        if source not in self.content:
            raise FileNotFoundError(source)
        self.content[target] = self.content.pop(source)

    def make_folder(self, path: str) -> None:
        """Folders need no making."""

    def delete(self, path: str) -> None:
        for other in list(self.content):
            if other == path or other.startswith(path + "/"):
                self.content.pop(other, None)

    def sync(self, path: str) -> None:
        """There is nothing more stable."""


class Crash(Exception):
    """The process dies here."""


class VolatileFiles(MemoryFiles):
    """A disk that a power cut takes something from: of files that are not durable the last ones, in any number.

    A durable file makes no other durable; only syncing the folder does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.volatile: list[str] = []
        self.changes_left: int | None = None  # before the process dies

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        self._count()
        created = super().create(path, data, durable=durable)
        if created and not durable:
            self.volatile.append(path)
        return created

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)

    def sync(self, path: str) -> None:
        self.volatile = [other for other in self.volatile if not other.startswith(path + "/")]

    def cut(self, lost: int) -> list[str]:
        """Lose the last files that are not durable; their paths."""
        gone = self.volatile[len(self.volatile) - lost :]
        for path in gone:
            self.content.pop(path, None)
        self.volatile, self.changes_left = [], None
        return gone

    def _count(self) -> None:
        if self.changes_left is not None:
            if not self.changes_left:
                raise Crash
            self.changes_left -= 1
