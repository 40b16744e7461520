"""The second phase of rolling files: what was staged gets its name where readers look.

One strict rename a file. The files of an epoch are independent of each other, so they go to the store in chunks, side
by side; what follows has to wait for all of them:

1. Pieces are joined, and each whole is renamed; files that are whole already are renamed.
2. Markers: who sees one reads the files.
3. What stays open is moved away as a folder, so what is published must have left it.
4. The names are brought to stable storage: a power cut must not take back what the manifest lists.
5. The manifest's entry: who finds it need not look at any of the above. It is written here from what the handle says: a
   small file less while the epoch is staged, when Spark waits.
6. What is staged, and pieces that are in published files, are removed. Before the manifest a repeat may need them.

Each step may find that an earlier try has done it, for some files of a chunk or for all, and accepts that only if the
length is the recorded one. If a file is neither staged nor published, rows are gone: that stops the query. Unless the
manifest is there by then: another process has finished the epoch while this one slept, and a compaction or a retention
job has taken the file away since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from epochal.sinks.files import manifest
from epochal.sinks.files.handle import Join, Move, Work
from epochal.sinks.files.layout import DATA, JOINED, MANIFEST, Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.storage.sink_files import Miss, SinkFiles
from epochal.txn import commit_checks, failpoints
from epochal.txn.errors import DataLost
from epochal.txn.files import join
from epochal.txn.model import Attempt, Outcome

log = logging.getLogger("epochal")

CHUNK = 500  # files that go to the store at once; between two chunks a kill finds some done and others not

Item = TypeVar("Item")


@dataclass
class Publisher:
    """Publishes one attempt's work."""

    sink: str
    files: SinkFiles
    layout: Layout
    attempt: Attempt
    _folders: set[str] = field(default_factory=set)

    def publish(self, work: Work) -> Outcome:
        """Show it, once."""
        files, layout = self.files, self.layout
        self._check_names(work)
        known = files.length(self._manifest) is not None
        if known:
            self._check_same(work)
        else:
            check_predecessor(self.sink, self.files, self.layout, self.attempt)
            for joins in chunks(list(enumerate(work.joins))):
                self._join(joins)
            for step, moves in (("rename", work.files), ("marker", work.markers)):
                for chunk in chunks(moves):
                    self._publish(chunk, step)
            if work.keeps:
                self._keep()
            # What is staged goes after this: the names must not be lost where the files are.
            files.sync_all(sorted(self._folders), within=layout.target)
            # Last: who finds the manifest knows that all of the above has happened.
            self._list(work)
        failpoints.hit("before-cleanup")
        files.delete_all([layout.source(self.attempt, name) for name in work.spent])
        files.delete(layout.attempt(self.attempt))
        failpoints.hit("after-cleanup")
        return Outcome.ALREADY_COMMITTED if known else Outcome.COMMITTED

    @property
    def _manifest(self) -> str:
        return join(self.layout.target, self.layout.manifest_name(self.attempt))

    def _list(self, work: Work) -> None:
        """Written beside what is staged, so that it goes with it, whoever dies in the midst of this; then renamed."""
        staged = self.layout.source(self.attempt, MANIFEST)
        self.files.create(staged, work.entry(self.attempt).encode(), durable=False)  # unless an earlier try has
        target = self._manifest
        self._make_folders([target])
        failpoints.hit("before-manifest")
        try:
            self.files.rename(staged, target)
        except (FileNotFoundError, FileExistsError):
            self._check_same(work)  # another process was faster
        failpoints.hit("after-manifest")

    def _publish(self, moves: Sequence[Move], step: str) -> None:
        source, published = partial(self.layout.source, self.attempt), self.layout.published
        paths = [(source(name), published(target)) for name, target, _ in moves]
        self._make_folders(target for _, target in paths)
        failpoints.hit(f"before-{step}")
        misses = self.files.rename_all(paths)
        unsure = [(*path, move[2]) for path, move, miss in zip(paths, moves, misses, strict=True) if miss]
        self._check_published(unsure, markers=step == "marker")
        failpoints.hit(f"after-{step}")

    def _join(self, joins: Sequence[tuple[int, Join]]) -> None:
        """Bring the pieces together, since HDFS joins only neighbours, add them to the first, and show that.

        Wherever a crash stops this, each piece is where it was, among its neighbours, or in the first of them.
        """
        files, source = self.files, partial(self.layout.source, self.attempt)
        wholes = [source(_place(number, 0)) for number, _ in joins]
        failpoints.hit("before-join")
        lengths = files.lengths([*(self.layout.published(one.target) for _, one in joins), *wholes])
        todo = [
            (number, one)
            for (number, one), shown, joined in zip(joins, lengths, lengths[len(joins) :], strict=False)
            if shown is None and joined != one.length
        ]
        files.make_folders([source(_place(number, 0)).rpartition("/")[0] for number, _ in todo])
        moves = [
            (source(name), source(_place(number, place)))
            for number, one in todo
            for place, (name, _) in enumerate(one.sources)
        ]
        _note("brought here before, or lost: the length tells", files.rename_all(moves))
        groups = [[source(_place(number, place)) for place in range(len(one.sources))] for number, one in todo]
        _note("joined by another process, or lost: the length tells", files.join_all_in_place(groups))
        failpoints.hit("after-join")
        for (_, one), whole, found in zip(joins, wholes, files.lengths(wholes), strict=True):
            if found not in (None, one.length):
                raise DataLost(
                    f"sink {self.sink!r}: {whole} should be joined to {one.length} bytes and has {found}: pieces of "
                    "it were removed or changed by another program. Their epochs are decided; put them back from a copy"
                )
        self._publish([(_place(number, 0), one.target, one.length) for number, one in joins], "rename")

    def _keep(self) -> None:
        """What stays open goes where no abort looks, all at once.

        It may be gone from there too: another process has finished this epoch, and a later one has closed the parts.
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
                    f"in {source} nor in {target}: another program has removed them"
                ) from None
        failpoints.hit("after-keep")

    def _check_names(self, work: Work) -> None:
        """Before the first step: a name that leads elsewhere must not be found halfway."""
        for source, target, _ in (*work.files, *work.markers):
            self.layout.source(self.attempt, source)
            self.layout.published(target)
        for one in work.joins:
            self.layout.published(one.target)
        for name in (*(name for one in work.joins for name, _ in one.sources), *work.spent):
            self.layout.source(self.attempt, name)

    def _make_folders(self, targets: Iterable[str]) -> None:
        """The folders that these paths are in, unless they were made before."""
        folders = dict.fromkeys(target.rpartition("/")[0] for target in targets)
        new = [folder for folder in folders if folder not in self._folders]
        self.files.make_folders(new)
        self._folders.update(new)

    def _check_same(self, work: Work) -> None:
        """What is in the manifest must be this attempt: a copy of the journal may have written its own."""
        found = PublishedEpoch.decode(self._manifest, self.files.read(self._manifest))
        shown = commit_checks.VisibleEpoch(found.generation, found.start, found.offsets)
        commit_checks.check_same_attempt(self.sink, self.layout.target, self.attempt, work.facts.offsets, shown)

    def _check_published(self, moves: Sequence[Move], *, markers: bool) -> None:
        """An earlier try may have done it; anything else at those names is a fault that stops the query."""
        if not moves:
            return
        lengths = self.files.lengths([*(target for _, target, _ in moves), *(source for source, _, _ in moves)])
        finished = None in lengths[: len(moves)] and self.files.length(self._manifest) is not None
        for (_, target, length), found, left in zip(moves, lengths, lengths[len(moves) :], strict=False):
            if found == length and (markers or left is None):
                continue
            if found is None and finished:
                continue
            if found is None:
                raise DataLost(
                    f"sink {self.sink!r}: {target} should have {length} bytes, and is neither published nor staged: "
                    "the staged file was removed by another program. Its epoch is decided and its rows are gone from "
                    "here"
                )
            raise DataLost(
                f"sink {self.sink!r}: {target} should have {length} bytes, but another file with {found} bytes has its "
                f"name{'' if left is None else '; the staged file is still there'}. Move it away"
            )


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The first alone, so that a store that refuses says so before it is asked for hundreds; then `CHUNK` at a time.

    >>> [len(chunk) for chunk in chunks(range(1200))]
    [1, 500, 500, 199]
    """
    if items:
        yield items[:1]
    for start in range(1, len(items), CHUNK):
        yield items[start : start + CHUNK]


def _place(number: int, place: int) -> str:
    """Where a piece of a join lies among its neighbours. The first becomes the whole."""
    return f"{JOINED}-{number}/{place:05d}"


def _note(what: str, misses: Iterable[Miss | None]) -> None:
    for miss in misses:
        if miss is not None:
            log.debug("%s: %s", miss, what)


def check_predecessor(sink: str, files: SinkFiles, layout: Layout, attempt: Attempt) -> None:
    """An epoch is staged and shown only where the one before it is."""
    where = f"{layout.target} (by its manifest)"
    commit_checks.check_predecessor(
        sink, where, attempt, lambda epoch: manifest.holds(files, layout, attempt.lineage, epoch)
    )
