"""File operations on Hadoop file systems, through the JVM that Spark runs in.

A rename without OVERWRITE tells why it failed; `FileSystem.rename` answers False for everything. Local paths never come
here: Hadoop's local rename can have two winners (`epochal.txn.files.LocalSinkFiles` is used instead).
"""

from __future__ import annotations

import sys
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from epochal.sinks.storage import connect, filesystems, hadoop_errors, java_code, webhdfs
from epochal.sinks.storage.sink_files import CHUNK, LocalSinkFiles, Miss, SinkFiles, named, side_by_side
from epochal.txn.errors import Refused
from epochal.txn.files import TEMPORARY, Entry, is_local, join, local_path, temporary_file_vanished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 256  # steps
FEW_AT_ONCE, MANY_AT_ONCE = 8, 32


def at_once(steps: int) -> int:
    """How many requests are under way at once, of so many.

    A NameNode has ten handlers unless set otherwise. But most of a request's time passes on the way, and while the
    NameNode's log is written, so with thousands of files it answers more if it is asked more.
    """
    return MANY_AT_ONCE if steps >= MANY else FEW_AT_ONCE


class HadoopFiles:
    """One Hadoop file system, as Spark's JVM reaches it. Each operation is one call there (`HadoopCalls.java`)."""

    def __init__(self, spark: SparkSession, *, at_once: Callable[[int], int] = at_once) -> None:
        self._spark, self._at_once = spark, at_once
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        for _ in range(3):
            with python_errors(path):
                made = self.calls.create(path, TEMPORARY, bytearray(data), durable)
            if made is not None:  # else a newer start swept the temporary file
                return bool(made)
        raise temporary_file_vanished(path)

    def read(self, path: str) -> bytes:
        with python_errors(path):
            return bytes(self.calls.read(path))

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.list(path))

    def list(self, path: str) -> list[Entry]:
        return sorted(self._entries(path, below=False), key=lambda entry: entry.name)

    def walk(self, path: str) -> Iterator[Entry]:
        yield from sorted(self._entries(path, below=True), key=lambda entry: entry.name.split("/"))

    def length(self, path: str) -> int | None:
        with python_errors(path):
            found = int(self.calls.length(path))
        return found if found >= 0 else None

    def modified(self, path: str) -> float | None:
        with python_errors(path):
            found = int(self.calls.modified(path))
        return found / 1000 if found >= 0 else None

    def rename(self, source: str, target: str) -> None:
        with python_errors(target):
            self.calls.rename(source, target)

    def move_folder(self, source: str, target: str) -> None:
        self.rename(source, target)

    def rename_limit(self) -> int | None:
        return None

    def creates_directly(self) -> bool:
        return False

    def joins_in_place(self, folder: str) -> bool:
        """HDFS has concat, but not for what is encrypted or erasure-coded."""
        system = self._system(folder)
        if str(system.getScheme()) != "hdfs":
            return False
        with python_errors(folder):
            status = system.getFileStatus(self._path(folder))
            return not (status.isEncrypted() or status.isErasureCoded())

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        with python_errors(path):
            self.calls.concat(path, "\0".join(others))

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        with python_errors(path):
            self.calls.copy(path, "\0".join(sources), skip)

    def join_all_copies(self, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        side_by_side(lambda copy: self.join_copies(*copy), copies)

    def head(self, path: str, size: int) -> bytes:
        with python_errors(path):
            return bytes(self.calls.head(path, size))

    def chunks(self, path: str) -> Iterator[bytes]:
        with python_errors(path):
            stream = self.calls.open(path)
            try:
                while piece := bytes(stream.readNBytes(CHUNK)):
                    yield piece
            finally:
                stream.close()

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        if self.length(path) is not None:
            return False
        folder, _, name = path.rpartition("/")
        temporary = join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
        with python_errors(path):
            stream = self.calls.begin(temporary)
            try:
                for piece in chunks:
                    stream.write(bytearray(piece))
                stream.hsync()
            except OSError:  # of what is copied: an error of Hadoop's is none before it is translated
                stream.close()
                self.delete(temporary)
                raise
            finally:
                stream.close()
        return named(self, temporary, path)

    def make_folder(self, path: str) -> None:
        with python_errors(path):
            self.calls.makeFolder(path)

    def delete(self, path: str) -> None:
        with python_errors(path):
            self.calls.delete(path)

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        left = [(path, TEMPORARY, str(durable), f"={b64encode(data).decode()}") for path, data in contents]
        for _ in range(3):
            answers = self._each("create", left)
            left = [step for step, made in zip(left, answers, strict=True) if made == "null"]
            if not left:
                return
        raise temporary_file_vanished(left[0][0])

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        found = [int(length) for length in self._each("length", [(path,) for path in paths])]
        return [length if length >= 0 else None for length in found]

    def line_counts(self, paths: Sequence[str]) -> Sequence[int]:
        return [int(count) for count in self._each("lines", [(path,) for path in paths])]

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        return [answer if isinstance(answer, Miss) else None for answer in self._tried("rename", moves, named=1)]

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        return [answer if isinstance(answer, Miss) else None for answer in self._tried("concat", groups)]

    def make_folders(self, paths: Sequence[str]) -> None:
        self._each("makeFolder", [(path,) for path in paths])

    def delete_all(self, paths: Sequence[str]) -> None:
        self._each("delete", [(path,) for path in paths])

    def sync(self, path: str) -> None:
        """Nothing to do: a closed HDFS file is on its DataNodes."""

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        """Nothing to do either."""

    def qualify(self, path: str) -> str:
        """A path with its scheme and authority, as the session's Hadoop settings resolve it.

        Refused if it is on a file system where two drivers can win the same name.
        """
        answered_for = str(self._conf.get(filesystems.SETTING, ""))
        filesystems.check(path, answered_for)  # first: there may be no code to load for it
        with python_errors(path):
            system = self._system(path)
            place = system.makeQualified(self._path(path))
            full = str(place.toString())
            is_view = filesystems.scheme_of(full) in filesystems.VIEWS
            for real in filesystems.behind(full, _mounts(system)) if is_view else [full]:
                filesystems.check(real, answered_for)
                filesystems.check_azure(real, lambda capability: bool(system.hasPathCapability(place, capability)))
        return full

    @cached_property
    def calls(self) -> Any:
        """What does it in the JVM. Made when needed: most paths are only qualified here, and turn out to be local."""
        calls = java_code.new(self._spark, "epochal.sinks.storage", "HadoopCalls")
        calls.use(self._conf)
        return calls

    def _each(self, operation: str, steps: Sequence[Sequence[str]]) -> Sequence[str]:
        """`_tried`, where a missing file or a name that is taken is a fault like any other."""
        answers = []
        for answer in self._tried(operation, steps):
            if isinstance(answer, OSError):
                raise answer
            answers.append(answer)
        return answers

    def _tried(self, operation: str, steps: Sequence[Sequence[str]], *, named: int = 0) -> Sequence[str | Miss]:
        """Many steps in one call, side by side. A fault names the path that a step has at the place `named`."""
        if not steps:
            return []
        with python_errors(steps[0][named]):
            work = "\0\0".join("\0".join(step) for step in steps)
            joined = str(self.calls.each(operation, work, self._at_once(len(steps))))
        answers: list[str | Miss] = []
        faults: list[OSError] = []
        for step, answer in zip(steps, joined.split("\0")[:-1], strict=True):
            if answer.startswith("!"):
                kind, _, message = answer[1:].partition(" ")
                fault = hadoop_errors.python_error(step[named], kind, message)
                if isinstance(fault, Miss):
                    answers.append(fault)
                else:
                    faults.append(fault)
            else:
                answers.append(answer.removeprefix("="))
        if faults:
            raise faults[0]
        return answers

    def _entries(self, path: str, *, below: bool) -> Iterator[Entry]:
        with python_errors(path):
            listed = str(self.calls.list(path, below))
        for entry in listed.split("\0")[:-1]:
            length, kind, version, name = entry.split(" ", 3)
            yield Entry(name, int(length), kind == "d", version)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)


def _mounts(view: Any) -> Iterator[tuple[str, list[str]]]:
    """The folders of a view, and what is mounted there."""
    for mount in view.getMountPoints():
        yield str(mount.getMountedOnPath().toUri().getPath()), [str(to) for to in mount.getTargetFileSystemPaths()]


@contextmanager
def python_errors(path: str) -> Iterator[None]:
    """Java's exceptions as the Python ones of the same meaning; others as OSError, to be tried again."""
    try:
        yield
    except Py4JError as fault:
        raise hadoop_errors.from_java(path, fault) from None


def resolve(path: str, spark: SparkSession | None = None) -> tuple[SinkFiles, str]:
    """The file operations for a path, and the path in full.

    A path without a scheme is what the session's ``fs.defaultFS`` says it is; without a session
    it is local, and HDFS is reached by WebHDFS if EPOCHAL_WEBHDFS says where that is. A Connect session tells what a
    path is, and has no JVM to reach it with: then the path is local, or WebHDFS's. The same
    holds in a process of its server (`connect.resolving`).
    """
    if path.startswith("file:"):
        return LocalSinkFiles(), local_path(path)
    filesystems.check_known(path)
    session = spark or running_session()
    if connect.is_connect(session):
        assert session is not None
        path = connect.full_path(session, path)
        connect.check_reachable(path)
    elif session is not None:
        hadoop = HadoopFiles(session)
        full = hadoop.qualify(path)
        return (LocalSinkFiles(), local_path(full)) if is_local(full) else (hadoop, full)
    elif (full_path := connect.known_full_path(path)) is not None:
        path = full_path
        connect.check_reachable(path)
    if is_local(path):
        return LocalSinkFiles(), local_path(path)
    if webhdfs.reaches(path):
        return webhdfs.connect(), path.rstrip("/")
    raise Refused(f"{path} is on a Hadoop file system, which is reached through Spark: start a SparkSession first")


_starters: list[Callable[[str], None]] = []


def start_on_demand(start: Callable[[str], None]) -> None:
    """For programs without a session, such as the command line: how to start one when a sink needs it."""
    _starters[:] = [start]


def session_for(path: str) -> SparkSession | None:
    """The session of this process; started if it can be and there is none."""
    if running_session() is None:
        for start in _starters:
            start(path)
    return running_session()


def running_session() -> SparkSession | None:
    """The session of this process, if there is one."""
    module = sys.modules.get("pyspark.sql")  # a session cannot run if nobody has imported pyspark
    if module is None:
        return None
    session: SparkSession | None = module.SparkSession.getActiveSession() or module.SparkSession._instantiatedSession
    return session or connect.running_session()
