"""The second phase of rolling files: staged files get their names where readers look.

Each file takes one strict rename. The files of an epoch are independent of each other, so they go to the store in
chunks, concurrently. Each step waits until the one before it is complete:

1. Pieces are joined, and each joined file is renamed; single files are renamed.
2. Markers are published: who sees one may read the files.
3. Pieces that stay open are moved away as a folder, so published files must have left it.
4. The names are synced: a power cut must not take back what the manifest lists.
5. The manifest's entry is written: who finds it need not check any of the above. It is written now, from the handle, to
   have one small file less while the epoch is staged and Spark waits.
6. Staged files, and pieces whose rows are in published files, are removed. Before step 5 a repeat may need them.

A step may find that an earlier try has done it, for some files of a chunk or for all. It accepts a file only if its
length is the recorded one. A file that is neither staged nor published means that rows are lost: that stops the query.
The exception is an epoch that is in the manifest: another process has finished it, and a compaction or a retention job
has removed the file since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from epochal.sinks.files import manifest
from epochal.sinks.files.handle import Concat, Rename, StagedEpoch
from epochal.sinks.files.layout import DATA, JOINED, MANIFEST, Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.untouched import check_untouched
from epochal.sinks.storage.sink_files import Miss, SinkFiles, missed
from epochal.txn import commit_checks, failpoints
from epochal.txn.errors import PUT_BACK, DataLost, Refused
from epochal.txn.files import join
from epochal.txn.model import Attempt, Outcome

log = logging.getLogger("epochal")

RENAMED_ANYWHERE = 128 << 20  # bytes; up to these no store has to be asked
CHUNK = 500  # files that go to the store at once; a kill between two chunks leaves some published and others not

Item = TypeVar("Item")


@dataclass
class Publisher:
    """Publishes one attempt's epoch."""

    sink: str
    files: SinkFiles
    layout: Layout
    attempt: Attempt
    _folders: set[str] = field(default_factory=set)

    def publish(self, epoch: StagedEpoch) -> Outcome:
        """Publish the epoch, unless it is in the manifest."""
        files, layout = self.files, self.layout
        self._check_names(epoch)
        known = files.length(self._manifest) is not None
        if known:
            self._check_same(epoch)
        else:
            check_predecessor(self.sink, self.files, self.layout, self.attempt)
            check_untouched(self.sink, files, layout, self.attempt, epoch)
            for joins in chunks(list(enumerate(epoch.joins))):
                self._join(joins)
            for step, renames in (("rename", epoch.files), ("marker", epoch.markers)):
                for chunk in chunks(renames):
                    self._publish(chunk, step)
            if epoch.has_open_pieces:
                self._keep_open()
            # Staged files are deleted after this, so the published names must be durable first.
            files.sync_all(sorted(self._folders), within=layout.target)
            # Last: who finds the entry knows that all of the above is done.
            self._list(epoch)
        failpoints.hit("before-cleanup")
        files.delete_all([layout.source(self.attempt, name) for name in epoch.obsolete])
        files.delete(layout.attempt(self.attempt))
        failpoints.hit("after-cleanup")
        return Outcome.ALREADY_COMMITTED if known else Outcome.COMMITTED

    @property
    def _manifest(self) -> str:
        return join(self.layout.target, self.layout.manifest_name(self.attempt))

    def _list(self, epoch: StagedEpoch) -> None:
        """Write the manifest's entry; to the staging area, then renamed, where a crash could leave half of it."""
        staged, target = self.layout.source(self.attempt, MANIFEST), self._manifest
        data, directly = epoch.entry(self.attempt).encode(), self.files.creates_directly()
        if not directly:
            self.files.create(staged, data, durable=False)  # unless an earlier try has
        self._make_folders([target])
        failpoints.hit("before-manifest")
        is_new = self.files.create(target, data) if directly else missed(self.files.rename, staged, target) is None
        if not is_new:
            self._check_same(epoch)  # another process was faster
        failpoints.hit("after-manifest")

    def _publish(self, renames: Sequence[Rename], step: str) -> None:
        source, published = partial(self.layout.source, self.attempt), self.layout.published
        paths = [(source(name), published(target)) for name, target, _ in renames]
        self._make_folders(target for _, target in paths)
        failpoints.hit(f"before-{step}")
        misses = self.files.rename_all(paths)
        unsure = [(*path, rename[2]) for path, rename, miss in zip(paths, renames, misses, strict=True) if miss]
        self._check_published(unsure, markers=step == "marker")
        failpoints.hit(f"after-{step}")

    def _join(self, joins: Sequence[tuple[int, Concat]]) -> None:
        """Move the pieces into one folder, as HDFS needs them, join them to the first one, and publish that.

        Wherever a crash stops this, each piece is where it was, in that folder, or in the first piece there.
        """
        files, source = self.files, partial(self.layout.source, self.attempt)
        targets = [source(_place(number, 0)) for number, _ in joins]
        failpoints.hit("before-join")
        lengths = files.lengths([*(self.layout.published(one.target) for _, one in joins), *targets])
        todo = [
            (number, one)
            for (number, one), published, joined in zip(joins, lengths, lengths[len(joins) :], strict=False)
            if published is None and joined != one.length
        ]
        files.make_folders([source(_place(number, 0)).rpartition("/")[0] for number, _ in todo])
        renames = [
            (source(name), source(_place(number, place)))
            for number, one in todo
            for place, (name, _) in enumerate(one.sources)
        ]
        _note_misses("piece not moved, its length is checked later", files.rename_all(renames))
        groups = [[source(_place(number, place)) for place in range(len(one.sources))] for number, one in todo]
        _note_misses("pieces not joined, their length is checked later", files.join_all_in_place(groups))
        failpoints.hit("after-join")
        for (_, one), joined, found in zip(joins, targets, files.lengths(targets), strict=True):
            if found not in (None, one.length):
                raise DataLost(
                    f"sink {self.sink!r}: {joined} should have {one.length} bytes after joining and has {found}: "
                    "another program has removed or changed pieces of it. Their epochs are decided; put them back from "
                    "a copy"
                )
        self._publish([(_place(number, 0), one.target, one.length) for number, one in joins], "rename")

    def _keep_open(self) -> None:
        """Move pieces of open parts, in one step, to a folder that no abort removes.

        They may be missing there too: another process has finished this epoch, and a later epoch has closed the parts.
        """
        source = join(self.layout.attempt(self.attempt), DATA)
        target = self.layout.open(self.attempt.lineage, self.attempt.epoch)
        self._make_folders([target])
        failpoints.hit("before-keep")
        try:
            self.files.move_folder(source, target)
        except (FileNotFoundError, FileExistsError):
            if not self.files.names(target) and self.files.length(self._manifest) is None:
                raise DataLost(
                    f"sink {self.sink!r}: the rows of epoch {self.attempt.epoch} that belong to open parts are neither "
                    f"in {source} nor in {target}: another program has removed them. {PUT_BACK}"
                ) from None
        failpoints.hit("after-keep")

    def _check_names(self, epoch: StagedEpoch) -> None:
        """Before the first step: a name that leads elsewhere must not stop the commit halfway."""
        for source, target, _ in (*epoch.files, *epoch.markers):
            self.layout.source(self.attempt, source)
            self.layout.published(target)
        for one in epoch.joins:
            self.layout.published(one.target)
        for name in (*(name for one in epoch.joins for name, _ in one.sources), *epoch.obsolete):
            self.layout.source(self.attempt, name)

    def _make_folders(self, targets: Iterable[str]) -> None:
        """Make the folders of these paths, unless they were made before."""
        folders = dict.fromkeys(target.rpartition("/")[0] for target in targets)
        new = [folder for folder in folders if folder not in self._folders]
        self.files.make_folders(new)
        self._folders.update(new)

    def _check_same(self, epoch: StagedEpoch) -> None:
        """The epoch in the manifest must be this attempt: a copy of the journal may have written its own."""
        found = PublishedEpoch.decode(self._manifest, self.files.read(self._manifest))
        shown = commit_checks.VisibleEpoch(found.generation, found.start, found.offsets)
        commit_checks.check_same_attempt(self.sink, self.layout.target, self.attempt, epoch.facts.offsets, shown)

    def _check_published(self, renames: Sequence[Rename], *, markers: bool) -> None:
        """An earlier try may have renamed the files. Any other file under their names stops the query."""
        if not renames:
            return
        lengths = self.files.lengths([*(target for _, target, _ in renames), *(source for source, _, _ in renames)])
        finished = None in lengths[: len(renames)] and self.files.length(self._manifest) is not None
        for (_, target, length), found, left in zip(renames, lengths, lengths[len(renames) :], strict=False):
            if found == length and (markers or left is None):
                continue
            if found is None and finished:
                continue
            if found is None:
                raise DataLost(
                    f"sink {self.sink!r}: {target} should have {length} bytes, and is neither published nor staged: "
                    "another program has removed the staged file. Its epoch is decided, and its rows are nowhere else. "
                    + PUT_BACK
                )
            advice = f"Move it away. {PUT_BACK}" if left is None else "Move it away and start the query again"
            raise DataLost(
                f"sink {self.sink!r}: {target} should have {length} bytes, but another file with {found} bytes has its "
                f"name{'' if left is None else '; the staged file is still there'}. {advice}"
            )


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The first item alone, so that a store that refuses it does not get hundreds; then `CHUNK` at a time.

    >>> [len(chunk) for chunk in chunks(range(1200))]
    [1, 500, 500, 199]
    """
    if items:
        yield items[:1]
    for start in range(1, len(items), CHUNK):
        yield items[start : start + CHUNK]


def _place(number: int, place: int) -> str:
    """The name of a piece in the folder where it is joined. The others are added to the first."""
    return f"{JOINED}-{number}/{place:05d}"


def _note_misses(text: str, misses: Iterable[Miss | None]) -> None:
    for miss in misses:
        if miss is not None:
            log.debug(text, extra={"error": str(miss)})


def check_lengths(sink: str, files: SinkFiles, epoch: StagedEpoch) -> None:
    """Refuse, while an epoch is staged, what the store could not publish when it is decided."""
    longest = max((length for _, _, length in epoch.files), default=0)
    limit = files.rename_limit() if longest > RENAMED_ANYWHERE else None
    if limit is not None and longest > limit:
        raise Refused(
            f"sink {sink!r}: the epoch has a file of {longest:,} bytes. This store can publish files of at most "
            f"{limit:,} bytes. Nothing of the epoch was published. Write smaller files: set max_rows_per_file, a lower "
            "max_bytes in rolling, or more partitions"
        )


def check_predecessor(sink: str, files: SinkFiles, layout: Layout, attempt: Attempt) -> None:
    """An epoch is staged and published only in a target that has the one before it."""
    where = f"{layout.target} (by its manifest)"
    commit_checks.check_predecessor(
        sink, where, attempt, lambda epoch: manifest.holds(files, layout, attempt.lineage, epoch)
    )
