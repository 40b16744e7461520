"""`Files` on an object store, exact although answers get lost.

A request that times out, breaks or is answered 5xx may have been carried out. So every object carries the identity of
the call that made it, as metadata. Who is told that a name exists looks at it: the identity of this very call means
that an earlier try has made it. Content proves nothing: two calls may write the same bytes.

A rename is a copy under a condition, and the removal of the source. The copy keeps the identity, so whoever comes
after a crash between the two sees that both are one file, as two hard links are, and removes the source.

Objects that other programs made, such as Spark's staged files, have no identity that a copy within the store would
keep. A copy of one is known by its content: of two such objects with the same bytes either may be found to have the
name. What is published under it is the same.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from epochal.sinks.storage.objects.faults import Away, Taken, TooLong
from epochal.sinks.storage.objects.patience import Patience
from epochal.sinks.storage.objects.requests import Found, Requests
from epochal.txn.files import Entry
from epochal.txn.object_paths import one_spelling

MOST_COPIED = 5 << 30  # bytes that S3 copies in one request
MOST_IN_MEMORY = 256 << 20  # bytes; a copy that the store does not make itself goes through memory
FEW_IN_MEMORY = 16 << 20  # larger ones one after the other
COMPARED = 8 << 20  # bytes at a time


Own: TypeAlias = Callable[[Found], bool]  # whether the object under a name is the one that was to get it


class ObjectFiles:
    """One bucket. A folder is what the names of objects have in common: it needs not be made, and cannot be empty.

    `check` is called before the first write, and says whether the store may be asked for conditional copies. It
    refuses a store whose conditions do not hold (`probe`).
    """

    def __init__(
        self, url: str, requests: Requests, check: Callable[[], bool], *, patience: Patience | None = None
    ) -> None:
        self._url, self._requests, self._check = one_spelling(url), requests, check
        self._patience = patience or Patience()
        self._in_memory = threading.Lock()

    def __repr__(self) -> str:
        return f"ObjectFiles({self._url!r})"

    def prove(self) -> None:
        """Refuse a store whose conditions do not hold. For writers other than this client; it does so by itself."""
        self._check()

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:  # noqa: ARG002  # always
        key = self._key(path)
        self._check()
        identity = uuid.uuid4().hex
        put = partial(self._requests.put_new, key, data, identity)
        return self._give(key, lambda there: there.identity == identity, put)

    def read(self, path: str) -> bytes:
        key = self._key(path)
        return self._patience.until_answered(lambda: self._requests.get(key))[1]

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.list(path))

    def list(self, path: str) -> list[Entry]:
        folder = self._key(path)
        objects, folders = self._patience.until_answered(lambda: self._requests.list_folder(folder))
        entries = [Entry(name, length, False) for key, length in objects if (name := _below(key, folder))]
        entries += [Entry(name, 0, True) for key in folders if (name := _below(key, folder))]
        return sorted(entries, key=lambda entry: (entry.name, entry.is_folder))

    def walk(self, path: str) -> Iterator[Entry]:
        folder = self._key(path)
        objects = self._patience.until_answered(lambda: self._requests.walk(folder))
        found = {
            name: Entry(name, length, False, etag) for key, length, etag in objects if (name := _below(key, folder))
        }
        # What is empty and has something below it is a folder's marker.
        folders = {name[:end] for name in found for end, sign in enumerate(name) if sign == "/"}
        entries = (entry for entry in found.values() if entry.length or entry.name not in folders)
        return iter(sorted(entries, key=lambda entry: entry.name.split("/")))

    def length(self, path: str) -> int | None:
        key = self._key(path)
        found = self._patience.until_answered(lambda: self._requests.length(key))
        return None if found is None else found[0]

    def modified(self, path: str) -> float | None:
        key = self._key(path)
        found = self._patience.until_answered(lambda: self._requests.length(key))
        return None if found is None else found[1]

    def rename(self, source: str, target: str) -> None:
        self._remove(self._renamed(source, target))

    def copy_over(self, source: str, target: str) -> None:
        """Give a copy of an object a name, whatever has it. FileNotFoundError if there is no such object.

        If an answer is lost, the store is asked once more. So all copies to one name must have the same content.
        """
        old, new = self._key(source), self._key(target)
        self._check()
        self._patience.until_answered(lambda: self._requests.copy(old, new))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` to before `end`."""
        return self._range(self._key(path), start, end)

    def make_folder(self, path: str) -> None:
        """Nothing to do: a folder is there as soon as something is in it."""

    def delete(self, path: str) -> None:
        """Remove an object, and everything below its name.

        If an answer is lost, the removal is sent again. So a name that others may create anew at the same time must
        not be removed; epochal never uses a removed name again.
        """
        key = self._key(path)
        self._patience.until_answered(lambda: self._requests.remove(key))

        def empty() -> None:
            before: list[str] = []
            markers = False
            # Listed again, since many removals have one answer.
            while below := [name for name, *_ in self._requests.walk(key)]:
                if below != before:
                    self._requests.remove_all(below)
                    before = below
                elif not markers:  # what stays are folders' markers of other programs
                    for name in below:
                        self._requests.remove_marker(name)
                    markers = True
                else:
                    return

        self._patience.until_answered(empty)

    def sync(self, path: str) -> None:
        """Nothing to do: what a store has answered is durable."""

    def _renamed(self, source: str, target: str) -> Found:
        """Give an object the new name; it has the old one too, which is to be removed."""
        old, new = self._key(source), self._key(target)
        may_copy = self._check()
        try:
            found, copy = self._copy(old, new, within_store=may_copy)
        except FileNotFoundError:
            raise FileNotFoundError(source) from None
        if old == new or not self._give(new, partial(self._is_copy, found), copy):
            raise FileExistsError(target)
        return found

    def _copy(self, old: str, new: str, *, within_store: bool) -> tuple[Found, Callable[[], None]]:
        """An object, and how to try once to give a copy of it to a name. FileNotFoundError if it is not there."""
        if within_store:
            there = self._look(old)
            if there is None:
                raise FileNotFoundError(old)
            return there, lambda: self._requests.copy_new(old, new)
        found, data = self._in_one(old)
        return found, lambda: self._requests.put_new(new, data, found.identity)

    def _in_one(self, key: str) -> tuple[Found, bytes]:
        """An object with all of its content."""
        try:
            return self._patience.until_answered(lambda: self._requests.get(key, most=FEW_IN_MEMORY))
        except TooLong:
            with self._in_memory:
                return self._patience.until_answered(lambda: self._requests.get(key, most=MOST_IN_MEMORY))

    def _is_copy(self, source: Found, there: Found) -> bool:
        """Whether an object is a copy of another. Without an identity that both have, their content says so."""
        if there.identity == source.identity:
            return True
        if source.is_ours or there.is_ours or source.bytes != there.bytes:
            return False
        return (source.etag is not None and source.etag == there.etag) or self._are_equal(source, there.key)

    def _are_equal(self, source: Found, key: str) -> bool:
        """Whether two objects of one length have the same content. FileNotFoundError if one is gone."""
        for start in range(0, source.bytes, COMPARED):
            end = min(start + COMPARED, source.bytes)
            if self._range(source.key, start, end) != self._range(key, start, end):
                return False
        return True

    def _range(self, key: str, start: int, end: int) -> bytes:
        return self._patience.until_answered(lambda: self._requests.get_range(key, start, end))

    def _give(self, key: str, is_own: Own, attempt: Callable[[], None]) -> bool:
        """Try until a name is taken, and say whether it is by what was to get it."""
        for is_last in self._patience.rounds():
            try:
                attempt()
            except Taken:
                there = self._look(key)
                if there is not None:
                    return is_own(there)
                if is_last:  # 409 without an object: another request was in the way, and nobody has the name
                    raise OSError(f"{self._url}/{key}: other requests were in the way each time") from None
            except Away as away:
                if is_last:
                    raise OSError(f"{away}; whether it was made is not known") from None
            except FileNotFoundError:
                there = self._look(key)  # what was to be copied is gone: has another process renamed it?
                if there is None or not is_own(there):
                    raise
                return True
            else:
                return True
        raise AssertionError

    def _remove(self, found: Found) -> None:
        """Remove this very object: not another one that has got its name since."""
        for is_last in self._patience.rounds():
            try:
                self._requests.remove(found.key)
            except Away:
                if is_last:
                    raise
                there = self._look(found.key)
                if there is None or there.identity != found.identity:
                    return
            else:
                return

    def _look(self, key: str) -> Found | None:
        return self._patience.until_answered(lambda: self._requests.look(key))

    def _key(self, path: str) -> str:
        """The name of an object within the bucket."""
        spelled = one_spelling(path).rstrip("/")
        if spelled != self._url and not spelled.startswith(f"{self._url}/"):
            parts = urlsplit(path)
            raise ValueError(f"{parts.scheme}://{parts.netloc} is not {self._url}")
        key = spelled.removeprefix(self._url).lstrip("/")
        if "\\" in key and self._url.startswith("az:"):
            raise OSError(f"{self._url}/{key}: an object cannot have this name: Azure reads a backslash as a slash")
        return key


def _below(key: str, folder: str) -> str:
    """The part of a name below a folder; empty for the folder's own marker, which other programs make.

    >>> _below("a/b/c", "a"), _below("a", "a"), _below("ab/c", "a"), _below("a", "")
    ('b/c', '', '', 'a')
    """
    prefix = f"{folder}/" if folder else ""
    return key.removeprefix(prefix).rstrip("/") if key.startswith(prefix) else ""
