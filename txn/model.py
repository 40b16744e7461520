"""The words of the protocol.

*epoch*: one micro-batch, a number. *lineage*: one stream of epochs, the query id of Spark's
checkpoint. *generation*: one start of the coordinator on a lineage, a number that only grows.
*attempt*: one generation's try at one epoch. *handle*: what a participant staged, as plain JSON.
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
    """One generation's try at one epoch of one lineage."""

    lineage: str
    epoch: int
    generation: int

    @property
    def key(self) -> str:
        """A name for staging areas: sorts by epoch, then generation."""
        return f"{self.epoch:012d}.{self.generation:06d}"

    @staticmethod
    def from_key(lineage: str, key: str) -> Attempt | None:
        """The attempt that a staging area is named after, or None for a foreign name."""
        epoch, dot, generation = key.partition(".")
        if not (dot and epoch.isdecimal() and generation.isdecimal()):
            return None
        attempt = Attempt(lineage, int(epoch), int(generation))
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
    """A participant's answer to stage: the handle, how many rows it holds, and of how many that it was given."""

    handle: Handle
    rows: int
    seen: int | None = None  # where it is not all of them

    @property
    def given(self) -> int:
        return self.rows if self.seen is None else self.seen


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
