"""A checkpoint that is written beside its place, where no query looks, and moved there by one rename."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from epochal.sinks.storage.sink_files import SinkFiles
from epochal.spark_plugins.moving import failpoints
from epochal.spark_plugins.moving.placing import Placing
from epochal.txn.errors import Refused
from epochal.txn.files import is_local, join


@dataclass(frozen=True)
class ByRename(Placing):
    """On local disks and Hadoop file systems. Until it is at `path`, it is in `folder`."""

    @staticmethod
    def at(files: SinkFiles, path: str) -> ByRename:
        """A place that is free. What is left there of a restore that died, or that still runs, is removed."""
        if is_local(path):
            path = os.path.realpath(path)  # a folder cannot be renamed to the name of a link
        parent, _, name = path.rstrip("/").rpartition("/")
        parent, prefix = parent or "/", f".{name}.restoring-"
        beside = files.list(parent)
        if files.list(path) or any(entry.name == name and not entry.is_folder for entry in beside):
            raise Refused(
                f"{path} is not empty: a checkpoint there may belong to a query. Nothing was written. Restore into a "
                "folder that does not exist yet"
            )
        if is_local(path) and os.path.ismount(path):
            raise Refused(
                f"{path} is a mount point, and the checkpoint gets its name by a rename. Nothing was written. Restore "
                "into a folder below it"
            )
        for entry in beside:
            if entry.name.startswith(prefix):
                # First by one rename: a restore that still writes there finds that files are missing, and gives up.
                away = join(parent, _beside(prefix))
                with suppress(FileNotFoundError):  # another restore does the same
                    files.move_folder(join(parent, entry.name), away)
                files.delete(away)
        return ByRename(files, path, join(parent, _beside(prefix)))

    def check(self, written: Iterable[str]) -> None:
        with self._refusals():
            if self.files.list(self.path):
                raise FileExistsError(self.path)
            self._whole(written)

    def publish(self, written: Iterable[str]) -> None:
        with self._refusals():
            there = self._whole(written)
            self.files.sync_all([join(self.folder, name) for name in there], within=self.folder)
            if not is_local(self.path):
                self._remove_empty()
            failpoints.hit("before-restore-rename")
            self.files.move_folder(self.folder, self.path)
        failpoints.hit("after-restore-rename")

    def give_up(self) -> None:
        self.files.delete(self.folder)

    def _new_of(self, content: Mapping[str, bytes]) -> Mapping[str, bytes]:
        for name in content:
            self.files.delete(join(self.folder, name))
        return content

    def _remove_empty(self) -> None:
        """Remove an empty folder at the place, which a rename on HDFS does not replace. FileExistsError otherwise."""
        away = f"{self.folder}-empty"  # what is removed is what was looked at: another restore may end right now
        try:
            self.files.move_folder(self.path, away)
        except FileNotFoundError:
            return
        if self.files.list(away):
            self.files.move_folder(away, self.path)
            raise FileExistsError(self.path)
        self.files.delete(away)


def _beside(prefix: str) -> str:
    """A name that no other restore has."""
    return f"{prefix}{uuid.uuid4().hex[:8]}"
