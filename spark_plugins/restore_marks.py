"""Marks of restores into an object store, where a checkpoint cannot appear by the rename of a folder.

::

    CHECKPOINT/epochal-restoring/000001.json   begun: a restore writes the checkpoint, and by which process
    CHECKPOINT/epochal-restoring/000002.json   ended: the checkpoint is whole, or was removed again

The mark with the highest number holds. While it says `begun`, no query starts there. Each mark is created if absent, so
of two restores that go on after one mark one does; and none is ever removed, so a number means one thing for good.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from epochal.txn.errors import JournalCorrupt, Refused
from epochal.txn.files import Files, join
from epochal.txn.object_paths import is_object_store
from epochal.txn.process import Process

FOLDER = "epochal-restoring"
BEGUN, ENDED = "begun", "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a restore says of the checkpoint that it writes."""

    number: int
    is_begun: bool
    savepoint: str
    process: Process
    at: str


@dataclass(frozen=True)
class Marks:
    """The marks of one checkpoint."""

    files: Files
    checkpoint: str

    @property
    def folder(self) -> str:
        return join(self.checkpoint, FOLDER)

    def last(self) -> Mark | None:
        """The mark that holds; None if no restore has ever begun here."""
        numbers = [int(name.removesuffix(".json")) for name in self.files.names(self.folder) if _is_mark(name)]
        return self._read(max(numbers)) if numbers else None

    def add(self, mark: Mark) -> bool:
        """Create a mark; False if another restore has created one of this number."""
        content = {
            "kind": BEGUN if mark.is_begun else ENDED,
            "savepoint": mark.savepoint,
            "at": mark.at,
            "process": mark.process.to_json(),
        }
        return self.files.create(self._path(mark.number), json.dumps(content).encode())

    def _path(self, number: int) -> str:
        return join(self.folder, f"{number:06d}.json")

    def _read(self, number: int) -> Mark:
        path = self._path(number)
        try:
            found = json.loads(self.files.read(path))
            return Mark(
                number=number,
                is_begun={BEGUN: True, ENDED: False}[found["kind"]],
                savepoint=str(found["savepoint"]),
                process=Process.from_json(found["process"]),
                at=str(found["at"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise JournalCorrupt(
                f"{path} is no mark of a restore. If {self.checkpoint} was restored and has run since, remove that "
                "file; else remove the whole folder, and restore again"
            ) from None


def unfinished_restore(files: Files, checkpoint: str) -> Mark | None:
    """The restore that has begun to write a checkpoint on an object store and has not ended.

    One request there, and none elsewhere.
    """
    if not is_object_store(checkpoint):
        return None
    last = Marks(files, checkpoint).last()
    return last if last is not None and last.is_begun else None


def refuse_unfinished_restore(files: Files, checkpoint: str) -> None:
    """Refuse a checkpoint that is not whole."""
    mark = unfinished_restore(files, checkpoint)
    if mark is not None:
        raise Refused(
            f"{checkpoint}: a restore of {mark.savepoint} has begun here ({mark.at}, {mark.process.name}) and has not "
            "ended, so the checkpoint is not whole. Nothing was written. If that command still runs, wait for it. If "
            "it has died, run it again: it begins anew"
        )


def content_of(files: Files, checkpoint: str) -> list[str]:
    """Every file of a checkpoint but the marks."""
    return [e.name for e in files.walk(checkpoint) if e.name.partition("/")[0] != FOLDER]


def _is_mark(name: str) -> bool:
    number, dot, rest = name.partition(".")
    return (dot, rest) == (".", "json") and number.isascii() and number.isdecimal()
