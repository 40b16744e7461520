"""For readers who want complete epochs only: what a target's manifest lists."""

from __future__ import annotations

from epochal.sinks.files.compaction import live
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.storage.targets import resolve_target
from epochal.txn.errors import Refused


def published(path: str) -> list[PublishedEpoch]:
    """The published epochs of a rolling-file target, by lineage and epoch.

    A plain reader of the folder may see an epoch's files arrive one by one; these are complete::

        files = [f"{path}/{name}" for epoch in epochal.published(path) for name, _ in epoch.files]
        spark.read.format("parquet").option("basePath", path).load(files)

    With a rolling policy an epoch's rows are in the files of the entry that closed their part, so that an entry may
    have rows and no file, or files and no rows of its own. Take the files of every entry.
    Where `epochal compact` runs, a file may be gone when it is opened: then list again.
    Refused if no stream has ever claimed the target: most often the path is misspelt.
    """
    files, target = resolve_target(path)
    found = live.published(files, target)
    if not found and not files.names(Layout(target).lineages):
        raise Refused(
            f"{target} is not the target of a RollingFileSink: nothing was ever claimed there. Check the path; a "
            "stream claims its target when it first starts"
        )
    return found
