"""What a store must be able to do to take part.

A participant that passes `epochal.testing.contract` can join any writer. The command line (`recover`,
`gc`) finds it through an entry point of the group ``epochal.sinks``: a class whose `from_description`
rebuilds it from what `describe` returned.

No call depends on an earlier one: everything that a call needs is in its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from epochal.txn.audit import Scope, StoreReport
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
        """The calls for `epochal audit`; None if the store cannot be audited."""

    def describe(self) -> dict[str, Json]:
        """What a new process needs to commit and abort: ``type`` and settings, without secrets."""

    def check_frame(self, rows: Rows) -> Sequence[str]:
        """What makes a frame's columns unfit for this store, one text per fault; empty if the frame fits.

        Called before the query starts, or before the first batch is staged and anything is written. Runs no job: the
        frame may be a streaming one. Raises Refused for a fault that does not lie in the frame.
        """

    def check_output_mode(self, mode: str) -> None:
        """Called before the query's first epoch with Spark's ``append``, ``update`` or ``complete``.

        Raises Refused if rows of that mode would make the store wrong; logs a warning if they are unlikely to be what
        the user wants.
        """

    def open(self, lineage: str) -> Memory:
        """What the store has recorded. Writes nothing; raises Refused for a target that can never work."""

    def claim(self, claim: Claim, *, version: int) -> bool:
        """Bind the target to one start of a lineage, durably; False if it was claimed since `version` was read.

        Of several claims on the same version exactly one succeeds.
        """

    def withdraw(self, claim: Claim) -> None:
        """Undo a claim under which nothing was written: the lineages that it replaced may write again."""

    def holder(self, lineage: str) -> Claim | None:
        """The newest claim of a lineage, or of the one that replaced it. Called for each epoch: it must be cheap."""

    def stage(self, batch: Batch[Rows]) -> Staged:
        """Make the rows durable but invisible, and check them, so that no row can make commit fail.

        StoreAway means "try again"; any other exception ends the query.
        """

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        """Make the epoch's rows visible.

        A repeat changes nothing and returns ALREADY_COMMITTED. Raises TwoJournals if the epoch is visible from another
        start or from other offsets, Rewound if the store does not hold epoch `attempt.after`, DataLost if the data is
        neither staged nor visible. Any exception that is not an EpochalError means "try again".
        """

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        """Remove what an attempt staged, completely or in part. Never touches a visible row."""

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        """The attempts that still have staged data; `scratch` is the stream's folder, as in `Attempt`."""


class Rolls(Protocol):
    """A participant that may hold rows open over epochs, and records them in the journal.

    That record is the participant's state: a mapping that the changes in `Staged` update. Changes apply once their
    epoch is decided, in the order of epochs, so that every process reads the same state. The state may hold the
    ``target`` of the rows, written as in the description.
    """

    @property
    def opens(self) -> bool:
        """Whether it opens anything as configured; if not, it only closes what an earlier start left open."""

    def due(self, state: Mapping[str, Json]) -> float | None:
        """When the next part is due to be closed, in seconds of the wall clock; None for never."""

    def roll(self, request: RollRequest) -> Staged | None:
        """Stage what is to be closed; None if there is nothing. `commit` makes it visible."""

    def check_state(self, state: Mapping[str, Json]) -> None:
        """Raise Refused if this participant cannot close what is open, for example because it is in another target."""

    def open_rows(self, state: Mapping[str, Json]) -> list[OpenRows]:
        """What is open, for display."""


class Auditable(Protocol):
    """A participant that can read back what is in its store."""

    def audit(self, scope: Scope) -> StoreReport:
        """Read the store. Writes nothing, and is safe beside a running driver."""


def open_size(rolls: Rolls, state: Mapping[str, Json]) -> tuple[int, int]:
    """How many parts are open, and their bytes. A participant that has an `open_size` need not list them for it."""
    quick = getattr(rolls, "open_size", None)
    if quick is not None:
        count, size = quick(state)
        return int(count), int(size)
    parts = rolls.open_rows(state)
    return len(parts), sum(part.bytes for part in parts)


def description_of(participant: Participant[Rows]) -> Description:
    """A participant as a start records it. ``keeps_open`` follows from `rolls` alone."""
    settings = {key: value for key, value in participant.describe().items() if key != "keeps_open"}
    if participant.rolls is not None and participant.rolls.opens:
        settings["keeps_open"] = True
    return Description(settings)


class Wrapper(Generic[Rows]):
    """A participant that passes every call on to another one. Subclasses override what they change."""

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
