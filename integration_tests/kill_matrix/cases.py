"""What a case is, and its spelling: one word that a person can paste to run it again.

::

    checkpoint/2/fresh/after-stage@2,before-seal@1    killed at the second hit of after-stage, and the
                                                      restart at its first hit of before-seal
    eager/1/aged/change@17                            killed before the 17th change of the disk
    eager/1/short/hold:after-prepared@1,before-done@1 two drivers, each held at its point
    checkpoint/2/short/race:17                        drivers that race, timed by the seed 17
    .../broken:show-at-stage                          with a rule of the protocol broken on purpose
"""

from __future__ import annotations

from dataclasses import dataclass

from epochal.txn.model import Json

CHANGE = "change"  # a point that is no failpoint: the n-th change of the disk
AGED = 21  # epochs that an aged stream has behind it: the next one compacts the journal
EPOCHS = {"short": 2, "fresh": 4, "long": AGED + 3, "aged": AGED + 2}


@dataclass(frozen=True, slots=True)
class Stream:
    """What runs: how it commits, into how many sinks, and what was there before."""

    commit: str
    sinks: int
    start: str

    @property
    def epochs(self) -> int:
        return EPOCHS[self.start]

    @property
    def eager(self) -> bool:
        return self.commit == "eager"

    @property
    def retain(self) -> int:
        return 1 if self.start in ("aged", "long") else 20

    @property
    def targets(self) -> tuple[str, ...]:
        return ("left", "right")[: self.sinks]

    def __str__(self) -> str:
        return f"{self.commit}/{self.sinks}/{self.start}"


def rows_of(epoch: int) -> list[Json]:
    """The rows of an epoch, each saying what it is. Every third epoch is empty."""
    return [{"epoch": epoch, "index": index} for index in range(0 if epoch % 3 == 1 else 2 + epoch % 2)]


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a driver's life: the n-th hit of a failpoint, or the n-th change of the disk."""

    name: str
    hit: int

    def __str__(self) -> str:
        return f"{self.name}@{self.hit}"


@dataclass(frozen=True, slots=True)
class Case:
    """One history: drivers killed one after the other, then perhaps two at once, then one to the end."""

    stream: Stream
    kills: tuple[Point, ...] = ()
    holds: tuple[Point, ...] = ()
    race: int | None = None
    broken: str = ""

    def __str__(self) -> str:
        words = [str(self.stream)]
        if self.kills:
            words.append(",".join(map(str, self.kills)))
        if self.holds:
            words.append("hold:" + ",".join(map(str, self.holds)))
        if self.race is not None:
            words.append(f"race:{self.race}")
        if self.broken:
            words.append(f"broken:{self.broken}")
        return "/".join(words)


def parse(text: str) -> Case:
    """A case from its spelling.

    >>> str(parse("checkpoint/2/fresh/after-stage@2,before-seal@1"))
    'checkpoint/2/fresh/after-stage@2,before-seal@1'
    >>> parse("eager/1/short/hold:after-prepared@1/broken:no-fence").broken
    'no-fence'
    """
    commit, sinks, start, *words = text.split("/")
    case = Case(Stream(commit, int(sinks), start))
    if commit not in ("checkpoint", "eager") or start not in EPOCHS or case.stream.sinks not in (1, 2):
        raise ValueError(f"{text!r}: a case begins with checkpoint|eager / 1|2 / {'|'.join(EPOCHS)}")
    kills: tuple[Point, ...] = ()
    holds: tuple[Point, ...] = ()
    race, broken = None, ""
    for word in words:
        kind, colon, rest = word.partition(":")
        match kind if colon else "":
            case "hold":
                holds = _points(rest)
            case "race":
                race = int(rest)
            case "broken":
                broken = rest
            case "":
                kills = _points(word)
            case _:
                raise ValueError(f"{text!r}: {word!r} is no part of a case")
    return Case(case.stream, kills, holds, race, broken)


def _points(text: str) -> tuple[Point, ...]:
    found = []
    for word in text.split(","):
        name, _, hit = word.partition("@")
        found.append(Point(name, int(hit)))
    return tuple(found)
