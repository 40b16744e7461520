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
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from epochal.txn.errors import JournalCorrupt
from epochal.txn.object_paths import is_object_store, one_spelling

TEMPORARY = ".epochal-tmp-"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    length: int
    is_folder: bool
    # Another one for another content of the same length, where listings tell it; else empty.
    version: str = field(default="", compare=False)


class Files(Protocol):
    """File operations on one file system. Paths are strings in the file system's own spelling."""

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Create a file with this content unless the name exists; True if this call created it.

        A call that fails, for example because the disk is full, leaves nothing behind if it can still delete.
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

    def modified(self, path: str) -> float | None:
        """When a file was written last, in seconds since 1970 by the file system's clock; None if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Move a file to a name that does not exist yet; FileExistsError or FileNotFoundError otherwise."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents; no error if it exists."""

    def delete(self, path: str) -> None:
        """Remove a file or a whole folder; no error if it does not exist."""

    def sync(self, path: str) -> None:
        """Bring a file that another process wrote, or the names in a folder, to stable storage."""


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
    parts = f"/{name}/"  # searched, not split: a start checks the names of all that is open
    if "\0" in name or "//" in parts or "/./" in parts or "/../" in parts:
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
    if is_object_store(path):
        return one_spelling(path)
    parts = urlsplit(path)
    try:
        host = socket.gethostbyname(parts.hostname or "")
    except OSError:
        host = parts.hostname or ""  # a logical name, or one that this machine does not know
    return f"{parts.scheme}://{host}:{parts.port or ''}{parts.path.rstrip('/')}"


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or is inside it, by name and, on local disks, by every link to it.

    >>> is_within("/c/epochal", "/c/"), is_within("/c", "/c"), is_within("/cc", "/c"), is_within("hdfs://h/c/d", "/c")
    (True, True, False, False)
    >>> is_within("/a#b/target", "/a#b/checkpoint"), is_within("/a?b/c/d", "/a?b/c")
    (False, True)
    """
    if is_local(path) != is_local(folder):
        return False
    if is_local(path):
        path, folder = (os.path.realpath(local_path(place)) for place in (path, folder))
    path, folder = one_spelling(path), one_spelling(folder)
    # As text: in a path, `?` and `#` are characters like any other.
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def walk(files: Files, path: str) -> Iterator[Entry]:
    """Every file below a folder, by listing each folder."""
    for entry in files.list(path):
        if entry.is_folder:
            for below in walk(files, join(path, entry.name)):
                yield Entry(f"{entry.name}/{below.name}", below.length, False, below.version)
        else:
            yield entry


def sweep(files: Files, folder: str) -> list[str]:
    """Remove the temporary files of writers that died; a live writer creates its file again. Returns their names."""
    temporary = [name for name in files.names(folder) if name.startswith(TEMPORARY)]
    for name in temporary:
        files.delete(join(folder, name))
    return temporary


def check_own(files: Files, folder: str, is_own: Callable[[str], bool]) -> None:
    """Raise OSError if a folder holds other files than one's own: it is, say, the journal of another stream."""
    foreign = next((name for name in files.names(folder) if not (name.startswith(".") or is_own(name))), None)
    if foreign is not None:
        raise OSError(f"{folder} is used for something else: it holds {foreign}. Nothing is written or removed there")


def create_by_rename(files: Files, path: str, write: Callable[[str], None]) -> bool:
    """`Files.create` for file systems where a rename has one winner: write a temporary file, then rename it."""
    folder, _, name = path.rpartition("/")
    if files.length(path) is not None:
        return False
    for _ in range(3):
        temporary = join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
        try:
            write(temporary)
            files.rename(temporary, path)
        except FileExistsError:
            files.delete(temporary)
            return False
        except FileNotFoundError:
            continue  # a newer start swept our temporary file: try once more
        except OSError:
            with suppress(OSError):  # the first error matters; the next start sweeps what is left
                files.delete(temporary)
            raise
        return True
    raise temporary_file_vanished(path)


def temporary_file_vanished(path: str) -> OSError:
    """The error of `Files.create` when its temporary file is removed again and again."""
    folder = path.rpartition("/")[0]
    return OSError(f"{path}: the temporary file vanished three times; is another program cleaning {folder}?")


class LocalFiles:
    """Local disks. What must survive a power cut is synced before it gets its name.

    Without `sync`, files survive the death of any process but not a power cut.
    """

    def __init__(self, *, sync: bool = True) -> None:
        self._sync = sync

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        folder, name = os.path.split(path)
        for _ in range(3):
            if os.path.lexists(path):
                return False
            temporary = os.path.join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
            _make_folders(folder, sync=self._sync and durable)
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            try:
                try:
                    _write_all(descriptor, data)
                    if self._sync:  # also if not durable: a name must never come back with half its content
                        os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.link(temporary, path)
            except FileExistsError:
                _unlink(temporary)  # unless a newer start has swept it
                return False
            except FileNotFoundError:
                continue  # a newer start swept our temporary file: try once more
            except OSError:  # a full disk
                with suppress(OSError):  # the first error matters; the next start sweeps what is left
                    _unlink(temporary)
                raise
            _unlink(temporary)
            if self._sync and durable:
                sync_folder(folder)
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

    def modified(self, path: str) -> float | None:
        try:
            return os.stat(path).st_mtime
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
    except OSError as fault:
        if fault.errno not in (errno.ENOENT, errno.ELOOP):  # a link to nothing, or to itself
            raise
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
        sync_folder(os.path.dirname(made) or ".")


def sync_folder(path: str) -> None:
    """Bring the names in a local folder to stable storage."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # a folder that this user may not read was created by another, who syncs it
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
