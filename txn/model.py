"""The words of the protocol.

*epoch*: one micro-batch, a number. *lineage*: one stream of epochs, the query id of Spark's
checkpoint. *generation*: one start of the coordinator on a lineage, a number that only grows.
*attempt*: one generation's try at one epoch. *handle*: what a participant staged, as plain JSON.
*roll*: what a generation closes between two epochs because its time has come, with no new rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from epochal.txn.errors import Refused

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

NO_EPOCH = -1


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One generation's try at one epoch of one lineage, or its n-th `roll`, made after that epoch."""

    lineage: str
    epoch: int
    generation: int
    roll: int = 0

    @property
    def key(self) -> str:
        """A name for staging areas: sorts by epoch, then generation."""
        return f"{self.epoch:012d}.{self.generation:06d}" + (f".r{self.roll:06d}" if self.roll else "")

    @staticmethod
    def from_key(lineage: str, key: str) -> Attempt | None:
        """The attempt that a staging area is named after, or None for a foreign name.

        >>> Attempt.from_key("1f0c9a2e", "000000000042.000003.r000001")
        Attempt(lineage='1f0c9a2e', epoch=42, generation=3, roll=1)
        """
        epoch, _, rest = key.partition(".")
        generation, _, roll = rest.partition(".r")
        numbers = (epoch, generation, roll or "0")
        if not all(number.isdecimal() for number in numbers):
            return None
        attempt = Attempt(lineage, *map(int, numbers))
        return attempt if attempt.key == key else None


@dataclass(frozen=True, slots=True)
class Handle:
    """What a participant staged, enough to commit or abort it from a new process.

    The body is plain JSON and holds no secret. The version is the participant's own: it must
    refuse a version that it does not know.
    """

    version: int
    body: dict[str, Json]

    def known(self, version: int) -> dict[str, Json]:
        """The body, for a participant that knows one version."""
        if self.version != version:
            raise Refused(
                f"staged by another epochal (handle version {self.version}, this one knows {version}); finish it "
                "with the version that staged it"
            )
        return self.body

    def to_json(self) -> dict[str, Json]:
        return {"version": self.version, "body": self.body}

    @staticmethod
    def from_json(value: Json) -> Handle:
        if isinstance(value, dict):
            version, body = value.get("version"), value.get("body")
            if isinstance(version, int) and isinstance(body, dict):
                return Handle(version, body)
        raise ValueError("a handle is {version: number, body: object}")


@dataclass(frozen=True, slots=True)
class Staged:
    """A participant's answer to stage: the handle, how many rows it holds, and of how many that it was given.

    `changes` are to what the participant keeps in the journal: new values by key, None for what goes. `digest` says
    which rows they are, in the spelling of `tallies`, for an audit.
    """

    handle: Handle
    rows: int
    seen: int | None = None  # where it is not all of them
    changes: Mapping[str, Json] = field(default_factory=dict)
    digest: str | None = None

    @property
    def given(self) -> int:
        return self.rows if self.seen is None else self.seen


@dataclass(frozen=True, slots=True)
class OpenPart:
    """Something that a participant keeps open over epochs: rows that are committed and not yet shown."""

    bucket: str
    bytes: int
    rows: int | None  # where they were counted
    pieces: int
    first: float  # seconds of the wall clock
    last: float


class Outcome(Enum):
    """What a commit did."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"


@dataclass(frozen=True, slots=True)
class Memory:
    """What a store remembers of the lineages that wrote to it. Read by the guard.

    `recent` maps the latest epochs of this lineage to the digests of their source offsets.
    `others` maps other lineages to their last epoch. `adopted_by` names the lineage that took
    this one's place, if any.
    """

    target: str
    enrolled: bool = False
    last: int = NO_EPOCH
    recent: Mapping[int, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    adopted_by: str | None = None


def lineage_tag(lineage: str) -> str:
    """A lineage's short name: the query id's first eight characters, and its incarnation."""
    query, _, incarnation = lineage.partition("~")
    return query[:8] + (f"~{incarnation}" if incarnation else "")


def lineage_of(query_id: str, incarnation: int) -> str:
    """The lineage of a query; `new` gives a query another incarnation."""
    return query_id if incarnation == 1 else f"{query_id}~{incarnation}"
