"""The watermark as a small file, for readers in any language: ``<journal>-cut/000000000042.json``.

It is written after DONE, never before, and without holding anything up. If a driver dies in between, the next one
brings the file up to date. No step of the protocol reads it, and a stream goes on if it cannot be written.

The file with the highest number counts. A new one is created before the one before it is removed, so there is always
one to read. A reader whose file vanishes between listing and reading lists again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from epochal.txn import codec, failpoints
from epochal.txn.cuts import Watermark, watermark
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import Files, check_own, join, sweep
from epochal.txn.journal import Journal
from epochal.txn.model import NO_EPOCH, Json
from epochal.txn.view import View

log = logging.getLogger("epochal")

FORMAT = 1
KIND = "cut"
_NAME = re.compile(r"(\d{12})\.json", re.ASCII)


def folder_beside(journal: str) -> str:
    """The folder of a journal's watermark; each incarnation of a query has its own."""
    return f"{journal.rstrip('/')}-cut"


def encode(mark: Watermark, at: str) -> bytes:
    """A watermark as it is written. `at` is when its epoch was done."""
    sinks: dict[str, Json] = {
        name: {
            "type": sink.description.kind,
            "target": sink.description.target,
            **({"keeps_open": True} if sink.description.keeps_open else {}),
        }
        for name, sink in mark.sinks.items()
    }
    return codec.to_bytes(
        {"format": FORMAT, "kind": KIND, "lineage": mark.lineage, "epoch": mark.epoch, "at": at, "sinks": sinks}
    )


def read(files: Files, journal: str) -> dict[str, Any] | None:
    """The newest watermark beside a journal, as its file has it; None if there is none."""
    folder = folder_beside(journal)
    for _ in range(5):
        epochs = _epochs(files, folder)
        if not epochs:
            return None
        path = join(folder, _name(max(epochs)))
        try:
            return codec.from_bytes(path, files.read(path), version=FORMAT)
        except FileNotFoundError:
            continue  # a newer one has taken its place
    raise JournalCorrupt(f"{folder}: files vanish while they are read; is something else cleaning it?")


class CutFile:
    """Keeps the file of one stream up to date, from one process."""

    def __init__(self) -> None:
        self._written: dict[str, int] = {}  # journal -> the epoch that this process wrote last
        self._looked: set[str] = set()  # journals whose folder is not used for something else
        self._warned = False

    def has_begun(self, journal: Journal) -> bool:
        """Whether this process has tidied the folder of a journal."""
        return journal.path in self._written

    def begin(self, journal: Journal) -> None:
        """Once per journal and process: remove what other processes left, and files that are ahead of the journal.

        A file may be ahead if the journal was restored from an older copy. The folder is listed before the journal is
        read: a file that another process has written meanwhile cannot be taken for one that is ahead.
        """
        self._written[journal.path] = NO_EPOCH
        with self._harmless():
            folder = folder_beside(journal.path)
            self._look(journal)
            sweep(journal.files, folder)
            found = _epochs(journal.files, folder)
            done = journal.read().done_through
            for epoch in found:
                if epoch > done or (epoch != max(found) and epoch < done):
                    journal.files.delete(join(folder, _name(epoch)))
            self._written[journal.path] = max((epoch for epoch in found if epoch <= done), default=NO_EPOCH)

    def update(self, journal: Journal, view: View) -> None:
        """Write the watermark of a view, unless this process has written it. Never raises."""
        last = self._written.get(journal.path, NO_EPOCH)
        if view.done_through <= last or (mark := watermark(view)) is None or mark.epoch <= last:
            return
        with self._harmless():
            self._look(journal)
            folder = folder_beside(journal.path)
            failpoints.hit("before-cut")
            journal.files.create(
                join(folder, _name(mark.epoch)), encode(mark, journal.done_at(mark.epoch)), durable=False
            )
            failpoints.hit("after-cut")
            self._written[journal.path] = mark.epoch
            if last != NO_EPOCH:
                journal.files.delete(join(folder, _name(last)))

    def _look(self, journal: Journal) -> None:
        if journal.path not in self._looked:
            check_own(journal.files, folder_beside(journal.path), lambda name: _NAME.fullmatch(name) is not None)
            self._looked.add(journal.path)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """Log what goes wrong, the first time as a warning: a convenience of readers must not stop a stream."""
        try:
            yield
        except Exception as fault:  # noqa: BLE001  # any file system, any error
            log.log(
                logging.DEBUG if self._warned else logging.WARNING,
                "watermark file not written, which does not affect the stream: %s",
                fault,
            )
            self._warned = True

    def bring_up_to_date(self, journal: Journal) -> None:
        """`begin` and `update` in one, for a process that settles once."""
        self.begin(journal)
        self.update(journal, journal.view)


def _epochs(files: Files, folder: str) -> list[int]:
    return [int(found[1]) for name in files.names(folder) if (found := _NAME.fullmatch(name))]


def _name(epoch: int) -> str:
    return f"{epoch:012d}.json"
