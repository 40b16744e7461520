"""Folders that belong to others, where files of this sink would not be read, or not be left alone."""

from __future__ import annotations

from epochal.sinks.files.layout import Layout
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join

DELTA_LOG = "_delta_log"  # in the folder of a Delta table


def check_no_table(sink: str, files: Files, layout: Layout) -> None:
    """Readers of a Delta table see only what its log names, and VACUUM removes what it does not."""
    for folder in layout.folders:
        if files.names(join(folder, DELTA_LOG)):
            where = "is" if folder == layout.target else f"lies inside {folder}, which is"
            raise Refused(
                f"sink {sink!r}: {layout.target} {where} a Delta table: its readers would not see files that are "
                "written here, and VACUUM would remove them. Nothing was written. Use a DeltaSink, or another folder"
            )
