"""The steps of a compaction, as the package tells them. Several may do each at once, and one who slept again."""

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
from epochal.sinks.files.compaction.joiners import Joiners, Staged
from epochal.sinks.files.compaction.records import Done, Joined, Known, Plan
from epochal.sinks.files.layout import Layout, joined_name
from epochal.sinks.storage.sink_files import SinkFiles
from epochal.txn import failpoints
from epochal.txn.errors import Refused
from epochal.txn.files import join, sweep

log = logging.getLogger("epochal")

_STAGING = re.compile(r"(\d{12})-[0-9a-f]+", re.ASCII)


@dataclass
class Report:
    """What a run found and did."""

    choice: Choice
    live: list[LiveFile]  # before
    number: int | None = None  # of the compaction; None if there was nothing to join, or it was only looked
    joined: tuple[Joined, ...] = ()
    unfinished: int | None = None  # begun by others; a run would finish it first
    finished: list[int] = field(default_factory=list)  # begun by others
    given_up: list[int] = field(default_factory=list)  # a joined file of theirs was lost
    waiting: dict[int, float] = field(default_factory=dict)  # whose old files are in their grace, and until when


class _Lost(Exception):
    """A joined file is neither staged nor published, before readers were told of it."""


@dataclass
class Compactor:
    """Joins the small files of one target."""

    files: SinkFiles
    layout: Layout
    max_bytes: int
    grace: float = 0.0
    header: bool | None = None
    told: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.time

    def look(self) -> Report:
        """What a run would join; nothing is changed."""
        known = records.read(self.files, self.layout)
        found, choice, _ = self._choose(known)
        unfinished = None if known.is_finished else known.last
        return Report(choice, found, unfinished=unfinished, waiting=self._waiting(known))

    def run(self) -> Report:
        """Finish what others have begun, then join what is small, once."""
        finished: list[int] = []
        given_up: list[int] = []
        while (report := self._try(finished, given_up)) is None:
            self.told("another compaction was first: looking again")
        known = records.read(self.files, self.layout)
        self._sweep(known)
        report.finished, report.given_up, report.waiting = finished, given_up, self._waiting(known)
        return report

    def _try(self, finished: list[int], given_up: list[int]) -> Report | None:
        """One compaction; None if another was first, so that all that was read is out of date."""
        known = self._finish_others(finished, given_up)
        number = known.last + 1
        try:
            found, choice, joiners = self._choose(known)
            plan = self._stage(number, choice, joiners) if choice.groups else None
        except Exception:
            # The winner may have removed the files that were being read, or the folder that was written to.
            if self._is_taken(number):
                return None
            raise
        report = Report(choice, found)
        if plan is None or not plan.files:
            return report
        if not self._win(plan):
            return None
        self._carry_out(plan, given_up)
        if number not in given_up:
            report.number, report.joined = number, plan.files
        return report

    def _choose(self, known: Known) -> tuple[list[LiveFile], Choice, Joiners]:
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

    def _stage(self, number: int, choice: Choice, joiners: Joiners) -> Plan:
        """Join the files, where no reader looks. Without files, the plan is for nothing."""
        staging = f"{number:012d}-{uuid.uuid4().hex}"
        folder = join(self.layout.compacting, staging)
        self.told(f"joining {sum(len(group.files) for group in choice.groups)} files to {len(choice.groups)}")
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
        return Plan(number, staging, self.grace, tuple(files), self.clock())

    def _win(self, plan: Plan) -> bool:
        failpoints.hit("before-compact-plan")
        won = records.create(self.files, self.layout, plan)
        failpoints.hit("after-compact-plan")
        if not won:  # or the answer was lost on the way, and this plan is the one that is there
            won = records.read_plan(self.files, self.layout, plan.number).staging == plan.staging
        if not won:
            self.files.delete(join(self.layout.compacting, plan.staging))
        return won

    def _joined(self, number: int, place: int, group: Group, staged: Staged) -> Joined:
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

    def _finish_others(self, finished: list[int], given_up: list[int]) -> Known:
        sweep(self.files, self.layout.compactions)
        known = records.read(self.files, self.layout)
        while not known.is_finished:  # there may be another by the time that one is finished
            self.told(f"finishing compaction {known.last}, which another process has begun")
            self._carry_out(records.read_plan(self.files, self.layout, known.last), given_up)
            if known.last not in given_up:
                finished.append(known.last)
            known = records.read(self.files, self.layout)
        for done in known.done:
            if done.number not in known.removed:
                self._remove(records.read_plan(self.files, self.layout, done.number), done)
        return known

    def _carry_out(self, plan: Plan, given_up: list[int]) -> None:
        """From the plan to the end."""
        files = plan.files
        try:
            self.told(f"publishing {len(plan.files)} joined files")
            for joined in plan.files:
                self._publish(plan, joined)
            folders = {self._path(joined.path).rpartition("/")[0] for joined in plan.files}
            self.files.sync_all(sorted(folders), within=self.layout.target)
        except _Lost as fault:
            # Readers list the old files, which are all there; nobody can finish this, so nobody must try for ever.
            log.warning("compaction given up, the files are as before: %s", fault)
            files = ()
        failpoints.hit("before-compact-done")
        records.create(self.files, self.layout, Done(plan.number, files, self.clock()))
        failpoints.hit("after-compact-done")
        done = records.read_done(self.files, self.layout, plan.number)  # the first to make it has decided
        if not done.files:
            given_up.append(plan.number)
        self._remove(plan, done)

    def _publish(self, plan: Plan, joined: Joined) -> None:
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

    def _check_done(self, plan: Plan, fault: str) -> None:
        """A joined file may be gone: others have finished this, and a later compaction has replaced it."""
        if self.files.length(records.path_of(self.layout, plan.number, records.DONE)) is None:
            raise _Lost(fault)

    def _remove(self, plan: Plan, done: Done) -> None:
        # Of one that was given up the staging goes first: after that nobody can publish what is removed here.
        self.files.delete(join(self.layout.compacting, plan.staging))
        if done.files and self.clock() < done.at + plan.grace:
            return
        old = [path for joined in done.files for path, _ in joined.replaced]
        if not done.files:
            old = [one.path for one in plan.files if self.files.length(self._path(one.path)) == one.bytes]
        if old:
            self.told(f"removing {len(old)} files that were replaced")
        for path in old:
            failpoints.hit("before-compact-remove")
            self.files.delete(self._path(path))
            failpoints.hit("after-compact-remove")
        failpoints.hit("before-compact-removed")
        records.create_removed(self.files, self.layout, plan.number)
        failpoints.hit("after-compact-removed")

    def _sweep(self, known: Known) -> None:
        """Remove what those left who died while they joined, or were second. A number that is free may yet be won."""
        for name in self.files.names(self.layout.compacting):
            found = _STAGING.fullmatch(name)
            if found is None or not 0 < int(found[1]) <= known.last:
                continue
            if records.read_plan(self.files, self.layout, int(found[1])).staging != name:
                try:
                    self.files.delete(join(self.layout.compacting, name))
                except OSError:  # its maker is still writing there, in vain
                    log.debug("%s: left to the next sweep", name)

    def _is_taken(self, number: int) -> bool:
        return self.files.length(records.path_of(self.layout, number, records.PLAN)) is not None

    def _waiting(self, known: Known) -> dict[int, float]:
        found = {}
        for done in known.done:
            if done.number not in known.removed:
                found[done.number] = done.at + records.read_plan(self.files, self.layout, done.number).grace
        return found

    def _path(self, name: str) -> str:
        return join(self.layout.target, name)
