"""A private copy of a checkpoint for a drill: one epoch, whole, also of a query that runs.

The order matters. The last commit N is chosen first. State comes before the logs that explain it, and is trimmed
afterwards: Spark would take versions of later epochs silently.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.moving.schema_paths import has_paths, moved
from epochal.spark_plugins.recovery import names
from epochal.spark_plugins.recovery.reading import read_state
from epochal.txn.errors import JournalCorrupt, Refused
from epochal.txn.files import TEMPORARY, Files, LocalFiles, checked_relative, join
from epochal.txn.journal import Journal

TRIES = 3


def copy_checkpoint(files: Files, checkpoint: str, target: Path) -> int:
    """Copy the last epoch that Spark has checkpointed, its state and its logs. Returns its number."""
    for _ in range(TRIES):
        epoch = SparkCheckpoint(files, checkpoint).committed()
        if epoch < 0:
            raise Refused(f"{checkpoint}: Spark has committed no epoch yet, so there is nothing to restore")
        _copy(files, checkpoint, target, epoch)
        if not any(operator.missing for operator in read_state(LocalFiles(), str(target), counted=0).operators):
            return epoch
        LocalFiles().delete(str(target))  # the query removed a version while it was copied: copy a newer epoch
    raise Refused(
        f"{checkpoint}: the query removed files {TRIES} times while they were copied. Nothing was written there. Retry "
        "when it is slower, or set spark.sql.streaming.minBatchesToRetain higher"
    )


def rewind(target: Path) -> int:
    """Take the last commit of a copy back: the crash came just before it. Returns the epoch that is run again."""
    epoch = SparkCheckpoint(LocalFiles(), str(target)).committed()
    for name in (f"{epoch}", f".{epoch}.crc"):
        (target / "commits" / name).unlink(missing_ok=True)
    _trim(target, epoch)
    return epoch


def copy_journal(files: Files, journal: str, target: Path) -> None:
    """Copy a journal that may be written and folded meanwhile, so that its state can be restored from the copy."""
    for tries_left in reversed(range(TRIES)):
        target.mkdir(parents=True)
        try:
            for name in files.names(journal):
                if name.startswith(TEMPORARY):
                    continue  # it is about to be another name
                (target / name).write_bytes(files.read(join(journal, name)))
            Journal(LocalFiles(), str(target)).read()
        except (FileNotFoundError, JournalCorrupt):  # some of it was folded away
            if not tries_left:
                raise
            shutil.rmtree(target)
        else:
            return


def _copy(files: Files, checkpoint: str, target: Path, epoch: int) -> None:
    _take(files, checkpoint, target, "metadata")
    for entry in files.walk(join(checkpoint, "state")):
        _take(files, checkpoint, target, f"state/{checked_relative(entry.name)}")
    for entry in files.walk(join(checkpoint, "sources")):
        _take(files, checkpoint, target, f"sources/{checked_relative(entry.name)}")
    for folder in ("offsets", "commits"):
        for name in files.names(join(checkpoint, folder)):
            number = names.number(name)
            if number is not None and number <= epoch:
                _take(files, checkpoint, target, f"{folder}/{name}")
    _trim(target, epoch + 1)


def _take(files: Files, checkpoint: str, target: Path, name: str) -> None:
    """One file, without Hadoop's checksum. If it is gone, a newer version replaces it, or it is missing."""
    if name.endswith(".crc") or "/." in name:
        return
    try:
        data = files.read(join(checkpoint, name))
    except FileNotFoundError:
        return
    place = target / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(moved(data, spark_path(str(target))) if has_paths(name) else data)


def _trim(target: Path, version: int) -> None:
    """Remove versions beyond one."""
    for folder, _, found in os.walk(target / "state"):
        for name in found:
            file = names.parse(name.removeprefix(".").removesuffix(".crc"))
            if file is not None and file.version.number > version:
                Path(folder, name).unlink()
