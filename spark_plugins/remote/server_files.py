"""Reads small files through a Spark Connect server, for a client that cannot reach them itself. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from epochal.sinks.storage.connect import LITERAL
from epochal.sinks.storage.paths import spark_path
from epochal.txn.files import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ServerFiles:
    """Some folders and files, each read once, in one job. Make a new one to look again."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._read: dict[str, dict[str, bytes]] = {}  # by the path that was read: names and contents
        self._times: dict[str, dict[str, float]] = {}  # the same: when each was written

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._load(path)))

    def list(self, path: str) -> list[Entry]:
        return [Entry(name, len(data), False) for name, data in sorted(self._load(path).items())]

    def walk(self, path: str) -> Iterator[Entry]:
        yield from self.list(path)

    def read(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        try:
            return self._load(folder if folder in self._read else path)[name]
        except KeyError:
            raise FileNotFoundError(path) from None

    def length(self, path: str) -> int | None:
        try:
            return len(self.read(path))
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float | None:
        folder, _, name = path.rpartition("/")
        read = folder if folder in self._read else path
        self._load(read)
        return self._times[read].get(name)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:  # noqa: ARG002
        _refuse(path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002
        _refuse(source)

    def make_folder(self, path: str) -> None:
        _refuse(path)

    def delete(self, path: str) -> None:
        _refuse(path)

    def sync(self, path: str) -> None:
        _refuse(path)

    def _load(self, path: str) -> dict[str, bytes]:
        """The files in a folder, or a file."""
        from pyspark.errors import AnalysisException

        if path not in self._read:
            reader = self._session.read.format("binaryFile").options(**LITERAL)
            try:
                rows = reader.load(spark_path(path)).select("path", "modificationTime", "content").collect()
            except AnalysisException as fault:
                if fault.getCondition() != "PATH_NOT_FOUND":
                    raise
                rows = []
            names = [str(row["path"]).rpartition("/")[2] for row in rows]
            self._read[path] = {name: bytes(row["content"]) for name, row in zip(names, rows, strict=True)}
            times = (row["modificationTime"].timestamp() for row in rows)
            self._times[path] = dict(zip(names, times, strict=True))
        return self._read[path]


def _refuse(path: str) -> NoReturn:
    raise PermissionError(f"{path}: through a Spark Connect server files can only be read")
