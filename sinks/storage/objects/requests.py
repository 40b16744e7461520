"""What is asked of an object store: each method is one request, tried once, but for listings, which have pages."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, Protocol

from epochal.sinks.storage.objects.faults import TooLong, answered, fault_of

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import ObjectStore, S3Store

# The name of the metadata that says which call made an object. Azure allows letters and digits only.
IDENTITY = "epochalid"
DELETE_AT_ONCE = 1000  # S3's limit
PART = 8 << 20  # bytes of a part of an upload in parts
PARTS_AT_ONCE = 4
MARKER_TIMEOUT = 20  # seconds


@dataclass(frozen=True, slots=True)
class Found:
    """One object. Its identity is that of the call that made it, and stays with it when it gets another name."""

    key: str
    identity: str
    is_ours: bool  # whether the identity is in its metadata: then a copy by the store has it too
    bytes: int = 0
    etag: str | None = None


class Requests(Protocol):
    """One bucket. Faults are those of `faults`."""

    def put_new(self, key: str, data: bytes, identity: str) -> None:
        """Make an object unless the name exists; `Taken` if it does."""

    def copy_new(self, source: str, key: str) -> None:
        """Copy an object with its metadata, within the store, unless the name exists; `Taken` if it does."""

    def copy(self, source: str, key: str) -> None:
        """Copy an object within the store, over whatever has the name; FileNotFoundError if there is none."""

    def put(self, key: str, data: bytes, identity: str) -> None:
        """Make an object in place of whatever has the name."""

    def put_parts(self, key: str, content: IO[bytes], identity: str) -> None:
        """The same for content of any length, in parts: the object is there when all of them are."""

    def look(self, key: str) -> Found | None:
        """What is under a name."""

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` to `end`, exclusive, which it must have; FileNotFoundError without it."""

    def get(self, key: str, *, most: int | None = None) -> tuple[Found, bytes]:
        """An object with its content; FileNotFoundError if there is none, TooLong if it has more than `most`."""

    def length(self, key: str) -> tuple[int, float] | None:
        """An object's length, and when it was made."""

    def remove(self, key: str) -> None:
        """Remove an object; no error if there is none."""

    def remove_all(self, keys: Sequence[str]) -> None:
        """Remove many objects."""

    def remove_marker(self, key: str) -> None:
        """Remove what other programs make of a folder, an empty object named ``key/``. Listings show it as ``key``."""

    def list_folder(self, prefix: str) -> tuple[list[tuple[str, int]], list[str]]:
        """The objects directly in a folder with their lengths, and its folders, by their keys."""

    def walk(self, prefix: str) -> list[tuple[str, int, str]]:
        """Every object below a folder with its length and its ETag, which is empty if it has none."""


class Client:
    """A bucket by obstore. It must be used in the process that made it, and in none that was forked from that."""

    def __init__(self, store: ObjectStore, url: str, beside: Callable[[str], S3Store] | None = None) -> None:
        """`beside` makes a store whose empty name is a folder's marker."""
        self._store, self._url, self._beside = store, url, beside
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def put_new(self, key: str, data: bytes, identity: str) -> None:
        import obstore

        with self._python_errors(key, creates=True):
            obstore.put(self._store, key, data, mode="create", attributes={IDENTITY: identity}, use_multipart=False)

    def copy_new(self, source: str, key: str) -> None:
        import obstore

        with self._python_errors(key, creates=True):
            obstore.copy(self._store, source, key, overwrite=False)

    def copy(self, source: str, key: str) -> None:
        import obstore

        with self._python_errors(source):
            obstore.copy(self._store, source, key)

    def put(self, key: str, data: bytes, identity: str) -> None:
        import obstore

        with self._python_errors(key):
            obstore.put(self._store, key, data, attributes={IDENTITY: identity}, use_multipart=False)

    def put_parts(self, key: str, content: IO[bytes], identity: str) -> None:
        import obstore

        with self._python_errors(key):
            obstore.put(
                self._store,
                key,
                content,
                attributes={IDENTITY: identity},
                use_multipart=True,
                chunk_size=PART,
                max_concurrency=PARTS_AT_ONCE,
            )

    def look(self, key: str) -> Found | None:
        import obstore

        try:
            with self._python_errors(key):
                answer = obstore.get(self._store, key, options={"head": True})
        except FileNotFoundError:
            return None
        return _found(key, answer)

    def get(self, key: str, *, most: int | None = None) -> tuple[Found, bytes]:
        import obstore

        with self._python_errors(key):
            answer = obstore.get(self._store, key)
            length = answer.meta["size"]
            if most is not None and length > most:
                raise TooLong(f"{self._url}/{key}: {length} bytes; what the store does not copy may have {most}")
            return _found(key, answer), bytes(answer.bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        import obstore

        with self._python_errors(key):
            return bytes(obstore.get_range(self._store, key, start=start, end=end))

    def length(self, key: str) -> tuple[int, float] | None:
        import obstore

        try:
            with self._python_errors(key):
                meta = obstore.head(self._store, key)
        except FileNotFoundError:
            return None
        return meta["size"], meta["last_modified"].timestamp()

    def remove(self, key: str) -> None:
        import obstore

        try:
            with self._python_errors(key):
                obstore.delete(self._store, key)
        except FileNotFoundError:
            pass  # Azure and Google say so

    def remove_all(self, keys: Sequence[str]) -> None:
        import obstore

        for start in range(0, len(keys), DELETE_AT_ONCE):
            group = keys[start : start + DELETE_AT_ONCE]
            try:
                with self._python_errors(group[0]):
                    obstore.delete(self._store, group)
            except FileNotFoundError:
                # As above. The first that is missing ends it: others may still be there.
                for key in group:
                    self.remove(key)

    def remove_marker(self, key: str) -> None:
        import obstore

        if self._beside is None:
            return  # not S3: it stays, and only costs its place in listings
        with self._python_errors(key):
            # obstore drops the slash at the end of a name, but signs what it is asked to.
            address = obstore.sign(self._beside(key), "DELETE", "", timedelta(minutes=1))
        status: int | None = None
        try:
            with urllib.request.urlopen(
                urllib.request.Request(address, method="DELETE"), timeout=MARKER_TIMEOUT
            ) as answer:
                status = answer.status
        except urllib.error.HTTPError as fault:
            status = fault.code
        except OSError:
            pass  # no answer; its text could quote the signature
        if status is None or status >= 300:
            raise answered(f"{self._url}/{key}/", status)

    def list_folder(self, prefix: str) -> tuple[list[tuple[str, int]], list[str]]:
        import obstore

        with self._python_errors(prefix):
            answer = obstore.list_with_delimiter(self._store, prefix or None)
        return [(meta["path"], meta["size"]) for meta in answer["objects"]], [*answer["common_prefixes"]]

    def walk(self, prefix: str) -> list[tuple[str, int, str]]:
        import obstore

        with self._python_errors(prefix):
            pages = obstore.list(self._store, prefix or None, chunk_size=DELETE_AT_ONCE)
            return [(meta["path"], meta["size"], meta.get("e_tag") or "") for page in pages for meta in page]

    @contextmanager
    def _python_errors(self, key: str, *, creates: bool = False) -> Iterator[None]:
        if os.getpid() != self._process:
            # Its threads are not here: the first request would wait for ever.
            raise OSError(f"{self._url}: an object store cannot be used in a forked process; start a new one")
        try:
            yield
        except Exception as fault:
            meant = fault_of(f"{self._url}/{key}", fault, creates=creates)
            if meant is fault:
                raise
            raise meant from None


def _found(key: str, answer: GetResult) -> Found:
    own = answer.attributes.get(IDENTITY)
    meta = answer.meta
    return Found(key, own or _derived(meta), own is not None, meta["size"], meta.get("e_tag"))


def _derived(meta: ObjectMeta) -> str:
    """The identity of an object that epochal has not made: a copy of it under another name has another one."""
    told: list[Any] = [meta["path"], meta.get("e_tag"), meta.get("version"), meta["size"], meta["last_modified"]]
    return "by-others-" + hashlib.sha256("\0".join(map(str, told)).encode()).hexdigest()[:32]
