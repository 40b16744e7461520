"""What a store must be able to do to take part.

A participant that passes `epochal.testing.contract` can join any writer. It becomes known to the
command line (`recover`, `gc`) through an entry point of the group ``epochal.sinks``: a class whose
`from_description` rebuilds it from what `describe` returned.

No call depends on an earlier one: what a call needs is in its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from epochal.txn.audit import Found, Scope
from epochal.txn.model import (
    Attempt,
    Batch,
    Claim,
    Description,
    Handle,
    Json,
    Memory,
    OpenRows,
    Outcome,
    RollRequest,
    Staged,
)

Rows = TypeVar("Rows")


class Participant(Protocol[Rows]):
    """A store that can hide an epoch's rows until the epoch is decided.

    Every call may be repeated after a crash and may run in two processes at once.
    """

    @property
    def name(self) -> str:
        """Its name in the writer, unique there."""

    @property
    def rolls(self) -> Rolls | None:
        """The calls for rows that it holds open over epochs; None if it never does."""

    @property
    def audits(self) -> Auditable | None:
        """The calls for `epochal audit`; None if nothing in the store is provable."""

    def describe(self) -> dict[str, Json]:
        """What a new process needs to commit and abort: ``type`` and settings, never a secret."""

    def check_frame(self, rows: Rows) -> Sequence[str]:
        """What makes a frame's columns unfit for this store, one text per fault; empty if the frame fits.

        Called before the query starts, or before the first batch is staged and anything is written. Runs no job: the
        frame may be a stream's. Raises Refused for a fault that is not the frame's.
        """

    def check_output_mode(self, mode: str) -> None:
        """Called before the query's first epoch with Spark's ``append``, ``update`` or ``complete``.

        Raises Refused where rows of that mode would make the store wrong; logs a warning where they are unlikely to be
        what the user wants.
        """

    def open(self, lineage: str) -> Memory:
        """What the store remembers. Writes nothing; refuses what can never work."""

    def claim(self, claim: Claim, *, version: int) -> bool:
        """Bind the target to one start of a lineage, durably; False if it was claimed since `version`: look again.

        Of several that claim on the same version exactly one succeeds.
        """

    def withdraw(self, claim: Claim) -> None:
        """Take back a claim under which nothing was written: the lineages that it replaced go on."""

    def holder(self, lineage: str) -> Claim | None:
        """The newest claim of a lineage, or of the one that took its place. Asked for each epoch: it must be cheap."""

    def stage(self, batch: Batch[Rows]) -> Staged:
        """Make the rows durable but invisible, and sure that no row can make commit fail.

        StoreAway means "try again"; any other exception ends the query.
        """

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        """Make the epoch's rows visible.

        A repeat changes nothing and returns ALREADY_COMMITTED; TwoJournals if the epoch is visible from another start
        or from other offsets. Rewound if the store does not hold epoch `attempt.after`. DataLost when what was staged
        is neither staged nor visible. Any exception that is not epochal's means "try again".
        """

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        """Remove what an attempt staged, whole or in part. Never touches a row that is visible."""

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        """The attempts of which anything staged is still there; `scratch` is the stream's, as in `Attempt`."""


class Rolls(Protocol):
    """A participant that may hold rows open over epochs, and keeps the note of them in the journal.

    The note is the participant's state: a mapping that the changes in `Staged` update. Changes count once their record
    is decided, in the order of epochs, so that every process reads the same state. The state may hold the ``target``
    that the rows lie in, written as in the description.
    """

    @property
    def opens(self) -> bool:
        """Whether it opens anything as it is configured; if not, it only closes what an earlier start left open."""

    def due(self, state: Mapping[str, Json]) -> float | None:
        """When something wants to be closed, in seconds of the wall clock; None for never."""

    def roll(self, request: RollRequest) -> Staged | None:
        """Stage what is to be closed; None if there is nothing. `commit` shows it."""

    def check_state(self, state: Mapping[str, Json]) -> None:
        """Raise Refused if this participant could not close what the state has open, such as in another target."""

    def open_rows(self, state: Mapping[str, Json]) -> list[OpenRows]:
        """What is open, for people."""


class Auditable(Protocol):
    """A participant that can read back what is in its store."""

    def audit(self, scope: Scope) -> Found:
        """Look at the store. Writes nothing, and is safe beside a driver that is at work."""


def description_of(participant: Participant[Rows]) -> Description:
    """A participant as a start records it. Whether it keeps anything open is what `rolls` declares, and said once."""
    settings = {key: value for key, value in participant.describe().items() if key != "keeps_open"}
    if participant.rolls is not None and participant.rolls.opens:
        settings["keeps_open"] = True
    return Description(settings)


class Wrapper(Generic[Rows]):
    """A participant that passes every call on to another one. A subclass changes what it is there for."""

    def __init__(self, inner: Participant[Rows]) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def rolls(self) -> Rolls | None:
        return self.inner.rolls

    @property
    def audits(self) -> Auditable | None:
        return self.inner.audits

    def describe(self) -> dict[str, Json]:
        return self.inner.describe()

    def check_frame(self, rows: Rows) -> Sequence[str]:
        return self.inner.check_frame(rows)

    def check_output_mode(self, mode: str) -> None:
        self.inner.check_output_mode(mode)

    def open(self, lineage: str) -> Memory:
        return self.inner.open(lineage)

    def claim(self, claim: Claim, *, version: int) -> bool:
        return self.inner.claim(claim, version=version)

    def withdraw(self, claim: Claim) -> None:
        self.inner.withdraw(claim)

    def holder(self, lineage: str) -> Claim | None:
        return self.inner.holder(lineage)

    def stage(self, batch: Batch[Rows]) -> Staged:
        return self.inner.stage(batch)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        return self.inner.commit(attempt, handle)

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self.inner.abort(attempt, handle)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return self.inner.leftovers(lineage, scratch)
