"""The words of the protocol.

*epoch*: one micro-batch, a number. *lineage*: one stream of epochs, the query id of Spark's
checkpoint. *generation*: one start of the coordinator on a lineage, a number that only grows.
*attempt*: one generation's try at one epoch. *handle*: what a participant staged, as plain JSON.
*roll*: open parts that a generation closes between two epochs, without new rows, because they are due.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from epochal.txn import json_value
from epochal.txn.errors import Refused
from epochal.txn.state.typed import Edit

Rows = TypeVar("Rows")
Json: TypeAlias = json_value.Json

NO_EPOCH = -1


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """One generation's try at one epoch of one lineage, or its n-th `roll`, made after that epoch.

    `start` is the random id of the generation's start. It distinguishes generations that have the same number because
    a journal was copied; empty if unknown. `after` is the last epoch before this one that the sink must hold; None if
    there is none or it is unknown. `scratch` is a folder beside the stream's journal, for a store that has no place for
    staged files.
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
        """A name for its staging area. Includes the start: copies of a journal have attempts of the same number."""
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

    The body is plain JSON and holds no secret. Each participant has its own versions and must
    refuse one that it does not know.
    """

    version: int
    body: dict[str, Json]

    def checked_body(self, version: int) -> dict[str, Json]:
        """The body; Refused if the handle has another version."""
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
    """What a participant returns from `stage` and `roll`.

    `rows` is the number of rows in the handle; `seen` the number that the participant received, if it is another one.
    `changes` update the participant's state: new values by key, None removes a key. `digest` identifies the rows for an
    audit, in the format of `row_digests`. `bytes` is the size of what was staged, for display; None if unknown.
    """

    handle: Handle
    rows: int
    seen: int | None = None
    changes: Mapping[str, Json] = field(default_factory=dict)
    digest: str | None = None
    bytes: int | None = None

    @property
    def rows_seen(self) -> int:
        """The number of rows that the participant received."""
        return self.rows if self.seen is None else self.seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Generic[Rows]):
    """One epoch for one participant: everything that `stage` depends on, in one argument.

    A wrapper changes fields with `dataclasses.replace`, so that it passes on the others without naming them.
    """

    attempt: Attempt
    rows: Rows
    offsets: str  # digest of what the epoch reads; the participant stores it with the epoch
    state: Mapping[str, Json] = field(default_factory=dict)  # the participant's state after the epoch before
    earlier: tuple[Handle, ...] = ()  # what older generations prepared for this epoch, oldest first
    watermark: float | None = None  # seconds since 1970; None while the query has none

    def edit(self) -> Edit:
        """The participant's state by name, to read and to change; its `changes` go into `Staged`."""
        return Edit(self.state)

    @property
    def scratch(self) -> str:
        """A folder beside the stream's journal, for a store that has no place for staged files."""
        return self.attempt.scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class RollRequest:
    """A request to close, between two epochs and without new rows, what is due; with `every`, all that is open."""

    attempt: Attempt
    state: Mapping[str, Json]
    every: bool

    def edit(self) -> Edit:
        """The participant's state by name, to read and to change; its `changes` go into `Staged`."""
        return Edit(self.state)


@dataclass(frozen=True, slots=True)
class OpenRows:
    """Rows that are committed but not yet visible, because a participant holds them open over epochs. For display."""

    group: str  # what is held open together: a folder, a key, a topic
    bytes: int
    rows: int | None  # None if they were not counted
    chunks: int  # in how many epochs or files they arrived
    first: float  # seconds of the wall clock
    last: float


@dataclass(frozen=True, slots=True)
class Description:
    """A participant as the journal describes it: enough to rebuild it in a new process, without secrets."""

    settings: Mapping[str, Json]

    @property
    def kind(self) -> str:
        return str(self.settings.get("type", ""))

    @property
    def target(self) -> str:
        """Where it writes its epochs. A participant without a target is identified by its whole description."""
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
    """One start's claim on a target, written to the store itself.

    Each start of a stream claims its targets anew. A copy of a checkpoint has its own journal but shares the stores:
    only the journal of the last claim has a record of the start that made it.
    """

    lineage: str
    generation: int
    start: str  # the random id of the start
    journal: str  # where its journal is
    sink: str = ""  # the sink's name in its writer
    replaces: tuple[str, ...] = ()  # the lineages that it replaces: they can no longer write
    driver: Mapping[str, Json] = field(default_factory=dict, compare=False)  # host and pid, for display
    decided: int = field(default=NO_EPOCH, compare=False)  # the last decided epoch then; not stored

    def __str__(self) -> str:
        facts = [f"{name} {self.driver[name]}" for name in ("host", "pid") if name in self.driver]
        return f"generation {self.generation} of the journal in {self.journal or 'an unknown place'}" + (
            f" ({', '.join(facts)})" if facts else ""
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What a store has recorded about the lineages that wrote to it. The guard checks it.

    `last` is this lineage's last epoch; `recent` maps its latest epochs to the digests of their source offsets.
    `others` maps other lineages to their last epoch. `adopted_by` is the lineage that replaced this one, if any.
    `holder` is this lineage's newest claim. `version` counts the claims on the target: a new claim succeeds only on
    the version that was checked. `identity` is the same for every spelling of the target; empty if the target's name
    is unique. `exclusive`: only one stream may ever write here, so `new` is not offered. `begun` is the last epoch of
    this lineage of which rows can be read before it is whole, for a store that shows epochs in parts.
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
    begun: int = NO_EPOCH


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
