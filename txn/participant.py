"""What a store must be able to do to take part.

A participant that passes `epochal.testing.contract` can join any writer. It becomes known to the
command line (`recover`, `gc`) through an entry point of the group ``epochal.participants`` whose
object rebuilds it from what `describe` returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from epochal.txn.audit import Found, Scope
from epochal.txn.model import Attempt, Claim, Handle, Json, Memory, OpenPart, Outcome, Staged

Rows = TypeVar("Rows", contravariant=True)


class Participant(Protocol[Rows]):
    """A store that can hide an epoch's rows until told to show them.

    Any call may be repeated after a crash and may run in two processes at once.
    """

    @property
    def name(self) -> str:
        """Its name in the writer, unique there."""

    def describe(self) -> dict[str, Json]:
        """What a new process needs to commit and abort: ``type`` and settings, never a secret."""

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

    def stage(self, attempt: Attempt, rows: Rows, *, offsets: str) -> Staged:
        """Make the rows durable but invisible, and sure that no row can make commit fail.

        `offsets` is the digest of the epoch's source offsets, to be remembered with the epoch. StoreAway
        means "try again"; any other exception ends the query.
        """

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        """Make the epoch's rows visible.

        A repeat changes nothing and says ALREADY_COMMITTED; TwoJournals if the epoch is visible from another start
        or from other offsets. Rewound if the store does not hold epoch `attempt.after`. DataLost when what was staged
        is neither staged nor visible. Any exception that is not epochal's means "try again".
        """

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        """Remove what an attempt staged, whole or in part. Never touches a row that is visible."""

    def leftovers(self, lineage: str) -> list[Attempt]:
        """The attempts of which anything staged is still there."""


@runtime_checkable
class ChecksFrames(Protocol[Rows]):
    """A participant that knows from a frame's columns whether it could hold the rows."""

    def check_frame(self, rows: Rows) -> Sequence[str]:
        """What is wrong, one text a fault; nothing if the frame fits.

        Called before the query starts, or before the first batch is staged and anything is written. Runs no job: the
        frame may be a stream's. Raises Refused for what is wrong and not the frame's fault.
        """


@runtime_checkable
class ChecksOutputMode(Protocol):
    """A participant to whom it matters which rows a query gives in each epoch."""

    def check_output_mode(self, mode: str) -> None:
        """Called before the query's first epoch with Spark's ``append``, ``update`` or ``complete``.

        Raises Refused where rows of that mode would make the store wrong; warns where they are hardly meant.
        """


@runtime_checkable
class KeepsState(Protocol):
    """A participant that keeps something open over epochs, and keeps the note of it in the journal.

    What it keeps is a mapping, changed by what its `stage` and `roll` return: the changes count once their record is
    decided, in the order of epochs, so that every process reads the same. Its description says that it does
    (``keeps_open``), because newer generations seal its rolls then; what is kept may say where it is (``target``, as
    the description has it).
    """

    def recall(self, kept: Mapping[str, Json], earlier: Sequence[Handle]) -> None:
        """Called before `stage` and `roll`: what is kept, and what older generations staged for the same epoch."""

    def due(self) -> float | None:
        """When something that was recalled wants to be closed, in seconds of the wall clock; None for never."""

    def roll(self, attempt: Attempt, *, every: bool) -> Staged | None:
        """Stage what is due, or all that is open, without new rows; None if there is nothing. `commit` shows it."""

    def open_parts(self, kept: Mapping[str, Json]) -> list[OpenPart]:
        """What is open, for people."""


@runtime_checkable
class FollowsWatermark(Protocol):
    """A participant to whom it matters how far the query's event time has come."""

    def follow(self, watermark: float | None) -> None:
        """Called before `stage`: rows before this time count as late, in seconds since 1970; None while unknown."""


@runtime_checkable
class StagesInCheckpoint(Protocol):
    """A participant whose store has no place for files: it stages beside the journal."""

    def stage_in(self, folder: str) -> None:
        """Called at each start of a query, before anything else."""


@runtime_checkable
class Auditable(Protocol):
    """A participant that can say what is in its store, for `epochal audit`. Without it nothing of it is provable."""

    def audit(self, scope: Scope) -> Found:
        """Look at the store. Writes nothing, and is safe beside a driver that is at work."""
