"""The steps of a compaction, as the package describes them. Each is idempotent and safe to run concurrently."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from epochal.sinks.files import manifest
from epochal.sinks.files.compaction import live, records
from epochal.sinks.files.compaction.choosing import Choice, Group, LiveFile, Unfit, choose, live_files
from epochal.sinks.files.compaction.joiners import Joiners, StagedJoin
from epochal.sinks.files.compaction.records import CompactionDone, CompactionHistory, CompactionPlan, Joined
from epochal.sinks.files.layout import Layout, joined_name
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import join, sweep

log = logging.getLogger("epochal")

_STAGING = re.compile(r"(\d{12})-[0-9a-f]+", re.ASCII)


@dataclass
class Report:
    """What a run of the compactor saw and did."""

    choice: Choice
    live: list[LiveFile]  # before
    number: int | None = None  # of the compaction; None if nothing was joined
    joined: tuple[Joined, ...] = ()
    unfinished: int | None = None  # begun by another process; a run would finish it first
    finished: list[int] = field(default_factory=list)  # begun by other processes
    given_up: list[int] = field(default_factory=list)  # given up, because a joined file was lost
    waiting: dict[int, float] = field(default_factory=dict)  # compactions in their grace period -> its end


class _Lost(Exception):
    """A joined file is neither staged nor published, and no reader lists it yet."""


@dataclass
class Compactor:
    """Joins the small files of one target."""

    files: SinkFiles
    layout: Layout
    max_bytes: int
    grace: float = 0.0
    header: bool | None = None
    progress: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.time

    def look(self) -> Report:
        """What a run would join. Changes nothing."""
        known = records.read(self.files, self.layout)
        found, choice, _ = self._choose(known)
        unfinished = None if known.is_finished else known.last
        return Report(choice, found, unfinished=unfinished, waiting=self._waiting(known))

    def run(self) -> Report:
        """Finish interrupted compactions, then run one."""
        finished: list[int] = []
        given_up: list[int] = []
        while (report := self._try(finished, given_up)) is None:
            self.progress("another compaction was first: starting over")
        known = records.read(self.files, self.layout)
        self._sweep(known)
        report.finished, report.given_up, report.waiting = finished, given_up, self._waiting(known)
        return report

    def _try(self, finished: list[int], given_up: list[int]) -> Report | None:
        """Run one compaction; None if another process was first, so that what was read is out of date."""
        known = self._finish_others(finished, given_up)
        number = known.last + 1
        try:
            found, choice, joiners = self._choose(known)
            plan = self._stage(number, choice, joiners) if choice.groups else None
        except Exception:
            # The other process may have removed files that this one read, or the folder that it wrote to.
            if self._is_taken(number):
                return None
            raise
        report = Report(choice, found)
        if plan is None or not plan.files:
            return report
        if not self._record(plan):
            return None
        self._carry_out(plan, given_up)
        if number not in given_up:
            report.number, report.joined = number, plan.files
        return report

    def _choose(self, known: CompactionHistory) -> tuple[list[LiveFile], Choice, Joiners]:
        entries = list(manifest.published(self.files, self.layout.target))
        if not entries:
            raise Refused(
                f"{self.layout.target}: no manifest of epochal is there. Name the target of a RollingFileSink that has "
                "published an epoch. Nothing was joined"
            )
        found = live_files(live.after(entries, known.done))
        joiners = Joiners(self.files, self.layout, self.header)
        listings: dict[str, Mapping[str, int]] = {}

        def lengths(bucket: str) -> Mapping[str, int]:
            if bucket not in listings:
                folder = join(self.layout.target, bucket) if bucket else self.layout.target
                listings[bucket] = {e.name: e.length for e in self.files.list(folder) if not e.is_folder}
            return listings[bucket]

        return found, choose(found, self.max_bytes, lengths, joiners.key), joiners

    def _stage(self, number: int, choice: Choice, joiners: Joiners) -> CompactionPlan:
        """Join the files where no reader looks. The plan has no files if none could be joined."""
        staging = f"{number:012d}-{uuid.uuid4().hex}"
        folder = join(self.layout.compacting, staging)
        self.progress(f"joining {sum(len(group.files) for group in choice.groups)} files to {len(choice.groups)}")
        files: list[Joined] = []
        try:
            for group, one in zip(choice.groups, joiners.join(choice.groups, folder), strict=True):
                if isinstance(one, Unfit):
                    choice.unfit.append((group.files[0].path, f"and {len(group.files) - 1} after it: {one}"))
                else:
                    files.append(self._joined(number, len(files), group, one))
        finally:
            if not files:
                self.files.delete(folder)
        return CompactionPlan(number, staging, self.grace, tuple(files), self.clock())

    def _record(self, plan: CompactionPlan) -> bool:
        failpoints.hit("before-compact-plan")
        won = records.create(self.files, self.layout, plan)
        failpoints.hit("after-compact-plan")
        if not won:  # unless only the answer was lost, and this plan is the recorded one
            won = records.read_plan(self.files, self.layout, plan.number).staging == plan.staging
        if not won:
            self.files.delete(join(self.layout.compacting, plan.staging))
        return won

    def _joined(self, number: int, place: int, group: Group, staged: StagedJoin) -> Joined:
        last = group.files[-1]
        name = joined_name(number, place, last.lineage, last.epoch, group.ending)
        return Joined(
            lineage=last.lineage,
            entry=last.entry,
            path=f"{last.bucket}/{name}" if last.bucket else name,
            bytes=staged.bytes,
            staged=staged.name,
            replaced=tuple((file.path, file.bytes) for file in group.files),
        )

    def _finish_others(self, finished: list[int], given_up: list[int]) -> CompactionHistory:
        sweep(self.files, self.layout.compactions)
        known = records.read(self.files, self.layout)
        while not known.is_finished:  # another process may begin one meanwhile
            self.progress(f"finishing compaction {known.last}, which another process has begun")
            self._carry_out(records.read_plan(self.files, self.layout, known.last), given_up)
            if known.last not in given_up:
                finished.append(known.last)
            known = records.read(self.files, self.layout)
        for done in known.done:
            if done.number not in known.removed:
                self._remove(records.read_plan(self.files, self.layout, done.number), done)
        return known

    def _carry_out(self, plan: CompactionPlan, given_up: list[int]) -> None:
        """Do all steps after the plan."""
        files = plan.files
        try:
            self.progress(f"publishing {len(plan.files)} joined files")
            for joined in plan.files:
                self._publish(plan, joined)
            folders = {self._path(joined.path).rpartition("/")[0] for joined in plan.files}
            self.files.sync_all(sorted(folders), within=self.layout.target)
        except _Lost as fault:
            # Readers list the old files, which are all there. No process can finish this compaction, so it is closed.
            log.warning("compaction given up, the files are as before", extra={"error": str(fault)})
            files = ()
        failpoints.hit("before-compact-done")
        records.create(self.files, self.layout, CompactionDone(plan.number, files, self.clock()))
        failpoints.hit("after-compact-done")
        done = records.read_done(self.files, self.layout, plan.number)  # the first process to create it has decided
        if not done.files:
            given_up.append(plan.number)
        self._remove(plan, done)

    def _publish(self, plan: CompactionPlan, joined: Joined) -> None:
        source, target = join(self.layout.compacting, plan.staging, joined.staged), self._path(joined.path)
        self.files.make_folder(target.rpartition("/")[0])
        failpoints.hit("before-compact-rename")
        try:
            self.files.rename(source, target)
        except (FileNotFoundError, FileExistsError):
            found = self.files.length(target)
            if found != joined.bytes or self.files.length(source) is not None:
                self._check_done(plan, f"{target} should have {joined.bytes} bytes, and has {found or 'no file'}")
        failpoints.hit("after-compact-rename")

    def _check_done(self, plan: CompactionPlan, fault: str) -> None:
        """A joined file may be missing because this compaction is done and a later one has replaced the file."""
        if self.files.length(records.path_of(self.layout, plan.number, records.DONE)) is None:
            raise _Lost(fault)

    def _remove(self, plan: CompactionPlan, done: CompactionDone) -> None:
        # The staging folder first: after that no process can publish the files of a compaction that was given up again.
        self.files.delete(join(self.layout.compacting, plan.staging))
        if done.files and self.clock() < done.at + plan.grace:
            return
        old = [path for joined in done.files for path, _ in joined.replaced]
        if not done.files:
            old = [one.path for one in plan.files if self.files.length(self._path(one.path)) == one.bytes]
        if old:
            self.progress(f"removing {len(old)} files that were replaced")
        for path in old:
            failpoints.hit("before-compact-remove")
            self.files.delete(self._path(path))
            failpoints.hit("after-compact-remove")
        failpoints.hit("before-compact-removed")
        records.create_removed(self.files, self.layout, plan.number)
        failpoints.hit("after-compact-removed")

    def _sweep(self, known: CompactionHistory) -> None:
        """Remove staging folders of processes that died or lost the race. Folders of a free number may be in use."""
        for name in self.files.names(self.layout.compacting):
            found = _STAGING.fullmatch(name)
            if found is None or not 0 < int(found[1]) <= known.last:
                continue
            if records.read_plan(self.files, self.layout, int(found[1])).staging != name:
                try:
                    self.files.delete(join(self.layout.compacting, name))
                except OSError:  # another process still writes there, though its plan has lost
                    log.debug("staging folder left to the next sweep", extra={"folder": name})

    def _is_taken(self, number: int) -> bool:
        return self.files.length(records.path_of(self.layout, number, records.PLAN)) is not None

    def _waiting(self, known: CompactionHistory) -> dict[int, float]:
        found = {}
        for done in known.done:
            if done.number not in known.removed:
                found[done.number] = done.at + records.read_plan(self.files, self.layout, done.number).grace
        return found

    def _path(self, name: str) -> str:
        return join(self.layout.target, name)
