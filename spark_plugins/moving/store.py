"""A folder of savepoints, of one stream or of several. They share the files that are the same in them.

::

    TARGET/
      1f0c9a2e-000000000041-5a17/manifest.json   one savepoint; created last
      objects/3b/3b5d…                           the content of a file, under its SHA-256
      taking/1f0c9a2e-000000000041-5a17.json     a savepoint that is being taken, and by which process
      sweeping.json                              objects are being removed, and by which process

Objects are created if absent and never changed. A savepoint that was killed leaves its name in `taking`, and objects;
the next one removes both. Objects are removed only while no savepoint is being taken: whoever takes one first writes
its name in `taking` and then looks for `sweeping.json`; whoever sweeps creates that file first and then looks into
`taking`. So one of the two sees the other.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from epochal.sinks.storage.sink_files import CHUNK, LocalSinkFiles, SinkFiles
from epochal.spark_plugins.moving import failpoints
from epochal.spark_plugins.moving import manifest as manifests
from epochal.spark_plugins.moving.manifest import Manifest, SavedFile
from epochal.txn.errors import DataLost, Refused
from epochal.txn.files import TEMPORARY, is_local, join
from epochal.txn.model import Json
from epochal.txn.process import Process, Running, running

OBJECTS, TAKING, SWEEPING, MANIFEST = "objects", "taking", "sweeping.json", "manifest.json"
ABANDONED = 86_400.0  # seconds after which a savepoint of a machine that cannot be asked is given up
PATIENCE = 60.0  # seconds to wait for another process that removes objects
_OBJECT = re.compile(rf"[0-9a-f]{{2}}/([0-9a-f]{{64}}|{re.escape(TEMPORARY)}[0-9a-f]{{64}}-.*)")
_NAME = re.compile(r".+-[0-9]{12,}-[0-9a-f]{4}")


@dataclass(frozen=True)
class SavepointStore:
    """The savepoints in one folder."""

    files: SinkFiles
    place: str

    def names(self) -> list[str]:
        """The folders that may be savepoints, sorted."""
        return [e.name for e in self.files.list(self.place) if e.is_folder and e.name not in (OBJECTS, TAKING)]

    def has(self, name: str) -> bool:
        """Whether there is a manifest of that name, readable or not."""
        return name in self.names() and self.files.length(join(self.place, name, MANIFEST)) is not None

    def read(self, name: str) -> Manifest | None:
        """One savepoint; None if there is none of that name, or it was given up."""
        path = join(self.place, name, MANIFEST)
        try:
            return manifests.decode(path, self.files.read(path))
        except FileNotFoundError:
            return None

    def manifests(self) -> list[Manifest]:
        """All savepoints, those of one stream together and in the order of epochs."""
        found = [manifest for name in self.names() if (manifest := self.read(name)) is not None]
        return sorted(found, key=lambda m: (m.lineage, m.epoch, m.at))

    # One savepoint that is being taken.

    def begin(self, name: str, driver: Mapping[str, Json], at: float) -> None:
        """Say that a savepoint is being taken, and wait until nobody removes objects."""
        failpoints.hit("before-savepoint-begin")
        self.files.create(self._taking(name), json.dumps({**driver, "at": at}).encode())
        failpoints.hit("after-savepoint-begin")
        deadline = time.monotonic() + PATIENCE
        while (sweeper := self._sweeper()) is not None:
            process = Process.from_json(sweeper)
            if running(process) is Running.NO:
                self.files.delete(join(self.place, SWEEPING))
            elif time.monotonic() > deadline:
                self.end(name)
                raise Refused(
                    f"{self.place}: {process.name} has been removing old files for {PATIENCE:.0f} s. "
                    f"No savepoint was taken. If that process is gone, remove {join(self.place, SWEEPING)}"
                )
            else:
                time.sleep(0.05)

    def end(self, name: str) -> None:
        """A savepoint is no longer being taken."""
        failpoints.hit("before-savepoint-end")
        self.files.delete(self._taking(name))
        failpoints.hit("after-savepoint-end")

    def put(self, file: SavedFile, chunks: Iterable[bytes]) -> bool:
        """Store the content of a file, unless it is there; False if it was."""
        path = self.object(file.sha256)
        length = self.files.length(path)
        if length == file.bytes:
            return False
        if length is not None:  # a power cut has taken the content of a file that nobody had synced
            self.files.delete(path)
        failpoints.hit("before-savepoint-object")
        created = self._quick.create_from(path, chunks)
        failpoints.hit("after-savepoint-object")
        return created

    def create(self, manifest: Manifest, unproven: Iterable[SavedFile]) -> bool:
        """Make a savepoint; False if it was given up because its process seemed to be dead.

        `unproven` are its files that no earlier savepoint has: they are brought to the disk first.
        """
        self.files.sync_all([self.object(file.sha256) for file in unproven], within=self.place)
        failpoints.hit("before-savepoint-manifest")
        created = self.files.create(join(self.place, manifest.name, MANIFEST), manifests.encode(manifest))
        failpoints.hit("after-savepoint-manifest")
        return created

    def object(self, digest: str) -> str:
        """Where the content with this digest is."""
        return join(self.place, OBJECTS, digest[:2], digest)

    def content(self, file: SavedFile) -> Iterator[bytes]:
        """The content of a file of a savepoint. DataLost, at its end, if it is not what was stored."""
        path, digest, size = self.object(file.sha256), hashlib.sha256(), 0
        try:
            for chunk in self.files.chunks(path):
                digest.update(chunk)
                size += len(chunk)
                yield chunk
        except FileNotFoundError:
            raise DataLost(f"{path} is gone, which is {file.path} of a savepoint. Use another savepoint") from None
        if (size, digest.hexdigest()) != (file.bytes, file.sha256):
            raise DataLost(
                f"{path} is not what was stored ({size} bytes, {file.bytes} were written): it is {file.path} of a "
                "savepoint. Use another savepoint, and look at what changes files there"
            )

    def verify(self, files: Iterable[SavedFile]) -> None:
        """Read the content of files back; DataLost if one is not what was stored."""
        for file in files:
            for _ in self.content(file):
                pass

    def verify_new(self, files: Iterable[SavedFile]) -> str | None:
        """The same for files that no savepoint has yet: the first that is not what it should be. It is removed then."""
        for file in files:
            try:
                self.verify([file])
            except DataLost:
                self.files.delete(self.object(file.sha256))
                return file.path
        return None

    def missing(self, manifest: Manifest) -> list[str]:
        """The files of a savepoint whose content is gone or has another length; reads no content."""
        unique = list({(f.sha256, f.bytes): f for f in manifest.files}.values())
        lengths = self.files.lengths([self.object(f.sha256) for f in unique])
        gone = {f.sha256 for f, length in zip(unique, lengths, strict=True) if length != f.bytes}
        return [f.path for f in manifest.files if f.sha256 in gone]

    # What is left over.

    def remove(self, name: str) -> None:
        """Remove a savepoint. Its objects are swept by the next one, or by `sweep`."""
        self.files.delete(join(self.place, name))

    def give_up_dead(self, own: str, now: float) -> list[str]:
        """The savepoints that were being taken by processes which are dead. `sweep` removes what they have left."""
        found = []
        for name in self._others(own):
            record = self._process(self._taking(name))
            alive = Running.NO if record is None else running(Process.from_json(record))
            begun = record.get("at") if record is not None else None
            old = isinstance(begun, int | float) and now - begun > ABANDONED
            if alive is Running.UNKNOWN and old:
                # It may wake up: it must find its name taken then.
                self.files.create(join(self.place, name, MANIFEST), manifests.encode_swept(name))
            if alive is Running.NO or (alive is Running.UNKNOWN and old):
                found.append(name)
        return found

    def sweep(self, own: str, driver: Mapping[str, Json], dead: Iterable[str] = ()) -> int:
        """Remove objects that no savepoint has, and folders without one; how many objects there were.

        Nothing is removed while another savepoint is being taken, but for those that are `dead`.
        """
        lock = join(self.place, SWEEPING)
        if not self.files.create(lock, json.dumps(dict(driver)).encode()):
            return 0
        try:
            if {*self._others(own)} - {*dead}:
                return 0
            needed = {file.sha256 for manifest in self.manifests() for file in manifest.files}
            found = [e.name for e in self.files.walk(join(self.place, OBJECTS))]
            # Only what savepoints have written: users may give a folder that holds something else too.
            unused = [n for n in found if _OBJECT.fullmatch(n) and n.rpartition("/")[2] not in needed]
            failpoints.hit("before-savepoint-sweep")
            self.files.delete_all([join(self.place, OBJECTS, name) for name in unused])
            for name in self.names():
                if _NAME.fullmatch(name) and not self.files.names(join(self.place, name)):
                    self.files.delete(join(self.place, name))
            for name in dead:  # last: a sweep that dies is repeated
                self.files.delete(self._taking(name))
            failpoints.hit("after-savepoint-sweep")
            return len(unused)
        finally:
            self.files.delete(lock)

    @property
    def _quick(self) -> SinkFiles:
        """What writes objects: `create` brings them all to the disk at once."""
        return LocalSinkFiles(sync=False) if is_local(self.place) else self.files

    def _taking(self, name: str) -> str:
        return join(self.place, TAKING, f"{name}.json")

    def _others(self, own: str) -> list[str]:
        names = [n for n in self.files.names(join(self.place, TAKING)) if not n.startswith(TEMPORARY)]
        return [name.removesuffix(".json") for name in names if name != f"{own}.json"]

    def _sweeper(self) -> dict[str, Json] | None:
        return self._process(join(self.place, SWEEPING))

    def _process(self, path: str) -> dict[str, Json] | None:
        """The process in a file; None if there is no such file."""
        try:
            found = json.loads(self.files.read(path))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def digest_of(files: SinkFiles, path: str) -> tuple[str, int]:
    """The digest and the length of a file."""
    digest, size = hashlib.sha256(), 0
    for chunk in files.chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def in_chunks(data: bytes) -> Iterator[bytes]:
    """Bytes as `SavepointStore.put` takes them."""
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]
