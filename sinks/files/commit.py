"""The second phase of rolling files: what was staged gets its name where readers look.

One strict rename a file, then the markers, then the manifest's entry, which is written here from what the handle says:
a small file less while the epoch is staged, when Spark waits. Each step may find that an earlier try has done it, and
accepts that only if the length is the recorded one. If a file is neither staged nor published, rows are gone: that
stops the query. Unless the manifest is there by then: another process has finished the epoch while this one slept, and
a compaction or a retention job has taken the file away since.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from epochal.sinks.files import manifest
from epochal.sinks.files.handle import Join, Move, Work
from epochal.sinks.files.layout import DATA, JOINED, MANIFEST, Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.txn import commit_checks, failpoints
from epochal.txn.errors import DataLost
from epochal.txn.files import JoiningFiles, join
from epochal.txn.model import Attempt, Outcome

log = logging.getLogger("epochal")


@dataclass
class Publisher:
    """Publishes one attempt's work."""

    sink: str
    files: JoiningFiles
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
            for number, one in enumerate(work.joins):
                self._join(number, one)
            for step, moves in (("rename", work.files), ("marker", work.markers)):
                for move in moves:
                    self._publish(move, step)
            if work.keeps:
                self._keep()
            # What is staged goes after this: the names must not be lost where the files are.
            files.sync_all(sorted(self._folders), within=layout.target)
            # Last: who finds the manifest knows that all of the above has happened.
            self._list(work)
        failpoints.hit("before-cleanup")
        for name in work.spent:
            files.delete(layout.source(self.attempt, name))
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
        target = self._ready(self._manifest)
        failpoints.hit("before-manifest")
        try:
            self.files.rename(staged, target)
        except (FileNotFoundError, FileExistsError):
            self._check_same(work)  # another process was faster
        failpoints.hit("after-manifest")

    def _publish(self, move: Move, step: str) -> None:
        source = self.layout.source(self.attempt, move[0])
        target = self._ready(self.layout.published(move[1]))
        failpoints.hit(f"before-{step}")
        try:
            self.files.rename(source, target)
        except (FileNotFoundError, FileExistsError):
            self._check_published(source, target, move[2], marker=step == "marker")
        failpoints.hit(f"after-{step}")

    def _join(self, number: int, one: Join) -> None:
        """Bring the pieces together, since HDFS joins only neighbours, add them to the first, and show that.

        Wherever a crash stops this, each piece is where it was, among its neighbours, or in the first of them.
        """
        first = f"{JOINED}-{number}/00000"
        whole, target = self.layout.source(self.attempt, first), self._ready(self.layout.published(one.target))
        failpoints.hit("before-join")
        if self.files.length(target) is None and self.files.length(whole) != one.length:
            self.files.make_folder(whole.rpartition("/")[0])
            gathered = [
                self._gather(f"{JOINED}-{number}/{place:05d}", name) for place, (name, _) in enumerate(one.sources)
            ]
            try:
                self.files.join_in_place(gathered[0], gathered[1:])
            except FileNotFoundError:
                log.debug("%s: joined by another process, or lost: the length tells", whole)
        failpoints.hit("after-join")
        found = self.files.length(whole)
        if found not in (None, one.length):
            raise DataLost(
                f"sink {self.sink!r}: {whole} should be joined to {one.length} bytes and has {found}: pieces of it "
                "were removed or changed by another program. Their epochs are decided; put them back from a copy"
            )
        self._publish((first, one.target, one.length), "rename")

    def _gather(self, place: str, name: str) -> str:
        path = self.layout.source(self.attempt, place)
        try:
            self.files.rename(self.layout.source(self.attempt, name), path)
        except (FileNotFoundError, FileExistsError):
            log.debug("%s: brought here before", path)  # or lost: then what is joined will lack it
        return path

    def _keep(self) -> None:
        """What stays open goes where no abort looks, all at once.

        It may be gone from there too: another process has finished this epoch, and a later one has closed the parts.
        """
        source = join(self.layout.attempt(self.attempt), DATA)
        target = self._ready(self.layout.open(self.attempt.lineage, self.attempt.epoch))
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

    def _ready(self, target: str) -> str:
        """A path whose folder is there."""
        folder = target.rpartition("/")[0]
        if folder not in self._folders:
            self.files.make_folder(folder)
            self._folders.add(folder)
        return target

    def _check_same(self, work: Work) -> None:
        """What is in the manifest must be this attempt: a copy of the journal may have written its own."""
        found = PublishedEpoch.decode(self._manifest, self.files.read(self._manifest))
        shown = commit_checks.VisibleEpoch(found.generation, found.start, found.offsets)
        commit_checks.check_same_attempt(self.sink, self.layout.target, self.attempt, work.facts.offsets, shown)

    def _check_published(self, source: str, target: str, length: int, *, marker: bool) -> None:
        """An earlier try may have done it; anything else at that name is a fault that stops the query."""
        found = self.files.length(target)
        if found == length and (marker or self.files.length(source) is None):
            return
        if found is None and self.files.length(self._manifest) is not None:
            return
        if found is None:
            raise DataLost(
                f"sink {self.sink!r}: {target} should have {length} bytes, and is neither published nor staged: the "
                "staged file was removed by another program. Its epoch is decided and its rows are gone from here"
            )
        raise DataLost(
            f"sink {self.sink!r}: {target} should have {length} bytes, but another file with {found} bytes has its "
            f"name{'' if self.files.length(source) is None else '; the staged file is still there'}. Move it away"
        )


def check_predecessor(sink: str, files: JoiningFiles, layout: Layout, attempt: Attempt) -> None:
    """An epoch is staged and shown only where the one before it is."""
    where = f"{layout.target} (by its manifest)"
    commit_checks.check_predecessor(
        sink, where, attempt, lambda epoch: manifest.holds(files, layout, attempt.lineage, epoch)
    )
