"""How a staged file gets its name in the table's folder, just before a log entry names it.

On a local disk by a link, on an object store by a copy that the store makes itself. The staged file stays until the
epoch is committed, so that a file that VACUUM removes before a log entry names it can be given its name again. Every
step may be repeated, and taken by several processes at once: a name identifies the attempt that wrote the file, so
whoever gives it gives the same content.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from epochal.sinks.storage.objects import ObjectFiles
from epochal.txn.files import Files


def give_name(files: Files, source: str, target: str, *, unique: bool, check_unnamed: Callable[[], None]) -> None:
    """Give a staged file its name in the table's folder.

    No error if the staged file is gone: then another process has committed the epoch, or the file is lost. The caller
    compares lengths and finds out. `unique` says that no other start can have given this name; otherwise
    `check_unnamed` is called before a file of that name is replaced.
    """
    try:
        if isinstance(files, ObjectFiles):
            _copy(files, source, target, unique=unique, check_unnamed=check_unnamed)
        else:
            _link(source, target, check_unnamed)
    except (FileNotFoundError, FileExistsError):
        pass


def _copy(files: ObjectFiles, source: str, target: str, *, unique: bool, check_unnamed: Callable[[], None]) -> None:
    if not unique and files.length(target) is not None:
        check_unnamed()
    files.copy_over(source, target)


def _link(source: str, target: str, check_unnamed: Callable[[], None]) -> None:
    os.utime(source)  # VACUUM removes old files, and an epoch may have waited for long
    if os.path.exists(target) and not os.path.samefile(source, target):
        check_unnamed()
        os.unlink(target)  # left by a start whose journal was lost
    os.link(source, target)
