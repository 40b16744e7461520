"""Looks at a stream: its checkpoint, its journal, the live file of its driver, the processes of this machine.

Reads only. While no driver starts, a look costs a listing, a read and a question for one name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from epochal.spark_plugins.standby.sight import Sight, see
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.incarnations import current_journal
from epochal.txn.journal import Journal
from epochal.txn.live import Live, live_beside, number_of, read_lives
from epochal.txn.process import Process, Running, running
from epochal.txn.records import GenerationStarted


class Lookout:
    """Watches one stream."""

    def __init__(
        self,
        files: Files,
        checkpoint: str,
        journals: Callable[[int], Journal],
        *,
        looked_up: Callable[[Process], Running] = running,
    ) -> None:
        """`files` are those of the checkpoint; `journals` opens the journal of an incarnation."""
        self._files, self._checkpoint, self._journals = files, checkpoint, journals
        self._looked_up = looked_up
        self._journal: Journal | None = None  # the one in use
        self._latest: GenerationStarted | None = None
        self._seen: tuple[int, Live] | None = None  # the last live file of that start, with its number

    @property
    def journal(self) -> Journal:
        """The journal in use, as of the last look."""
        return self._journal if self._journal is not None else self._read()

    def check(self) -> None:
        """Refused if drivers can write no live file here: a standby would give up each of them."""
        try:
            folder = live_beside(self.journal.path)
            names = self.journal.files.names(folder)
        except OSError:
            return  # a standby waits until it can look
        foreign = next((name for name in names if not name.startswith(".") and number_of(name) is None), None)
        if foreign is not None:
            raise Refused(
                f"{folder} is used for something else: it holds {foreign}. Drivers write no live file there, so every "
                "one would seem to hang. Nothing was started. Move it away"
            )

    def look(self, *, afresh: bool = False) -> Sight:
        """What there is now; `afresh` reads the journal even if nothing new is seen. OSError if it cannot be read."""
        journal, latest = self._journal, self._latest
        if afresh or journal is None or latest is None or journal.has_start(latest.generation + 1):
            journal, latest = self._read(), self._latest
        if latest is None:
            is_begun = self._files.length(join(self._checkpoint, "metadata")) is not None
            return replace(see(None, None, self._looked_up), is_begun=is_begun)
        # Before the live file is read: a driver writes its last one and then ends.
        found = {process: self._looked_up(process) for process in self._processes(latest)}
        lives = read_lives(journal.files, journal.path, place=journal.place)
        if any(generation > latest.generation for generation in lives) and not afresh:
            return self.look(afresh=True)  # the start that we missed may be folded away already
        live = lives.get(latest.generation)
        if live is not None and live[1].start == latest.start:
            self._seen = live  # else it was replaced while we read: the one before still holds
        return see(latest, self._seen, lambda process: found.get(process, Running.UNKNOWN))

    def is_gone(self) -> bool:
        """Whether the driver that was seen last is known to be gone. Costs nearly nothing."""
        latest = self._latest
        return latest is not None and any(self._looked_up(one) is Running.NO for one in self._processes(latest))

    def _processes(self, latest: GenerationStarted) -> list[Process]:
        if self._seen is None or self._seen[1].start != latest.start:
            return [latest.driver.process]
        live = self._seen[1]
        return [live.process] if live.jvm is None else [live.process, live.jvm]

    def _read(self) -> Journal:
        """Read the journal in use. OSError if it has no start any more: its file system may not be mounted."""
        _, journal = current_journal(self._journals)
        latest = journal.view.latest
        if latest is None and self._latest is not None:
            raise OSError(f"{journal.path} had a start, and has none now")
        self._journal, self._latest = journal, latest
        return journal
