"""A stream as it is on disk, and its journal at an epoch that every sink shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from epochal.sinks.storage.journals import resolve_journal
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.sinks.storage.targets import why_unwritable
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.moving.layout import JOURNAL, journal_folder
from epochal.spark_plugins.restore_marks import refuse_unfinished_restore, unfinished_restore
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.errors import JournalCorrupt, Refused
from epochal.txn.files import TEMPORARY, Files, is_local, is_within, join, local_path
from epochal.txn.incarnations import all_journals, current_journal, incarnation_path
from epochal.txn.journal import Journal
from epochal.txn.journal_at import records_at, segments_at
from epochal.txn.records import Record, decode, is_record_name
from epochal.txn.recovery import check_belongs
from epochal.txn.retirement import retirement_of
from epochal.txn.view import View, fold

TRIES = 10
OF_TARGETS = ("_epochal", "_delta_log")  # folders in the target of a sink


def refuse_moved(path: str, view: View) -> None:
    """Refuse a savepoint of a stream that goes on elsewhere."""
    known = retirement_of(view.latest)
    if known is not None and known.moved_to:
        raise Refused(
            f"{path}: the stream has moved to the journal {known.moved_to} ({known.at} by {known.by}), and goes on "
            "there. No savepoint was taken. Take it of the checkpoint there. If it never came to be there, `epochal "
            "retire CHECKPOINT --undo` gives this one back"
        )


class Moving(Exception):
    """Files went away or came while they were read: the stream has moved on. Try again."""


@dataclass(frozen=True)
class JournalCopy:
    """The files of a stream's journals, by their names below the checkpoint."""

    files: Mapping[str, bytes]
    records: Mapping[str, Record]  # of the journal in use
    view: View  # of these


@dataclass(frozen=True)
class Origin:
    """A checkpoint and its journals."""

    path: str
    files: SinkFiles
    journal_path: str
    journal_files: Files

    @staticmethod
    def at(checkpoint: str, journal: str | None = None) -> Origin:
        """The stream of a checkpoint, whose journal may be elsewhere."""
        files, path = resolve_checkpoint(checkpoint)
        journal_files, journal_path = resolve_journal(journal) if journal else (files, join(path, JOURNAL))
        return Origin(path, files, journal_path, journal_files)

    @property
    def checkpoint(self) -> SparkCheckpoint:
        return SparkCheckpoint(self.files, self.path)

    def journal_of(self, incarnation: int) -> Journal:
        return Journal(self.journal_files, self.journal_folder(incarnation))

    def journal_folder(self, incarnation: int) -> str:
        return incarnation_path(self.journal_path, incarnation)

    def current(self) -> tuple[int, Journal]:
        """The incarnation in use and its journal. Refused if there is no stream of epochal."""
        refuse_unfinished_restore(self.files, self.path)
        query = self.checkpoint.query_id()
        incarnation, journal = current_journal(self.journal_of)
        check_belongs(journal, query)
        return incarnation, journal

    def exists(self) -> bool:
        """Whether there is a journal of some start, in a checkpoint that is whole."""
        if unfinished_restore(self.files, self.path) is not None:
            return False
        return any(not name.startswith(".") for name in self.journal_files.names(self.journal_path))

    def settled(self, journal: Journal) -> int:
        """The last epoch that Spark has checkpointed and every sink shows; -1 if there is none."""
        done = journal.read().done_through
        return min(done, self.checkpoint.committed())

    def journal_at(self, epoch: int | None) -> JournalCopy:
        """The journals as they are at an epoch; with None, all of what they have now. Raises Moving."""
        found: dict[str, bytes] = {}
        records: dict[str, Record] = {}
        view = fold((), stored={})
        last, _ = current_journal(self.journal_of)
        for incarnation, _journal in all_journals(self.journal_of):
            name = journal_folder(incarnation)
            is_current = incarnation == last
            records, data = self._read(self.journal_folder(incarnation), epoch if is_current else None)
            found.update({f"{name}/{file}": content for file, content in data.items()})
            view = fold(records.values(), stored={})
        return JournalCopy(found, records, view)

    def _read(self, folder: str, epoch: int | None) -> tuple[dict[str, Record], dict[str, bytes]]:
        """The records of one journal and the bytes of them and of their segments."""
        names = [n for n in self.journal_files.names(folder) if not n.startswith(TEMPORARY)]
        try:
            data = {name: self.journal_files.read(join(folder, name)) for name in names if is_record_name(name)}
            records = {name: decode(join(folder, name), name, content) for name, content in data.items()}
            kept = records if epoch is None else records_at(records, epoch)
            fold(kept.values(), stored={})
            segments = {name: self.journal_files.read(join(folder, name)) for name in segments_at(kept)}
        except (FileNotFoundError, JournalCorrupt) as fault:
            raise Moving(str(fault)) from fault
        return kept, {name: data[name] for name in kept} | segments


def check_place(origin: Origin, files: Files, place: str) -> None:
    """Refuse a place for savepoints inside the stream's checkpoint or inside a target, and the other way round.

    Readers of a target's folder would take the savepoints' files for its own. Targets of other streams are recognised
    by the folders in them.
    """
    _refuse_unwritable(place)
    check_apart(place, origin.path)
    view = origin.current()[1].read()
    for started in view.generations.values():
        for described in started.sinks.values():
            check_apart(place, described.target)
    for folder in _with_parents(os.path.realpath(local_path(place)) if is_local(place) else place):
        if _is_target(files, folder):
            raise Refused(
                f"{place} is inside {folder}, which is the target of a sink. Nothing was written. Give savepoints a "
                "folder of their own"
            )


def check_outside(files: Files, path: str, places: Iterable[str], targets: Iterable[str]) -> None:
    """Refuse a new checkpoint inside a checkpoint or journal, or where readers of a target would take it for data.

    Readers skip folders that begin with an underscore or a dot, so a checkpoint may be in one of those.
    """
    _refuse_unwritable(path)
    for place in places:
        if is_within(path, place):
            raise Refused(f"{path} is inside {place}, and would do harm there. Nothing was written. Restore elsewhere")
    within = [target for target in targets if is_within(path, target)]
    within += [folder for folder in _with_parents(path) if _is_target(files, folder)]
    for target in within:
        (first, *_) = _rest(path, target).split("/")
        if first in OF_TARGETS or not first.startswith(("_", ".")):
            raise Refused(
                f"{path} is inside {target}, which is the target of a sink. Nothing was written. Restore elsewhere"
            )


def _refuse_unwritable(path: str) -> None:
    """Refuse a local place where no folder can be made, such as one below a file or in a loop of links."""
    if is_local(path) and (why := why_unwritable(os.path.realpath(local_path(path)))):
        raise Refused(f"{why}. Nothing was written. Name a place where this user can make a folder")


def _is_target(files: Files, folder: str) -> bool:
    """Whether a folder is the target of a sink; False for one that may not be listed."""
    try:
        return any(files.names(join(folder, name)) for name in OF_TARGETS)
    except PermissionError:
        return False


def _rest(path: str, folder: str) -> str:
    """What a path has more than a folder that it is in."""
    if is_local(path):
        return os.path.relpath(os.path.realpath(local_path(path)), os.path.realpath(local_path(folder)))
    return path[len(folder.rstrip("/")) + 1 :]


def _with_parents(place: str) -> list[str]:
    """A folder and those that it is in, up to the root of its file system.

    >>> _with_parents("hdfs://host/a/b"), _with_parents("/a")
    (['hdfs://host/a/b', 'hdfs://host/a'], ['/a'])
    """
    at = urlsplit(place)
    root = f"{at.scheme}://{at.netloc}" if at.scheme else ""
    found = [place.rstrip("/")]
    while (parent := found[-1].rpartition("/")[0]).startswith(f"{root}/"):
        found.append(parent)
    return found


def check_apart(path: str, other: str) -> None:
    """Refuse a place for savepoints inside a checkpoint, and the other way round."""
    if is_within(path, other) or is_within(other, path):
        raise Refused(
            f"{path} and {other} are inside each other. Nothing was written. Give savepoints a folder of their own"
        )
