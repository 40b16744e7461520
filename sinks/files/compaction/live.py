"""The files that a target's manifest lists, after all compactions that are done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from epochal.sinks.files import manifest
from epochal.sinks.files.compaction import records
from epochal.sinks.files.compaction.records import CompactionDone
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import Files


def published(files: Files, target: str) -> list[PublishedEpoch]:
    """Every published epoch of a target, by lineage and epoch, with the files that hold its rows now."""
    # Compactions are read before manifests: the epochs whose files they joined are then all in the manifests.
    done = records.read(files, Layout(target)).done
    return after(list(manifest.published(files, target)), done)


def after(entries: Sequence[PublishedEpoch], done: Iterable[CompactionDone]) -> list[PublishedEpoch]:
    """The epochs, each joined file listed in place of the last file that it replaced."""
    listed = {(entry.lineage, entry.entry): list(entry.files) for entry in entries}
    holders = {path: key for key, files in listed.items() for path, _ in files}
    for compaction in done:
        for joined in compaction.files:
            for number, old in enumerate(joined.replaced, 1):
                key = holders.pop(old[0], None)
                if key is None or old not in listed[key]:
                    raise JournalCorrupt(
                        f"compaction {compaction.number} joined {old[0]} of {old[1]} bytes, which no manifest lists: "
                        "records below _epochal were removed or changed; restore them from a copy"
                    )
                place = listed[key].index(old)
                is_last = number == len(joined.replaced)
                listed[key][place : place + 1] = [(joined.path, joined.bytes)] if is_last else []
                if is_last:
                    holders[joined.path] = key
    return [replace(entry, files=tuple(listed[entry.lineage, entry.entry])) for entry in entries]
