"""A reader in a process of its own, who looks at every live target for as long as the matrix runs.

It reads a target first and commits/ afterwards: a row that it sees must belong to an epoch that is
decided by then. Cases come to life and leave by a rename, so a case that is still there after the
look was whole during it.
"""

from __future__ import annotations

import json
import os
import select
from dataclasses import dataclass
from pathlib import Path

from epochal.testing.processes import fork
from integration_tests.kill_matrix.cases import Stream
from integration_tests.kill_matrix.checker import cut, cut_ahead, early, shown

PAUSE = 0.01  # seconds between two rounds: a look costs less, and the drivers need the processor


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader has to say."""

    looks: int  # at a case that showed something
    faults: list[tuple[str, str]]  # live case and what is wrong with it


class Reader:
    """Runs from `start` to `stop`. Cases are folders ``NUMBER COMMIT SINKS START`` in `live`."""

    def __init__(self, live: Path, notes: Path) -> None:
        self._live = live
        self._notes = notes
        self._process = 0
        self._stop = -1

    def start(self) -> None:
        """Begin to look."""
        end, self._stop = os.pipe()
        self._process = fork()
        if self._process:
            os.close(end)
            return
        os.close(self._stop)
        status = 1
        try:
            self._watch(end)
            status = 0
        finally:
            os._exit(status)

    def stop(self) -> Seen:
        """What was seen."""
        os.close(self._stop)
        status = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        seen = self.seen()
        return Seen(seen.looks, [*seen.faults, *([("reader", f"ended with {status}")] if status else [])])

    def seen(self) -> Seen:
        """What was seen so far; the looks are counted at the end."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        notes = [json.loads(line) for line in lines]
        return Seen(sum(n for n in notes if isinstance(n, int)), [(n[0], n[1]) for n in notes if isinstance(n, list)])

    def _watch(self, end: int) -> None:
        looks = 0
        with self._notes.open("a", buffering=1) as notes:
            # The pipe is readable when the runner closes it or dies.
            while not select.select([end], [], [], PAUSE)[0]:
                for name in os.listdir(self._live):
                    case, stream = self._live / name, stream_of(name)
                    watermark = cut(case)
                    seen = shown(case, stream)
                    faults = [*early(case, stream, seen), *cut_ahead(case, watermark)]
                    faults += [
                        f"{t} lacks epochs up to the watermark {watermark}" for t in seen if watermark >= len(seen[t])
                    ]
                    if case.exists():
                        looks += any(seen.values())
                        for fault in faults:
                            notes.write(json.dumps([name, fault]) + "\n")
            notes.write(json.dumps(looks) + "\n")


def name_of(number: int, stream: Stream) -> str:
    """A live case's folder name."""
    return f"{number:06d} {stream.commit} {stream.sinks} {stream.start}"


def stream_of(name: str) -> Stream:
    """The stream that a live case's name tells."""
    _, commit, sinks, start = name.split(" ")
    return Stream(commit, int(sinks), start)
