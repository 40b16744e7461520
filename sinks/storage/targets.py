"""Checks whether a folder can be made and written to. Changes nothing."""

from __future__ import annotations

import os

from epochal.txn.errors import Refused
from epochal.txn.files import is_local, local_path


def check_writable(sink: str, target: str) -> None:
    """Refuse a local folder that cannot be written to. Other file systems report it when they are used."""
    if is_local(target) and (why := why_unwritable(target)):
        raise Refused(
            f"sink {sink!r}: {why}. Nothing was written. Correct the sink's path, or let this user write there"
        )


def why_unwritable(target: str) -> str | None:
    """Why a local folder cannot be made or written to; None if it can."""
    path = local_path(target)
    there = path
    while not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{there} is not a folder" + (f", so {path} cannot be made" if there != path else "")
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{path}: this user may not write in {there}"
    return None
