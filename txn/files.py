"""The few file operations that the protocol needs, and their implementation for local disks.

Each is atomic on the supported file systems: of several processes that `create` or `rename` at the
same time exactly one succeeds. On Hadoop file systems the JVM's FileContext guarantees it
(`epochal.sinks.storage.hadoop`), on local disks `os.link`: with Hadoop's local rename two processes
have both succeeded.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from epochal.txn.errors import JournalCorrupt

TEMPORARY = ".epochal-tmp-"
MANY = 100

Miss: TypeAlias = FileNotFoundError | FileExistsError  # what a step finds that another process has done, or undone


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    length: int
    is_folder: bool


class Files(Protocol):
    """File operations on one file system. Paths are strings in the file system's own spelling."""

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Create a file with this content unless the name exists; True if this call created it.

        Without `durable` a power cut may undo it completely, but no reader ever sees a part of it.
        """

    def read(self, path: str) -> bytes:
        """A file's content; FileNotFoundError if there is none."""

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted; none if there is no such folder."""

    def list(self, path: str) -> list[Entry]:
        """What is in a folder, by name; nothing if there is no such folder."""

    def walk(self, path: str) -> Iterator[Entry]:
        """Every file below a folder, its name relative to the folder, in order of name."""

    def length(self, path: str) -> int | None:
        """A file's length, or None if there is no such file."""

    def rename(self, source: str, target: str) -> None:
        """Move a file to a name that does not exist yet; FileExistsError or FileNotFoundError otherwise."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents; no error if it exists."""

    def delete(self, path: str) -> None:
        """Remove a file or a whole folder; no error if it does not exist."""

    def sync(self, path: str) -> None:
        """Bring a file that another process wrote to stable storage."""


class JoiningFiles(Files, Protocol):
    """What sinks need besides: moving folders and joining files."""

    def move_folder(self, source: str, target: str) -> None:
        """Move a folder to a name that does not exist yet; FileExistsError or FileNotFoundError otherwise."""

    def joins_in_place(self, folder: str) -> bool:
        """Whether `join_in_place` works for files below a folder."""

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        """Append other files to one, atomically and without copying; the others no longer exist then."""

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        """`sync` for many files and all their parent folders up to `within`, inclusive.

        Without the folders, a power cut may lose the name of a file although its content was synced.
        """

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        """Create a file from the contents of others, durably. A crash may leave a part of it.

        `skip` is the number of bytes to leave out at the beginning of all but the first.
        """

    def head(self, path: str, size: int) -> bytes:
        """The first `size` bytes of a file, or all if it has fewer."""

    # The same for many files, in one request where there is a server, in parallel and in no order. An error other than
    # a `Miss` is raised and names the file; some of the steps are done then, and none is still running.

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        """`create` for many paths; files that exist are not changed."""

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        """`length` for each of many paths."""

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        """`rename` for many pairs; returns for each None, or the error if it was not possible."""

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        """`join_in_place` for many groups of files, the first of each with the others; returns as `rename_all`."""

    def make_folders(self, paths: Sequence[str]) -> None:
        """`make_folder` for many paths."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """`delete` for many paths."""


def missed(act: Callable[..., None], *arguments: object) -> Miss | None:
    """The error of a step that was not possible, as `JoiningFiles.rename_all` returns it; other errors are raised."""
    try:
        act(*arguments)
    except (FileNotFoundError, FileExistsError) as miss:
        return miss
    return None


class OneByOne:
    """The operations on many files, one after the other, for file systems where a batch gains nothing."""

    def create_all(self: Files, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        for path, data in contents:
            self.create(path, data, durable=durable)

    def lengths(self: Files, paths: Sequence[str]) -> Sequence[int | None]:
        return [self.length(path) for path in paths]

    def rename_all(self: Files, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        return [missed(self.rename, *move) for move in moves]

    def join_all_in_place(self: JoiningFiles, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        return [missed(self.join_in_place, group[0], group[1:]) for group in groups]

    def make_folders(self: Files, paths: Sequence[str]) -> None:
        for path in paths:
            self.make_folder(path)

    def delete_all(self: Files, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)


def join(folder: str, *names: str) -> str:
    """A path below a folder.

    >>> join("hdfs://host/data/", "a", "b")
    'hdfs://host/data/a/b'
    """
    return "/".join([folder.rstrip("/") or "", *names])


def checked_relative(name: str) -> str:
    """A relative path from a record, unchanged; JournalCorrupt if it could lead out of its folder.

    >>> checked_relative("day=1/part-0")
    'day=1/part-0'
    """
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise JournalCorrupt(
            f"a record names a place outside of its folder: {name!r}. epochal never writes such a name: the record was "
            "changed. Nothing was touched; restore the record from a copy"
        )
    return name


def below(folder: str, name: str) -> str:
    """A path below a folder, with a name from a record. Every path that is taken from a record goes through here."""
    return join(folder, checked_relative(name))


def is_local(path: str) -> bool:
    """Whether a path or URI names the local file system.

    >>> is_local("/data"), is_local("file:/data"), is_local("hdfs://host/data")
    (True, True, False)
    """
    return urlsplit(path).scheme in ("", "file")


def local_path(path: str) -> str:
    """The plain absolute path of a local path or file: URI.

    Nothing is unescaped, because Hadoop does not do it either: its ``file:/a%20b`` is not ``/a b``.

    >>> local_path("file:///data/a b#1")
    '/data/a b#1'
    """
    if path.startswith("file://"):
        path = "/" + path.removeprefix("file://").partition("/")[2]
    return os.path.abspath(path.removeprefix("file:"))


def identity_of(path: str) -> str:
    """An identity of a folder, the same for every link to it and every name of its host.

    >>> identity_of("hdfs://localhost:9000/data/") == identity_of("hdfs://127.0.0.1:9000/data")
    True
    """
    if is_local(path):
        real = os.path.realpath(local_path(path))
        try:
            status = os.stat(real)
        except OSError:
            return real
        return f"{status.st_dev}:{status.st_ino}"  # one folder may be mounted in several places
    parts = urlsplit(path)
    try:
        host = socket.gethostbyname(parts.hostname or "")
    except OSError:
        host = parts.hostname or ""  # a logical name, or one that this machine does not know
    return f"{parts.scheme}://{host}:{parts.port or ''}{parts.path.rstrip('/')}"


def walk(files: Files, path: str) -> Iterator[Entry]:
    """Every file below a folder, by listing each folder."""
    for entry in files.list(path):
        if entry.is_folder:
            for below in walk(files, join(path, entry.name)):
                yield Entry(f"{entry.name}/{below.name}", below.length, False)
        else:
            yield entry


def sweep(files: Files, folder: str) -> list[str]:
    """Remove the temporary files of writers that died; a live writer creates its file again. Returns their names."""
    temporary = [name for name in files.names(folder) if name.startswith(TEMPORARY)]
    for name in temporary:
        files.delete(join(folder, name))
    return temporary


def create_by_rename(files: Files, path: str, write: Callable[[str], None]) -> bool:
    """`Files.create` for file systems where a rename has one winner: write a temporary file, then rename it."""
    folder, _, name = path.rpartition("/")
    if files.length(path) is not None:
        return False
    for _ in range(3):
        temporary = join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
        write(temporary)
        try:
            files.rename(temporary, path)
        except FileExistsError:
            files.delete(temporary)
            return False
        except FileNotFoundError:
            continue  # a newer start swept our temporary file: try once more
        return True
    raise temporary_file_vanished(path)


def temporary_file_vanished(path: str) -> OSError:
    """The error of `Files.create` when its temporary file is removed again and again."""
    folder = path.rpartition("/")[0]
    return OSError(f"{path}: the temporary file vanished three times; is another program cleaning {folder}?")


class LocalFiles(OneByOne):
    """Local disks. What must survive a power cut is synced before it gets its name.

    Without `sync`, files survive the death of any process but not a power cut.
    """

    def __init__(self, *, sync: bool = True) -> None:
        self._sync = sync
        self._named: set[tuple[str, int]] = set()  # folders whose names are synced, with their inodes
        self._synced: dict[str, int] = {}  # folders that were synced, with the time of their last change before it

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        folder, name = os.path.split(path)
        for _ in range(3):
            if os.path.lexists(path):
                return False
            temporary = os.path.join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
            _make_folders(folder, sync=self._sync and durable)
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            try:
                _write_all(descriptor, data)
                if self._sync:  # also if not durable: a name must never come back with half its content
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                os.link(temporary, path)
            except FileExistsError:
                _unlink(temporary)  # unless a newer start has swept it
                return False
            except FileNotFoundError:
                continue  # a newer start swept our temporary file: try once more
            _unlink(temporary)
            if self._sync and durable:
                _sync_folder(folder)
            return True
        raise temporary_file_vanished(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def list(self, path: str) -> list[Entry]:
        try:
            with os.scandir(path) as entries:
                return sorted((_entry(e) for e in entries), key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, path: str) -> Iterator[Entry]:
        return walk(self, path)

    def length(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def rename(self, source: str, target: str) -> None:
        try:
            os.link(source, target)
        except FileExistsError:
            # Linked but not yet unlinked: what a crash between the two leaves behind.
            if not (os.path.exists(source) and os.path.samefile(source, target)):
                raise
        _unlink(source)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def delete(self, path: str) -> None:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            # Another process is removing the same folder: remove what is left of it.
            if os.path.isdir(path):
                self.delete(path)

    def move_folder(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)  # replaces only an empty folder
        except OSError as fault:
            if fault.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(target) from None
            raise

    def joins_in_place(self, folder: str) -> bool:  # noqa: ARG002  # nowhere
        return False

    def join_in_place(self, path: str, others: Sequence[str]) -> None:  # noqa: ARG002
        raise OSError(f"{path}: a local file system cannot join files without copying them")

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as whole:
            for number, source in enumerate(sources):
                with open(source, "rb") as part:
                    part.seek(skip if number else 0)
                    shutil.copyfileobj(part, whole, 1 << 20)
            whole.flush()
            if self._sync:
                os.fsync(whole.fileno())

    def head(self, path: str, size: int) -> bytes:
        with open(path, "rb") as file:
            return file.read(size)

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        if not self._sync:
            return
        if len(paths) > MANY:
            os.sync()  # for thousands of files much faster than one by one
            return
        for path in paths:
            self.sync(path)
        for folder, entries in _parents(paths, within):
            names = {(entry, os.stat(entry).st_ino) for entry in entries}
            changed = os.stat(folder).st_mtime_ns  # a folder that was created again may have the same inode
            if names <= self._named and self._synced.get(folder) == changed:
                continue  # the folders of a stream are created once and used in every epoch
            _sync_folder(folder)
            if len(self._named) > MANY:
                self._named.clear()  # bounded, because each epoch also has folders of its own
                self._synced.clear()
            self._named |= {name for name in names if os.path.isdir(name[0])}
            self._synced[folder] = changed

    def sync(self, path: str) -> None:
        if not self._sync:
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _entry(entry: os.DirEntry[str]) -> Entry:
    if entry.is_dir(follow_symlinks=False):
        return Entry(entry.name, 0, True)
    try:
        return Entry(entry.name, entry.stat().st_size, False)
    except FileNotFoundError:
        return Entry(entry.name, 0, False)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # another process finished the same step


def _make_folders(path: str, *, sync: bool) -> None:
    """Create a folder and its parents; with `sync` the names of new ones are synced."""
    new, folder = [], path
    while folder and not os.path.isdir(folder):
        new.append(folder)
        folder = os.path.dirname(folder)
    os.makedirs(path, exist_ok=True)
    for made in new if sync else ():
        _sync_folder(os.path.dirname(made) or ".")


def _parents(paths: Sequence[str], within: str) -> list[tuple[str, set[str]]]:
    """All parent folders of some files up to `within`, the deepest first, each with its entries on these paths."""
    entries: dict[str, set[str]] = {}
    for path in paths:
        folder, entry = os.path.dirname(path), path
        while os.path.commonpath([folder, within]) == within:
            is_new = folder not in entries
            entries.setdefault(folder, set()).add(entry)
            if not is_new:
                break
            folder, entry = os.path.dirname(folder), folder
    return sorted(entries.items(), key=lambda item: (-item[0].count("/"), item[0]))


def _sync_folder(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # a folder that this user may not read was created by another, who syncs it
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
