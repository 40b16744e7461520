"""What tells a staged file from another one under its name: its length, and its version where a listing has one.

That is the time of its last change on HDFS, which a rename keeps, and the ETag on an object store. An epoch's files are
listed when it is staged, and once more before the first of them is shown. Local disks have no version: the times of
files on network drives are not exact.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from epochal.sinks.files.handle import Rename, StagedEpoch
from epochal.sinks.files.layout import OPEN, Layout
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn.errors import PUT_BACK, DataLost
from epochal.txn.files import is_local
from epochal.txn.model import Attempt
from epochal.txn.object_paths import is_object_store

FEW = 8  # folders
COPIES, ACCEPTED = "EPOCHAL_STAGED_COPIES", "accept"  # a variable, and its value


def versions_of(
    files: SinkFiles, layout: Layout, attempt: Attempt, renames: Sequence[Rename], known: Mapping[str, str]
) -> tuple[str, ...]:
    """The version of each file to publish, of which some are known. Pieces of earlier epochs have none."""
    own = _own(renames)
    if not is_local(layout.target) and any(name not in known for name in own):
        known = {name: version for name, (_, version) in _listed(files, layout, attempt, own).items()}
    return tuple(known.get(name, "") for name, _, _ in renames)


def check_untouched(sink: str, files: SinkFiles, layout: Layout, attempt: Attempt, epoch: StagedEpoch) -> None:
    """DataLost for a file that is not as it was staged. One that is not there may have been published.

    Their folder is listed once, which elsewhere than on a local disk costs less than a look at each file.
    Pieces of earlier epochs are few and lie among others: each is looked at, and has only its length.
    """
    renames = (*epoch.files, *epoch.markers)
    there = _found(files, layout, attempt, renames)
    by_length_alone = os.environ.get(COPIES) == ACCEPTED
    for number, (name, target, length) in enumerate(renames):
        found, version = there.get(name, (length, ""))
        path = layout.source(attempt, name)
        if found != length:
            raise DataLost(
                f"sink {sink!r}: {path} should have {length} bytes and has {found}: another program has changed it. "
                f"Its epoch is decided, and its rows are nowhere else. {PUT_BACK}"
            )
        wanted = epoch.versions[number] if number < len(epoch.versions) else ""
        if wanted and version and wanted != version and not by_length_alone:
            raise DataLost(
                f"sink {sink!r}: {path} has its {length} bytes, but was written again after it was staged (its time "
                f"or ETag is {version} instead of {wanted}), so its rows may be others. Nothing of its epoch was "
                f"published; it was to become {target}. {PUT_BACK}. If it is such a copy already, start with "
                f"{COPIES}={ACCEPTED} once: then only lengths are compared"
            )


def _found(files: SinkFiles, layout: Layout, attempt: Attempt, renames: Sequence[Rename]) -> dict[str, tuple[int, str]]:
    """Length and version of those that are there."""
    there = _listed(files, layout, attempt, _own(renames))
    if earlier := [name for name, _, _ in renames if name.startswith(f"{OPEN}/")]:
        lengths = files.lengths([layout.source(attempt, name) for name in earlier])
        there |= {name: (length, "") for name, length in zip(earlier, lengths, strict=True) if length is not None}
    return there


def _listed(files: SinkFiles, layout: Layout, attempt: Attempt, names: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Length and version of these files of an attempt, and of what lies beside them.

    A few folders are listed one by one: an epoch may have thousands whose files are not published yet. Else, and on
    object stores, where one request lists what is below any number of them, it is all that they have in common.
    """
    if not names:
        return {}
    home = layout.attempt(attempt)
    folders = sorted({name.rpartition("/")[0] for name in names})
    if len(folders) > FEW or is_object_store(layout.target):
        common = os.path.commonpath(folders)
        found = [(common, entry) for entry in files.walk(_below(home, common))]
    else:
        found = [(folder, entry) for folder in folders for entry in files.list(_below(home, folder))]
    return {_below(folder, entry.name): (entry.length, entry.version) for folder, entry in found}


def _below(folder: str, name: str) -> str:
    return "/".join(filter(None, (folder, name)))


def _own(renames: Sequence[Rename]) -> list[str]:
    """Those that this attempt has staged."""
    return [name for name, _, _ in renames if not name.startswith(f"{OPEN}/")]
