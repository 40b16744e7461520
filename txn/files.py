"""The few file operations that the protocol stands on, and their local implementation.

Each is atomic on the file systems that are supported: `create` and `rename` have exactly one
winner, whoever else tries at the same time. On Hadoop file systems the JVM's FileContext does it
(`epochal.sinks.hadoop`); on local disks only `os.link` does: Hadoop's local rename has let two
racers win.
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
        """Make a file with this content unless the name is taken; True for the one that made it.

        Without `durable` a power cut may take it back, whole; never a part of it is seen.
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
        """Move a file to a name that is free; FileExistsError or FileNotFoundError otherwise."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; no error if it is there."""

    def delete(self, path: str) -> None:
        """Remove a file or a whole folder; no error if it is gone."""

    def sync(self, path: str) -> None:
        """Bring a file that another process wrote to stable storage."""


class JoiningFiles(Files, Protocol):
    """What sinks need beyond the protocol: folders that move, and files that become one."""

    def move_folder(self, source: str, target: str) -> None:
        """Give a folder a name that is free; FileExistsError or FileNotFoundError otherwise."""

    def joins_in_place(self, folder: str) -> bool:
        """Whether `join_in_place` works for files below a folder."""

    def join_in_place(self, path: str, others: Sequence[str]) -> None:
        """Add other files to the end of one, at once and without copying; the others are gone then."""

    def sync_all(self, paths: Sequence[str], *, within: str) -> None:
        """`sync` for many files, and for the folders that lead to them from `within`, that one included.

        A file is not there after a power cut if the name of its folder was not on stable storage.
        """

    def join_copies(self, path: str, sources: Sequence[str], *, skip: int = 0) -> None:
        """Make a new file of the contents of others, durably. A crash leaves a part of it.

        `skip` so many bytes at the beginning of all but the first.
        """

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a file; all of them if it has fewer."""

    # The same for many files: in one message where there is a server, side by side, in no order. A fault other than a
    # `Miss` is raised, and says which file it was; then some of the steps are done, and none is at work any more.

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        """`create` for many paths; a name that is taken stays as it is."""

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        """`length` for each of many paths."""

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        """`rename` for many pairs; for each, why it was not possible, or None if it is done."""

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        """`join_in_place` for many groups of files, the first of each with the others; answers as `rename_all`."""

    def make_folders(self, paths: Sequence[str]) -> None:
        """`make_folder` for many paths."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """`delete` for many paths."""


def missed(act: Callable[..., None], *arguments: object) -> Miss | None:
    """Why a step was not possible, as `JoiningFiles.rename_all` answers; other faults are raised."""
    try:
        act(*arguments)
    except (FileNotFoundError, FileExistsError) as miss:
        return miss
    return None


class OneByOne:
    """The operations on many files, where there is nothing to be gained by doing them at once."""

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


def inner(name: str) -> str:
    """A relative path that a record names, as it is; JournalCorrupt if it could lead out of any folder.

    >>> inner("day=1/part-0")
    'day=1/part-0'
    """
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise JournalCorrupt(
            f"a record names a place outside the folder that it belongs to: {name!r}. epochal writes no such name: the "
            "record was changed. Nothing was touched; restore it from a copy"
        )
    return name


def below(folder: str, name: str) -> str:
    """A path below a folder that a record names. Whatever is moved, read or removed by a record goes through here."""
    return join(folder, inner(name))


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
    """What a folder is, whatever links lead to it and however its host is called.

    >>> identity_of("hdfs://localhost:9000/data/") == identity_of("hdfs://127.0.0.1:9000/data")
    True
    """
    if is_local(path):
        real = os.path.realpath(local_path(path))
        try:
            found = os.stat(real)
        except OSError:
            return real
        return f"{found.st_dev}:{found.st_ino}"  # one folder may be mounted in several places
    parts = urlsplit(path)
    try:
        host = socket.gethostbyname(parts.hostname or "")
    except OSError:
        host = parts.hostname or ""  # a logical name, or one that this machine does not know
    return f"{parts.scheme}://{host}:{parts.port or ''}{parts.path.rstrip('/')}"


def walk(files: Files, path: str) -> Iterator[Entry]:
    """Every file below a folder, from listings."""
    for entry in files.list(path):
        if entry.is_folder:
            for below in walk(files, join(path, entry.name)):
                yield Entry(f"{entry.name}/{below.name}", below.length, False)
        else:
            yield entry


def sweep(files: Files, folder: str) -> list[str]:
    """Remove the temporary files of writers that died; a live one makes its file again. Returns their names."""
    stray = [name for name in files.names(folder) if name.startswith(TEMPORARY)]
    for name in stray:
        files.delete(join(folder, name))
    return stray


def create_by_rename(files: Files, path: str, write: Callable[[str], None]) -> bool:
    """`Files.create` where a rename has one winner: written under another name, which is then changed."""
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
    raise swept_thrice(path)


def swept_thrice(path: str) -> OSError:
    """What `Files.create` says when its temporary file does not live long enough."""
    folder = path.rpartition("/")[0]
    return OSError(f"{path}: the temporary file vanished three times; is another program cleaning {folder}?")


class LocalFiles(OneByOne):
    """Local disks. Everything that must survive a power cut is synced before it gets its name.

    Without `sync` it survives the death of any process, but not of the machine.
    """

    def __init__(self, *, sync: bool = True) -> None:
        self._sync = sync
        self._named: set[tuple[str, int]] = set()  # folders whose names are on stable storage, with their inodes

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
        raise swept_thrice(path)

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
            # Somebody else is removing the same tree. What remains is theirs or the next sweep's.
            if os.path.isdir(path):
                self.delete(path)

    def move_folder(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)  # takes the place of a folder that is empty, and of nothing else
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
            os.sync()  # thousands of buckets, each with its file: all at once is far less than one by one
            return
        for path in paths:
            self.sync(path)
        for folder, entries in _leading_to(paths, within):
            names = {(entry, os.stat(entry).st_ino) for entry in entries}
            if names <= self._named:
                continue  # the folders of a stream are made once, and come back in every epoch
            _sync_folder(folder)
            if len(self._named) > MANY:
                self._named.clear()  # each epoch has folders of its own too
            self._named |= {name for name in names if os.path.isdir(name[0])}

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
    """Make a folder and those above it; the names of new ones are brought to stable storage."""
    new, folder = [], path
    while folder and not os.path.isdir(folder):
        new.append(folder)
        folder = os.path.dirname(folder)
    os.makedirs(path, exist_ok=True)
    for made in new if sync else ():
        _sync_folder(os.path.dirname(made) or ".")


def _leading_to(paths: Sequence[str], within: str) -> list[tuple[str, set[str]]]:
    """The folders from `within` to some files, the deepest first, each with what leads on from it."""
    found: dict[str, set[str]] = {}
    for path in paths:
        folder, entry = os.path.dirname(path), path
        while os.path.commonpath([folder, within]) == within:
            is_new = folder not in found
            found.setdefault(folder, set()).add(entry)
            if not is_new:
                break
            folder, entry = os.path.dirname(folder), folder
    return sorted(found.items(), key=lambda item: (-item[0].count("/"), item[0]))


def _sync_folder(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # a folder that we may pass through and not look into is another's to keep
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
