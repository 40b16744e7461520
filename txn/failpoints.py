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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "EPOCHAL_FAILPOINTS"
COUNT_VARIABLE = "EPOCHAL_FAILPOINT_COUNTS"

PROTOCOL = "protocol"
_steps: dict[str, dict[str, str]] = {}  # owner -> step -> what happens in it


def register(owner: str, steps: Mapping[str, str]) -> None:
    """Register steps, each with a short description. A sink registers its own when it is imported.

    >>> register("my store", {"upload": "the epoch's object is uploaded"})
    >>> names("my store")
    ('before-upload', 'after-upload')
    """
    _steps.setdefault(owner, {}).update(steps)


def steps(*owners: str) -> dict[str, str]:
    """The steps of some owners, or all steps registered in this process."""
    return {step: text for owner in owners or _steps for step, text in _steps.get(owner, {}).items()}


def names(*owners: str) -> tuple[str, ...]:
    """The failpoints of some owners, or all of them, in pairs."""
    return tuple(f"{side}-{step}" for step in steps(*owners) for side in ("before", "after"))


register(
    PROTOCOL,
    {
        "generation": "a start claims its generation",
        "enrol": "a start claims a sink's target in its store",
        "stage": "a participant stages an epoch",
        "prepared": "the journal records PREPARED",
        "seal": "an older generation's PREPARED name is taken by a seal",
        "roll-seal": "an older generation's next roll number is taken by a seal",
        "rolled": "the journal records that a roll is visible in every sink",
        "roll": "the journal records what is closed between two epochs",
        "decided": "the journal records DECIDED",
        "commit": "a participant commits an epoch",
        "abort": "a participant removes a losing attempt",
        "done": "the journal records DONE",
        "cut": "a file tells readers which epoch every sink shows",
        "segment": "changes of done epochs are written to a segment",
        "segment-merge": "several segments are merged into one",
        "state": "the journal records which segments are the sinks' state",
        "snapshot": "old journal records are folded into a snapshot",
        "purge": "folded journal records are removed",
    },
)


@dataclass(frozen=True, slots=True)
class Failpoint:
    """What happens at the `at`-th hit of `name`."""

    name: str
    action: str
    at: int = 1
    argument: str = ""


def parse(text: str, *, strict: bool = True) -> tuple[Failpoint, ...]:
    """Failpoints from their text. An unknown action is an error; with `strict` an unknown name too.

    >>> parse("after-done=kill@3")
    (Failpoint(name='after-done', action='kill', at=3, argument=''),)
    """
    points = []
    for clause in filter(None, (part.strip() for part in text.split(";"))):
        name, _, rest = clause.partition("=")
        rest, mark, at = rest.partition("@")
        action, _, argument = rest.partition(":")
        number = int(at) if at.isdecimal() else int(not mark)
        if strict:
            _check_name(name)
        if action not in _ACTIONS or number < 1 or (action == "pause" and not argument):
            raise ValueError(
                f"{VARIABLE}: {clause!r} is not NAME=kill|raise|pause:FILE, with or without @HIT at the end"
            )
        points.append(Failpoint(name, action, number, argument))
    return tuple(points)


def can_pause() -> bool:
    """Whether a failpoint of this process may hold it: then it stands for a process that stalls."""
    return isinstance(hit, Armed) and hit.can_pause


def check_names() -> None:
    """Refuse a failpoint in the environment whose name is not registered: it would never be hit."""
    for point in _from_environment:
        _check_name(point.name)


def _check_name(name: str) -> None:
    if name not in (registered := names()):
        raise ValueError(f"{VARIABLE}: no failpoint is called {name!r}; there are {', '.join(registered)}")


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
    """The `hit` of a process without failpoints."""


class Armed:
    """Counts hits and acts on them."""

    def __init__(self, points: tuple[Failpoint, ...], counts_file: str = "") -> None:
        self._points = points
        self._counts_file = counts_file
        self.hits: Counter[str] = Counter()
        self.can_pause = any(point.action == "pause" for point in points)

    def __call__(self, name: str) -> None:
        self.hits[name] += 1
        if self._counts_file:
            with open(self._counts_file, "a", encoding="ascii") as counts:
                counts.write(name + "\n")
        for point in self._points:
            if point.name == name and point.at == self.hits[name]:
                _ACTIONS[point.action](point)


hit: Callable[[str], None] = _nothing


def arm(text: str, counts_file: str = "", *, strict: bool = True) -> None:
    """Set the failpoints of this process; an empty text turns them off."""
    global hit
    hit = Armed(parse(text, strict=strict), counts_file) if text or counts_file else _nothing


# Names are checked by `check_names`, when the sinks of this process are known.
_from_environment = parse(os.environ.get(VARIABLE, ""), strict=False)
arm(os.environ.get(VARIABLE, ""), os.environ.get(COUNT_VARIABLE, ""), strict=False)
