"""File operations on HDFS over HTTP, for programs without a JVM, such as the command line.

WebHDFS's plain rename returns False for every failure and moves a file into a folder of that name, so the strict one is
used. A writer that dies leaves a file that looks complete: files are written under a temporary name and renamed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from epochal.sinks.storage.hadoop_errors import python_error
from epochal.sinks.storage.sink_files import CHUNK, Miss, lines_in, missed, named
from epochal.txn.errors import Refused
from epochal.txn.files import TEMPORARY, Entry, create_by_rename, join, walk

if TYPE_CHECKING:
    from hdfs.client import Client

ADDRESS, LOGIN = "EPOCHAL_WEBHDFS", "EPOCHAL_WEBHDFS_AUTH"  # names of variables
LOGINS = ("simple", "kerberos")
DEADLINE = 30.0  # seconds for one request
THREADS = 8  # requests at a time; the library keeps ten connections

Step = TypeVar("Step")
Answer = TypeVar("Answer")


class WebHdfsFiles:
    """One HDFS. Paths are full URIs, as everywhere."""

    def __init__(self, address: str, login: str = "simple", *, deadline: float = DEADLINE) -> None:
        self._client = _client(address, login, deadline)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:  # noqa: ARG002  # closed is on DataNodes
        def write(temporary: str) -> None:
            with _python_errors(path):
                self._client.write(_plain(temporary), data, overwrite=False)

        return create_by_rename(self, path, write)

    def read(self, path: str) -> bytes:
        with _python_errors(path), self._client.read(_plain(path)) as stream:
            return bytes(stream.read())

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.list(path))

    def list(self, path: str) -> list[Entry]:
        try:
            with _python_errors(path):
                found = self._client.list(_plain(path), status=True)
        except FileNotFoundError:
            return []
        entries = (
            Entry(name, int(status["length"]), status["type"] == "DIRECTORY", str(status["modificationTime"]))
            for name, status in found
        )
        return sorted(entries, key=lambda e: e.name)

    def walk(self, path: str) -> Iterator[Entry]:
        return walk(self, path)

    def length(self, path: str) -> int | None:
        with _python_errors(path):
            status = self._client.status(_plain(path), strict=False)
        return None if status is None else int(status["length"])

    def modified(self, path: str) -> float | None:
        with _python_errors(path):
            status = self._client.status(_plain(path), strict=False)
        return None if status is None else int(status["modificationTime"]) / 1000

    def rename(self, source: str, target: str) -> None:
        with _python_errors(target):
            # The method that takes options, in the manner of the library's own `rename`.
            self._client._rename(_plain(source), destination=_plain(target), renameoptions="NONE")

    def move_folder(self, source: str, target: str) -> None:
        self.rename(source, target)

    def rename_limit(self) -> int | None:
        return None

    def creates_directly(self) -> bool:
        return False

    def joins_in_place(self, folder: str) -> bool:  # noqa: ARG002  # everywhere but where files are encrypted
        return True

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        from hdfs.client import _Request

        with _python_errors(path):
            # An operation that the library has no method for, called in the manner of those that it has.
            concat = _Request("POST").to_method("CONCAT")
            concat(self._client, _plain(path), sources=",".join(map(_plain, others)))

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        self.make_folder(path.rpartition("/")[0])
        with _python_errors(path), self._client.write(_plain(path), overwrite=True) as whole:
            for number, source in enumerate(sources):
                start = skip if number else 0
                with self._client.read(_plain(source), offset=start, chunk_size=1 << 20) as parts:
                    for part in parts:
                        whole.write(part)

    def join_all_copies(self, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        for path, sources in copies:
            self.join_copies(path, sources)

    def head(self, path: str, size: int) -> bytes:
        with _python_errors(path), self._client.read(_plain(path), length=size) as stream:
            return bytes(stream.read())

    def chunks(self, path: str) -> Iterator[bytes]:
        with _python_errors(path), self._client.read(_plain(path), chunk_size=CHUNK) as pieces:
            for piece in pieces:
                yield bytes(piece)

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        if self.length(path) is not None:
            return False
        folder, _, name = path.rpartition("/")
        temporary = join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
        source = _Source(chunks)
        try:
            with _python_errors(path):
                self._client.write(_plain(temporary), iter(source), overwrite=False)
        except OSError:
            if source.fault is None:
                raise
            self.delete(temporary)
            raise source.fault from None
        return named(self, temporary, path)

    def make_folder(self, path: str) -> None:
        with _python_errors(path):
            self._client.makedirs(_plain(path))

    def delete(self, path: str) -> None:
        with _python_errors(path):
            self._client.delete(_plain(path), recursive=True)

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        self._each(lambda one: self.create(*one, durable=durable), contents)

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        return self._each(self.length, paths)

    def line_counts(self, paths: Sequence[str]) -> Sequence[int]:
        return self._each(lambda path: lines_in(self.read(path)), paths)

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        return self._each(lambda move: missed(self.rename, *move), moves)

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        return self._each(lambda group: missed(self.join_in_place, group[0], group[1:]), groups)

    def make_folders(self, paths: Sequence[str]) -> None:
        self._each(self.make_folder, paths)

    def delete_all(self, paths: Sequence[str]) -> None:
        self._each(self.delete, paths)

    def _each(self, act: Callable[[Step], Answer], steps: Sequence[Step]) -> Sequence[Answer]:
        """Run steps concurrently. After an error no further step begins, and it is raised when none is running."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="epochal-files") as pool:
            return list(pool.map(act, steps))

    def sync(self, path: str) -> None:
        """Nothing to do: a closed HDFS file is on its DataNodes."""

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        """Nothing to do either."""


def reaches(path: str) -> bool:
    """Whether a path is on HDFS and the user has set its HTTP address."""
    return path.startswith("hdfs:") and bool(os.environ.get(ADDRESS))


def connect() -> WebHdfsFiles:
    """The HDFS that the environment names."""
    return WebHdfsFiles(os.environ[ADDRESS], os.environ.get(LOGIN, "simple"))


def _client(address: str, login: str, deadline: float) -> Client:
    try:
        from hdfs import InsecureClient
    except ImportError:
        raise Refused(f"{ADDRESS} is set, and WebHDFS's client is not installed: pip install 'epochal[hdfs]'") from None
    if urlsplit(address).scheme not in ("http", "https") or login not in LOGINS:
        raise Refused(f"{ADDRESS} must be http://host:port, and {LOGIN} one of {', '.join(LOGINS)}")
    if login == "simple":
        return InsecureClient(address, user=os.environ.get("HADOOP_USER_NAME"), timeout=deadline)
    try:
        from hdfs.ext.kerberos import KerberosClient
    except ImportError:
        raise Refused(f"{LOGIN} is kerberos, and its part is not installed: pip install 'hdfs[kerberos]'") from None
    return KerberosClient(address, timeout=deadline)


def _plain(uri: str) -> str:
    """The path within the file system. Nothing is unescaped: `#` and `%` are characters like others."""
    scheme, colon, rest = uri.partition("://")
    return "/" + rest.partition("/")[2] if colon and "/" not in scheme else uri


class _Source:
    """What is uploaded. Keeps an error of its own: the HTTP client would take it for one of the connection."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.fault: OSError | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        except OSError as fault:
            self.fault = fault
            raise


@contextmanager
def _python_errors(path: str) -> Iterator[None]:
    """HDFS's errors as the Python ones of the same meaning; others as OSError, to be tried again."""
    from hdfs.util import HdfsError

    try:
        yield
    except HdfsError as fault:
        raise python_error(path, str(fault.exception or ""), str(fault)) from None
