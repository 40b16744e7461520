"""Places where a test can kill, break or pause the process, in pairs around each durable step.

Set by environment variable before the process starts, several joined by ``;``::

    EPOCHAL_FAILPOINTS="after-prepared=kill@2"          SIGKILL at the second hit
    EPOCHAL_FAILPOINTS="before-rename=raise"            OSError at the first hit
    EPOCHAL_FAILPOINTS="before-decided=pause:/tmp/p"    creates /tmp/p and waits until it is gone

A kill takes the whole process group when the process leads one, as a driver with its JVM does.
When the variable is not set, `hit` is a function that does nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "EPOCHAL_FAILPOINTS"
COUNT_VARIABLE = "EPOCHAL_FAILPOINT_COUNTS"

STEPS: dict[str, str] = {
    "generation": "a start claims its generation",
    "enrol": "a sink's store is told of the lineage",
    "stage": "a participant stages an epoch",
    "prepared": "the journal records PREPARED",
    "seal": "an older generation's PREPARED name is taken",
    "roll-seal": "an older generation's next roll is taken",
    "rolled": "the journal records that every sink shows what a roll closed",
    "roll": "the journal records what is closed between two epochs",
    "decided": "the journal records DECIDED",
    "commit": "a participant commits an epoch",
    "abort": "a participant removes a losing attempt",
    "done": "the journal records DONE",
    "snapshot": "old journal records are folded into a snapshot",
    "purge": "folded journal records are removed",
    "write": "files, Delta, Cassandra: Spark's writer stages the epoch's files",
    "rename": "files, Delta: one staged file gets its name where readers look",
    "merge": "files: pieces of closed Parquet or ORC parts are merged, while the epoch is staged",
    "copy": "files: pieces of a closed part are copied into one, where they cannot be joined in place",
    "join": "files: pieces of a closed part are joined in place",
    "keep": "files: pieces of parts that stay open are put where they wait",
    "marker": "files: a marker of the epoch or of a bucket is made",
    "manifest": "files: the epoch is added to the manifest",
    "cleanup": "files, Delta, Cassandra: the staging area of a committed epoch is removed",
    "table": "Delta: a missing table is made",
    "log": "Delta: the epoch's entry is added to the table's log",
    "rows": "Cassandra: the epoch's rows are written",
    "part": "Cassandra: one staged file is written and noted, in an executor",
    "ledger": "Cassandra: the ledger is told that the epoch is in",
}
NAMES: tuple[str, ...] = tuple(f"{side}-{step}" for step in STEPS for side in ("before", "after"))
# Of `epochal compact`, which is no part of a stream: a kill there ends no driver.
STEPS_OF_COMPACTION: dict[str, str] = {
    "compact-stage": "small files are joined into one, where no reader looks",
    "compact-plan": "it is recorded what takes the place of what",
    "compact-rename": "one joined file gets its name where readers look",
    "compact-done": "it is recorded that readers by manifest list the joined files",
    "compact-remove": "one file that was replaced is removed",
    "compact-removed": "it is recorded that all of them are gone",
}
NAMES_OF_COMPACTION: tuple[str, ...] = tuple(
    f"{side}-{step}" for step in STEPS_OF_COMPACTION for side in ("before", "after")
)


@dataclass(frozen=True, slots=True)
class Failpoint:
    """What happens at the `at`-th hit of `name`."""

    name: str
    action: str
    at: int = 1
    argument: str = ""


def parse(text: str) -> tuple[Failpoint, ...]:
    """Failpoints from their text; a name or an action that does not exist is an error.

    >>> parse("after-done=kill@3")
    (Failpoint(name='after-done', action='kill', at=3, argument=''),)
    """
    found = []
    for clause in filter(None, (part.strip() for part in text.split(";"))):
        name, _, rest = clause.partition("=")
        rest, mark, at = rest.partition("@")
        action, _, argument = rest.partition(":")
        number = int(at) if at.isdecimal() else int(not mark)
        if name not in (known := (*NAMES, *NAMES_OF_COMPACTION)):
            raise ValueError(f"{VARIABLE}: no failpoint is called {name!r}; there are {', '.join(known)}")
        if action not in _ACTIONS or number < 1 or (action == "pause" and not argument):
            raise ValueError(f"{VARIABLE}: {clause!r} is not NAME=kill|raise|pause:FILE with @HIT behind it")
        found.append(Failpoint(name, action, number, argument))
    return tuple(found)


def _kill(_: Failpoint) -> None:
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(point: Failpoint) -> None:
    raise OSError(f"failpoint {point.name}")


def _pause(point: Failpoint) -> None:
    gate = Path(point.argument)
    gate.touch()
    while gate.exists():
        time.sleep(0.005)


_ACTIONS: dict[str, Callable[[Failpoint], None]] = {"kill": _kill, "raise": _raise, "pause": _pause}


def _nothing(name: str) -> None:
    """What a hit costs when no failpoint is set."""


class Armed:
    """Counts hits and acts on them."""

    def __init__(self, points: tuple[Failpoint, ...], counts_file: str = "") -> None:
        self._points = points
        self._counts_file = counts_file
        self.hits: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        self.hits[name] += 1
        if self._counts_file:
            with open(self._counts_file, "a", encoding="ascii") as counts:
                counts.write(name + "\n")
        for point in self._points:
            if point.name == name and point.at == self.hits[name]:
                _ACTIONS[point.action](point)


hit: Callable[[str], None] = _nothing


def arm(text: str, counts_file: str = "") -> None:
    """Set the failpoints of this process; an empty text turns them off."""
    global hit
    hit = Armed(parse(text), counts_file) if text or counts_file else _nothing


arm(os.environ.get(VARIABLE, ""), os.environ.get(COUNT_VARIABLE, ""))
