"""What sinks need of a file system beyond the protocol: folders that move, files that become one, many at once."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar

from epochal.txn.files import TEMPORARY, Files, LocalFiles, sync_folder

MANY = 100
AT_ONCE = 8  # threads that copy
CHUNK = 1 << 20  # bytes that are in memory while a file is copied

Item = TypeVar("Item")

Miss: TypeAlias = FileNotFoundError | FileExistsError  # what a step finds that another process has done, or undone


class SinkFiles(Files, Protocol):
    """What sinks need besides: moving folders and joining files."""

    def move_folder(self, source: str, target: str) -> None:
        """Move a folder to a name that does not exist yet; FileExistsError or FileNotFoundError otherwise."""

    def rename_limit(self) -> int | None:
        """How many bytes a file may have that is to be renamed; None for any number."""

    def creates_directly(self) -> bool:
        """Whether `create` writes under the name itself, so that a small file need not be staged and renamed."""

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

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's content, a piece at a time: it need not fit into memory. FileNotFoundError if there is none."""

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        """`create` for content that comes in pieces. The pieces are not asked for if the name exists.

        Nobody else may write other content under the name at the same time.
        """

    # The same for many files, in one request where there is a server, in parallel and in no order. An error other than
    # a `Miss` is raised and names the file; some of the steps are done then, and none is still running.

    def create_all(self, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        """`create` for many paths; files that exist are not changed."""

    def lengths(self, paths: Sequence[str]) -> Sequence[int | None]:
        """`length` for each of many paths."""

    def line_counts(self, paths: Sequence[str]) -> Sequence[int]:
        """How many lines each of many small files has: also one at the end that does not end."""

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        """`rename` for many pairs; returns for each None, or the error if it was not possible."""

    def join_all_in_place(self, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        """`join_in_place` for many groups of files, the first of each with the others; returns as `rename_all`."""

    def join_all_copies(self, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        """`join_copies` for many files, each with its sources. Not durable: `sync_all` makes them so."""

    def make_folders(self, paths: Sequence[str]) -> None:
        """`make_folder` for many paths."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """`delete` for many paths."""


def missed(act: Callable[..., None], *arguments: object) -> Miss | None:
    """The error of a step that was not possible, as `SinkFiles.rename_all` returns it; other errors are raised."""
    try:
        act(*arguments)
    except (FileNotFoundError, FileExistsError) as miss:
        return miss
    return None


def lines_in(data: bytes) -> int:
    r"""How many lines some text has.

    >>> lines_in(b""), lines_in(b"a\n"), lines_in(b"a\n\nb")
    (0, 1, 3)
    """
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def side_by_side(act: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Do something for many items in a few threads. The first error is raised once none is still running."""
    if len(items) < AT_ONCE:
        for item in items:
            act(item)
        return
    with ThreadPoolExecutor(AT_ONCE, "epochal-files") as pool:
        for _ in pool.map(act, items):
            pass


def named(files: Files, temporary: str, path: str) -> bool:
    """Give a file that was written its name; False, and the file is removed, if the name exists."""
    try:
        files.rename(temporary, path)
    except FileExistsError:
        files.delete(temporary)
        return False
    return True


class OneByOne:
    """File systems that rename anything, and where a batch gains nothing: many files are done one after the other."""

    def rename_limit(self) -> int | None:
        return None

    def creates_directly(self) -> bool:
        return False

    def create_all(self: Files, contents: Sequence[tuple[str, bytes]], *, durable: bool = True) -> None:
        for path, data in contents:
            self.create(path, data, durable=durable)

    def lengths(self: Files, paths: Sequence[str]) -> Sequence[int | None]:
        return [self.length(path) for path in paths]

    def line_counts(self: Files, paths: Sequence[str]) -> Sequence[int]:
        return [lines_in(self.read(path)) for path in paths]

    def rename_all(self: Files, moves: Sequence[tuple[str, str]]) -> Sequence[Miss | None]:
        return [missed(self.rename, *move) for move in moves]

    def join_all_in_place(self: SinkFiles, groups: Sequence[Sequence[str]]) -> Sequence[Miss | None]:
        return [missed(self.join_in_place, group[0], group[1:]) for group in groups]

    def join_all_copies(self: SinkFiles, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        side_by_side(lambda copy: self.join_copies(*copy), copies)

    def make_folders(self: Files, paths: Sequence[str]) -> None:
        for path in paths:
            self.make_folder(path)

    def delete_all(self: Files, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)


class LocalSinkFiles(OneByOne, LocalFiles):
    """Local disks."""

    def __init__(self, *, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self._named: set[tuple[str, int]] = set()  # folders whose names are synced, with their inodes
        self._synced: dict[str, int] = {}  # folders that were synced, with the time of their last change before it

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
        self._join(path, sources, skip=skip, sync=self._sync)

    def join_all_copies(self, copies: Sequence[tuple[str, Sequence[str]]]) -> None:
        side_by_side(lambda copy: self._join(*copy), copies)

    def _join(self, path: str, sources: Sequence[str], *, skip: int = 0, sync: bool = False) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as whole:
            for number, source in enumerate(sources):
                with open(source, "rb") as part:
                    part.seek(skip if number else 0)
                    shutil.copyfileobj(part, whole, 1 << 20)
            whole.flush()
            if sync:
                os.fsync(whole.fileno())

    def head(self, path: str, size: int) -> bytes:
        with open(path, "rb") as file:
            return file.read(size)

    def chunks(self, path: str) -> Iterator[bytes]:
        with open(path, "rb") as file:
            while piece := file.read(CHUNK):
                yield piece

    def create_from(self, path: str, chunks: Iterable[bytes]) -> bool:
        if os.path.lexists(path):
            return False
        folder, name = os.path.split(path)
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, f"{TEMPORARY}{name}-{uuid.uuid4().hex}")
        with open(temporary, "xb") as file:
            file.writelines(chunks)
            file.flush()
            if self._sync:
                os.fsync(file.fileno())
        return named(self, temporary, path)

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
            sync_folder(folder)
            if len(self._named) > MANY:
                self._named.clear()  # bounded, because each epoch also has folders of its own
                self._synced.clear()
            self._named |= {name for name in names if os.path.isdir(name[0])}
            self._synced[folder] = changed


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
