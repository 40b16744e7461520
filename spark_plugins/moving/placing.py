"""A checkpoint that comes to be. How it appears as a whole depends on the file system: `by_rename`, `in_place`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from epochal.sinks.storage.paths import spark_path
from epochal.sinks.storage.sink_files import LocalSinkFiles, SinkFiles
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.moving import failpoints, layout, schema_paths
from epochal.spark_plugins.moving.manifest import Manifest, SavedFile
from epochal.spark_plugins.moving.origin import Origin
from epochal.spark_plugins.moving.store import SavepointStore
from epochal.spark_plugins.moving.taking import OnProgress, Progress, counters_of
from epochal.spark_plugins.restore_marks import content_of
from epochal.txn.checkpoint import sample_of_offsets
from epochal.txn.errors import Refused
from epochal.txn.files import is_local, join
from epochal.txn.journal import Journal

AT_ONCE = 8  # files that are written at a time


@dataclass(frozen=True)
class Placing(ABC):
    """A checkpoint that is to be at `path`. It is written into `folder`."""

    files: SinkFiles
    path: str
    folder: str

    @abstractmethod
    def check(self, written: Iterable[str]) -> None:
        """Refused if another restore has made the checkpoint meanwhile, or has removed what was written here."""

    @abstractmethod
    def publish(self, written: Iterable[str]) -> None:
        """Let the checkpoint appear, if all that was written is there. `written` is everything."""

    @abstractmethod
    def give_up(self) -> None:
        """Remove what was written."""

    def journal(self, incarnation: int) -> Journal:
        """The journal in use, as it will be."""
        return Journal(self.files, join(self.path, layout.journal_folder(incarnation)))

    def sample(self) -> str | None:
        """The digest of what the savepoint's epoch has read."""
        return sample_of_offsets(SparkCheckpoint(self.files, self.folder))

    def write(
        self, store: SavepointStore, manifest: Manifest, on_progress: OnProgress, instead: Mapping[str, bytes]
    ) -> list[str]:
        """Write everything but the journal; the names. `instead` are files with another content."""
        wanted = [f for f in manifest.files if not layout.is_of_journal(f.path.partition("/")[0])]
        size = sum(file.bytes for file in wanted)
        done = copied = 0
        written: list[str] = []
        with self._refusals(), ThreadPoolExecutor(AT_ONCE, "epochal-restore") as pool:
            for file, is_written in pool.map(lambda f: self._write_one(store, f, instead.get(f.path)), wanted):
                written += [file.path] if is_written else []
                done, copied = done + 1, copied + file.bytes
                on_progress(Progress(done, len(wanted), copied, size))
        return written

    def _write_one(self, store: SavepointStore, file: SavedFile, instead: bytes | None) -> tuple[SavedFile, bool]:
        base = file.path.removesuffix(".crc")
        if base != file.path and schema_paths.has_paths(base):
            return file, False  # Spark's checksum of a file that is changed here
        content: Iterator[bytes] = store.content(file)
        if instead is not None:
            content = iter([instead])
        elif schema_paths.has_paths(file.path):
            content = iter([schema_paths.moved(b"".join(content), spark_path(self.path))])
        failpoints.hit("before-restore-file")
        path = join(self.folder, file.path)
        if not self._quick.create_from(path, content):
            raise FileExistsError(path)
        failpoints.hit("after-restore-file")
        return file, True

    def write_journal(self, content: Mapping[str, bytes], incarnation: int) -> list[str]:
        """Write the journals' files, and read back the one in use; the names."""
        failpoints.hit("before-restore-journal")
        with self._refusals():
            for path, data in content.items():
                self._create(path, data)
        failpoints.hit("after-restore-journal")
        Journal(self.files, join(self.folder, layout.journal_folder(incarnation))).read()
        return list(content)

    def carry_plan(self, epoch: int, live: Origin) -> list[str]:
        """Give Spark the original's plan of the first epoch that is there already: it replays that to the letter.

        Not if the log of a file source has been compacted since: then Spark plans it anew. Returns what was written.
        """
        try:
            offsets = live.files.read(join(live.path, "offsets", str(epoch)))
            counters = counters_of(offsets)
            names = [f"{layout.SOURCES}/{e.name}" for e in live.files.walk(join(live.path, layout.SOURCES))]
            entries = [name for name in names if layout.belongs(name, epoch, counters)]
            if not layout.reach(entries, counters):
                return []
            content = {name: live.files.read(join(live.path, name)) for name in entries}
        except FileNotFoundError:
            return []
        with self._refusals():
            new = self._new_of(content)
            if new is None:
                return []
            plan = {**new, f"offsets/{epoch}": offsets}
            for name, data in plan.items():
                self._create(name, data)
        return list(plan)

    @abstractmethod
    def _new_of(self, content: Mapping[str, bytes]) -> Mapping[str, bytes] | None:
        """Those of some files that are to be written; None if another file has one of the names and cannot go."""

    def _create(self, name: str, data: bytes) -> None:
        path = join(self.folder, name)
        if not self._quick.create(path, data):
            raise FileExistsError(path)

    def _whole(self, written: Iterable[str]) -> list[str]:
        """What is in the folder. FileNotFoundError if something is missing."""
        there = content_of(self.files, self.folder)
        if missing := {*written} - {*there}:
            raise FileNotFoundError(min(missing))
        return there

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """What another restore into the same folder does to this one is Refused."""
        try:
            yield
        except FileExistsError:
            raise Refused(
                f"{self.path} has come to be while this ran: another restore or query uses it. Restore into another "
                "folder"
            ) from None
        except FileNotFoundError as fault:
            raise Refused(
                f"{self.folder} was removed while this ran, by another restore into {self.path}: "
                f"{fault.filename or fault} is gone. No checkpoint was made by this command. If the other one has not "
                "made it either, run the command again"
            ) from None

    @property
    def _quick(self) -> SinkFiles:
        """Files that are brought to the disk all at once, before they get their place."""
        return LocalSinkFiles(sync=False) if is_local(self.path) else self.files
