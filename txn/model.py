"""The words of the protocol.

*epoch*: one micro-batch, a number. *lineage*: one stream of epochs, the query id of Spark's
checkpoint. *generation*: one start of the coordinator on a lineage, a number that only grows.
*attempt*: one generation's try at one epoch. *handle*: what a participant staged, as plain JSON.
*roll*: what a generation closes between two epochs because its time has come, with no new rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from epochal.txn.errors import Refused

Rows = TypeVar("Rows")
Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

NO_EPOCH = -1


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One generation's try at one epoch of one lineage, or its n-th `roll`, made after that epoch.

    `start` tells generations apart that have the same number because a journal was copied; empty if it is unknown.
    `after` is the last epoch before this one that the sink must hold; None if there is none, or nobody knows.
    `scratch` is a folder beside the stream's journal, for a store that has no place for staged files.
    """

    lineage: str
    epoch: int
    generation: int
    roll: int = 0
    start: str = field(default="", compare=False, repr=False)
    after: int | None = field(default=None, compare=False, repr=False)
    scratch: str = field(default="", compare=False, repr=False)

    @property
    def number(self) -> str:
        """A name for what it publishes: sorts by epoch, then generation."""
        return f"{self.epoch:012d}.{self.generation:06d}" + (f".r{self.roll:06d}" if self.roll else "")

    @property
    def key(self) -> str:
        """A name for its staging area: copies of a journal have attempts of the same number, and of other starts."""
        return f"{self.number}-{self.start}" if self.start else self.number

    @staticmethod
    def from_key(lineage: str, key: str, *, scratch: str = "") -> Attempt | None:
        """The attempt that a staging area is named after, or None for a foreign name.

        >>> Attempt.from_key("1f0c9a2e", "000000000042.000003.r000001-5a17").start
        '5a17'
        """
        number, _, start = key.partition("-")
        epoch, _, rest = number.partition(".")
        generation, _, roll = rest.partition(".r")
        numbers = (epoch, generation, roll or "0")
        if not all(number.isdecimal() for number in numbers):
            return None
        attempt = Attempt(lineage, int(epoch), int(generation), int(roll or 0), start, scratch=scratch)
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
    """A participant's answer to `stage` and `roll`.

    `rows` is how many rows the handle holds; `seen` how many the participant was given, where that is another number.
    `changes` update the participant's state: new values by key, None removes a key. `digest` identifies the rows, as
    `row_digests` writes it, for an audit.
    """

    handle: Handle
    rows: int
    seen: int | None = None
    changes: Mapping[str, Json] = field(default_factory=dict)
    digest: str | None = None

    @property
    def given(self) -> int:
        return self.rows if self.seen is None else self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Generic[Rows]):
    """One epoch for one participant: everything that `stage` depends on, in one argument.

    A wrapper changes what it must with `dataclasses.replace` and passes the rest on without naming it.
    """

    attempt: Attempt
    rows: Rows
    offsets: str  # digest of what the epoch reads; the participant stores it with the epoch
    state: Mapping[str, Json] = field(default_factory=dict)  # the participant's state after the epoch before
    earlier: tuple[Handle, ...] = ()  # what older generations have prepared for this epoch, oldest first
    watermark: float | None = None  # seconds since 1970; None while the query has none

    @property
    def scratch(self) -> str:
        """A folder beside the stream's journal, for a store that has no place for staged files."""
        return self.attempt.scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRequest:
    """Between two epochs: what is due, or with `every` all that is open, is to be closed without new rows."""

    attempt: Attempt
    state: Mapping[str, Json]
    every: bool


@dataclass(frozen=True, slots=True)
class OpenRows:
    """Rows that are committed and not yet shown, because a participant holds them open over epochs; for people."""

    group: str  # what is held open together: a folder, a key, a topic
    bytes: int
    rows: int | None  # where they were counted
    chunks: int  # how many epochs or files they came in
    first: float  # seconds of the wall clock
    last: float


@dataclass(frozen=True, slots=True)
class Description:
    """A participant as a journal describes it: enough to build it again in a new process, without secrets."""

    settings: Mapping[str, Json]

    @property
    def kind(self) -> str:
        return str(self.settings.get("type", ""))

    @property
    def target(self) -> str:
        """Where it keeps its epochs. A participant without a target is identified by its whole description."""
        target = self.settings.get("target")
        return target if isinstance(target, str) else canonical(dict(self.settings)).decode("ascii")

    @property
    def keeps_open(self) -> bool:
        """Whether it may hold rows open over epochs."""
        return bool(self.settings.get("keeps_open"))


class Outcome(Enum):
    """What a commit did."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One start's hold on a target.

    Each start of a stream renews it in the store itself. A copy of a checkpoint has a journal of its own and shares
    the stores, so this is where the two meet: the journal of whoever claimed last has that start on record, any other
    has not.
    """

    lineage: str
    generation: int
    start: str  # drawn at random by each start
    journal: str  # where its journal is
    sink: str = ""  # what the target is called in its writer
    replaces: tuple[str, ...] = ()  # the lineages whose place it takes: they can write no more
    driver: Mapping[str, Json] = field(default_factory=dict, compare=False)  # host and pid, for people

    def __str__(self) -> str:
        facts = [f"{name} {self.driver[name]}" for name in ("host", "pid") if name in self.driver]
        return f"generation {self.generation} of the journal in {self.journal or 'an unknown place'}" + (
            f" ({', '.join(facts)})" if facts else ""
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What a store remembers of the lineages that wrote to it. Read by the guard.

    `recent` maps the latest epochs of this lineage to the digests of their source offsets.
    `others` maps other lineages to their last epoch. `adopted_by` names the lineage that took
    this one's place, if any. `holder` is this lineage's newest claim, `version` how many claims the
    target has seen: a new one is accepted only on the version that was judged. `identity` says what
    the target is, however it is spelled; empty if the target's name says it. `exclusive`: only one stream
    may ever write here, so `new` is no choice.
    """

    target: str
    enrolled: bool = False
    last: int = NO_EPOCH
    recent: Mapping[int, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    adopted_by: str | None = None
    holder: Claim | None = None
    version: int = 0
    identity: str = ""
    exclusive: bool = False


def canonical(value: Json) -> bytes:
    """The one way to write a JSON value as bytes.

    >>> canonical({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def lineage_tag(lineage: str) -> str:
    """A lineage's short name: the query id's first eight characters, and its incarnation."""
    query, _, incarnation = lineage.partition("~")
    return query[:8] + (f"~{incarnation}" if incarnation else "")


def lineage_of(query_id: str, incarnation: int) -> str:
    """The lineage of a query; `new` gives a query another incarnation."""
    return query_id if incarnation == 1 else f"{query_id}~{incarnation}"
