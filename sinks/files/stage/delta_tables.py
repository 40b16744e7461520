"""Refuses folders of Delta tables, where files of this sink would not be read and might be removed."""

from __future__ import annotations

from epochal.sinks.files.layout import Layout
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.object_paths import is_object_store

DELTA_LOG = "_delta_log"  # in the folder of a Delta table


def check_no_delta_table(sink: str, files: Files, layout: Layout) -> None:
    """Readers of a Delta table see only files that its log names, and VACUUM removes all others."""
    for folder in layout.folders:
        if _holds_log(files, folder, layout.target):
            where = "is" if folder == layout.target else f"lies inside {folder}, which is"
            raise Refused(
                f"sink {sink!r}: {layout.target} {where} a Delta table: its readers would not see files that are "
                "written here, and VACUUM would remove them. Nothing was written. Use a DeltaSink, or another folder"
            )


def _holds_log(files: Files, folder: str, target: str) -> bool:
    try:
        return bool(files.names(join(folder, DELTA_LOG)))
    except PermissionError:
        if folder == target or not is_object_store(target):
            raise
        return False  # permissions there are given by folder, and this one is none of the sink's
