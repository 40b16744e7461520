"""A checkpoint on an object store, where no folder has a name to change: its files are written where they are to be.

From the first mark (`restore_marks`) to the last no query starts there. So one restore at a time writes: while the
process of the first mark runs, or may run on another machine, another one is refused. If it has died, the next restore
removes what it has left. The last mark is created once exactly what was to be written is there.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from epochal.sinks.storage.sink_files import SinkFiles
from epochal.spark_plugins.moving import failpoints
from epochal.spark_plugins.moving.placing import Placing
from epochal.spark_plugins.restore_marks import FOLDER, Mark, Marks
from epochal.txn.errors import Refused
from epochal.txn.files import join
from epochal.txn.process import Running, running, this_process


@dataclass(frozen=True)
class InPlace(Placing):
    """On an object store: `folder` is `path`."""

    mark: Mark  # of this restore

    @staticmethod
    def at(files: SinkFiles, path: str, savepoint: str) -> InPlace:
        """A place that is free, which no other restore gets from now on. What a dead one has left is removed."""
        marks = Marks(files, path)
        last = marks.last()
        is_left = last is not None and last.is_begun
        if last is not None and is_left:
            _refuse_running(path, last)
        elif _tops(files, path):
            raise _not_empty(path)
        mark = Mark(
            number=1 if last is None else last.number + 1,
            is_begun=True,
            savepoint=savepoint,
            process=this_process(),
            at=datetime.datetime.fromtimestamp(time.time(), datetime.UTC).isoformat(timespec="milliseconds"),
        )
        failpoints.hit("before-restore-begin")
        if not marks.add(mark):
            raise Refused(f"{path}: another restore has begun here meanwhile. Nothing was written. Restore elsewhere")
        failpoints.hit("after-restore-begin")
        if not is_left and _tops(files, path):  # a query has started since
            marks.add(replace(mark, number=mark.number + 1, is_begun=False))
            raise _not_empty(path)
        _clear(files, path)
        return InPlace(files, path, path, mark)

    def check(self, written: Iterable[str]) -> None:
        with self._refusals():
            last = Marks(self.files, self.path).last()
            if last is None or last.number != self.mark.number:
                raise FileExistsError(self.path)
            self._whole(written)

    def publish(self, written: Iterable[str]) -> None:
        names = {*written}
        with self._refusals():
            foreign = {*self._whole(names)} - names
            if foreign:
                raise FileExistsError(join(self.path, min(foreign)))
            failpoints.hit("before-restore-rename")
            if not Marks(self.files, self.path).add(self._after(1, is_begun=False)):
                raise FileExistsError(self.path)
        failpoints.hit("after-restore-rename")

    def give_up(self) -> None:
        marks = Marks(self.files, self.path)
        with suppress(OSError):  # the next restore does it
            # First the next mark: a last one of ours, whose answer was lost, can no longer come to be.
            if marks.add(self._after(1, is_begun=True)):
                _clear(self.files, self.path)
                marks.add(self._after(2, is_begun=False))

    def _after(self, steps: int, *, is_begun: bool) -> Mark:
        return replace(self.mark, number=self.mark.number + steps, is_begun=is_begun)

    def _new_of(self, content: Mapping[str, bytes]) -> Mapping[str, bytes] | None:
        """A name is not used again once it was removed: a removal that comes late would take the new file."""
        new = {}
        for name, data in content.items():
            try:
                if self.files.read(join(self.path, name)) != data:
                    return None
            except FileNotFoundError:
                new[name] = data
        return new


def _refuse_running(path: str, mark: Mark) -> None:
    """Refuse a place where another restore writes, or may write."""
    match running(mark.process):
        case Running.YES:
            raise Refused(
                f"{path}: a restore of {mark.savepoint} runs here, {mark.process.name}. Nothing was written. Wait for "
                "it, or restore elsewhere"
            )
        case Running.UNKNOWN:
            raise Refused(
                f"{path}: a restore of {mark.savepoint} has begun here ({mark.at}, {mark.process.name}), and nothing "
                "tells from here whether it still runs. Nothing was written. If it has died, remove everything below "
                f"{path} and run the command again; or restore elsewhere"
            )
        case Running.NO:
            pass


def _not_empty(path: str) -> Refused:
    return Refused(
        f"{path} is not empty: a checkpoint there may belong to a query. Nothing was written. Restore into a "
        "folder that does not exist yet"
    )


def _tops(files: SinkFiles, path: str) -> list[str]:
    return [entry.name for entry in files.list(path) if entry.name != FOLDER]


def _clear(files: SinkFiles, path: str) -> None:
    """Remove everything but the marks."""
    files.delete_all([join(path, name) for name in _tops(files, path)])
