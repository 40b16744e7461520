"""Writes live files (`live`), in a thread of its own: an epoch never waits for it, and its failures stop nothing."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from epochal.txn.files import Files, LocalFiles, check_own, is_local, join, local_path, sweep
from epochal.txn.live import HEARTBEAT, Live, encode, live_beside, name_of, number_of, read_live
from epochal.txn.live_fold import LiveObserver, with_earlier

log = logging.getLogger("epochal")

PAUSE = 1.0  # seconds between two files, at least
END_TIMEOUT = 5.0  # seconds that the end of a query waits for the last file


class LiveWriter:
    """Writes what one driver is doing: soon after each event, and as a heartbeat."""

    def __init__(
        self,
        files: Files,
        journal: str,
        live: Live,
        observer: LiveObserver,
        *,
        earlier: Sequence[str] = (),
        heartbeat: float = HEARTBEAT,
        pause: float = PAUSE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Not synced: after a power cut there is no driver, and a torn file is ignored.
        self._files = LocalFiles(sync=False) if is_local(journal) else files
        self._journal, self._folder = journal, live_beside(journal)
        self._earlier = earlier  # journals of earlier incarnations
        self._live, self._observer = live, observer
        self._generation, self._sequence = live.generation, 0
        self._heartbeat, self._pause, self._clock = heartbeat, pause, clock
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._failed = False
        self.keep_earlier = False  # while this driver waits for earlier ones: their files say when they have ended
        self.watch: Callable[[], None] = lambda: None  # called with each heartbeat
        self._looked = False  # at the folder, which may belong to somebody else
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Write in the background from now on."""
        self._observer.on_event = self._wake.set
        self._thread = threading.Thread(target=self._loop, name="epochal-live", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Write the last state, and stop. A store that does not answer delays it by `END_TIMEOUT` at most."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(END_TIMEOUT)

    def _loop(self) -> None:
        self._attempt(self._begin)
        while True:
            self._wake.clear()  # first: what wakes us from now on is seen by this round or by the next
            ending = self._stopping.is_set()
            self._attempt(self._write)
            if ending:
                return
            self._look_around()
            self._stopping.wait(self._pause)
            self._wake.wait(max(0.0, self._heartbeat - self._pause))

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as fault:  # noqa: BLE001  # whatever it is, the stream goes on without the file
            # At the end the JVM may be gone, through which HDFS is written.
            level = logging.DEBUG if self._failed or self._stopping.is_set() else logging.WARNING
            self._failed = True
            log.log(
                level,
                "the live file could not be written, so `epochal status` may not see that this driver runs: %s",
                fault,
                extra={"folder": self._folder},
            )

    def _look_around(self) -> None:
        """Let the driver see whether a newer one has started. It looks again with the next heartbeat."""
        try:
            self.watch()
        except OSError as fault:
            log.debug("not looked for a newer driver", extra={"error": repr(fault)})

    def _begin(self) -> None:
        """Go on with the epochs of the driver before, and remove its files.

        Our generation is the newest, so files of higher ones are from a journal that was lost. (If a newer driver has
        just started, it writes its file again.)
        """
        self._look()
        before = read_live(self._files, self._journal).live
        if before is not None and (before.lineage, before.journal) == (self._live.lineage, self._live.journal):
            self._live = with_earlier(self._live, before.epochs)
        sweep(self._files, self._folder)
        for name in self._files.names(self._folder):
            number = number_of(name)
            if number is not None and not self._is_kept(number):
                self._files.delete(join(self._folder, name))
        for folder in map(live_beside, self._earlier):
            check_own(self._files, folder, _is_own)
            self._files.delete(folder)

    def _write(self) -> None:
        self._look()
        if is_local(self._journal) and not os.path.isdir(local_path(self._journal)):
            return  # the checkpoint was removed: Spark refuses one in which it finds a stray folder
        self._sequence += 1
        self._live = replace(self._observer.folded(self._live), at=self._clock())
        data = encode(self._live)
        while not self._files.create(self._path(self._sequence), data, durable=False):
            self._sequence += 100  # a driver whose journal was lost had the same generation: be higher than its files
        numbers = {n: number for n in self._files.names(self._folder) if (number := number_of(n)) is not None}
        # Readers prefer the file of a newer driver. It waits for our last one, and removes it.
        for name, number in numbers.items():
            is_newest = number == (self._generation, self._sequence)
            if number[0] <= self._generation and not is_newest and not self._is_kept(number):
                self._files.delete(join(self._folder, name))

    def _is_kept(self, number: tuple[int, int]) -> bool:
        return self.keep_earlier and number[0] < self._generation

    def _look(self) -> None:
        if not self._looked:
            check_own(self._files, self._folder, _is_own)
            self._looked = True

    def _path(self, sequence: int) -> str:
        return join(self._folder, name_of(self._generation, sequence))


def _is_own(name: str) -> bool:
    return number_of(name) is not None
