"""What a store must be able to do to take part.

A participant that passes `epochal.testing.contract` can join any writer. The command line (`recover`,
`gc`) finds it through an entry point of the group ``epochal.sinks``: a class whose `from_description`
rebuilds it from what `describe` returned.

No call depends on an earlier one: everything that a call needs is in its arguments. What a participant keeps between
calls are caches, without which the outcome is the same.
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
from epochal.txn.past import HasPast

Rows = TypeVar("Rows")


class Abilities(Protocol):
    """What a participant can do beyond the calls that every one has. Each is a property; None means that it cannot.

    A participant that derives from this class has none of them, and overrides those that it has.
    """

    @property
    def rolls(self) -> Rolls | None:
        """The calls for rows that it holds open over epochs; None if it never does."""
        return None

    @property
    def audits(self) -> Auditable | None:
        """The calls for `epochal audit`; None if the store cannot be audited."""
        return None

    @property
    def past(self) -> HasPast | None:
        """The calls for `epochal.cut` and `read_cut`; None if the store shows its newest state only."""
        return None

    @property
    def connect(self) -> OnConnect | None:
        """What it says of Spark Connect; None if it is not known to work there."""
        return None


class Participant(Abilities, Protocol[Rows]):
    """A store that can hide an epoch's rows until the epoch is decided.

    Every call may be repeated after a crash and may run in two processes at once.
    """

    @property
    def name(self) -> str:
        """Its name in the writer, unique there."""

    def describe(self, rows: Rows | None = None) -> dict[str, Json]:
        """What a new process needs to commit and abort: ``type`` and settings, without secrets.

        A start that records this in the journal gives a frame with its columns, of which no row is read: a store that
        shows its past may need them.
        """

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

    def claim(self, claim: Claim, *, version: int, rows: Rows | None = None) -> bool:
        """Bind the target to one start of a lineage, durably; False if it was claimed since `version` was read.

        Of several claims on the same version exactly one succeeds. `rows` is a frame with the columns that this start
        will write, of which no row is read; None if a command claims. A store whose readers need the same columns of
        everybody compares and records them in the same step, and raises BadRows if they do not fit.
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

    def open_size(self, state: Mapping[str, Json]) -> tuple[int, int]:
        """How many parts are open, and their bytes. Called after each epoch, so it is worth a quicker way than this."""
        parts = self.open_rows(state)
        return len(parts), sum(part.bytes for part in parts)


class Auditable(Protocol):
    """A participant that can read back what is in its store."""

    def audit(self, scope: Scope) -> StoreReport:
        """Read the store. Writes nothing, and is safe beside a running driver."""


class OnConnect(Protocol):
    """A participant that can run in the process of a Spark Connect server, where there is no JVM.

    It is pickled, and stages through the DataFrame API alone.
    """

    def connect_faults(self) -> Sequence[str]:
        """What keeps it from Spark Connect as configured, a short sentence each; empty if nothing does."""


ABILITIES: Mapping[str, type] = {"rolls": Rolls, "audits": Auditable, "past": HasPast, "connect": OnConnect}
# Nobody calls these on the participant itself: who has all of them there has forgotten the property. (An option may
# have the name of one.)
OF_ABILITIES = {"past": ("pin", "read_at"), "connect": ("connect_faults",)}


def faults_of(participant: object) -> list[str]:
    """Why an object cannot be a participant: what it lacks, or what an ability of it lacks; empty if it can."""
    lacking = [name for name in members(Participant) if not hasattr(participant, name)]
    if lacking:
        optional = [name for name in lacking if name in ABILITIES]
        hint = f" (epochal.participant.Abilities has {', '.join(optional)} for it)" if optional else ""
        return [f"it has no {', '.join(lacking)}{hint}"]
    found = []
    for ability, calls in ABILITIES.items():
        able = getattr(participant, ability)
        lacking = [name for name in members(calls) if able is not None and not hasattr(able, name)]
        calls_of_its_own = OF_ABILITIES.get(ability, ()) if able is None else ()
        has_all = all(callable(getattr(participant, name, None)) for name in calls_of_its_own)
        if lacking:
            found.append(f"its property {ability!r} has no {', '.join(lacking)}")
        if calls_of_its_own and has_all:
            its = " and ".join(calls_of_its_own)
            found.append(f"it has {its}, and its property {ability!r} is None: let that return self")
    return found


def members(protocol: type) -> list[str]:
    """The names of what a protocol asks for."""
    classes = [one for one in reversed(protocol.__mro__) if getattr(one, "_is_protocol", False)]
    return [name for one in classes for name in vars(one) if not name.startswith("_")]


def description_of(participant: Participant[Rows], rows: Rows | None = None) -> Description:
    """A participant as a start with these columns records it. ``keeps_open`` follows from `rolls` alone."""
    settings = {key: value for key, value in participant.describe(rows).items() if key != "keeps_open"}
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

    @property
    def past(self) -> HasPast | None:
        return self.inner.past

    @property
    def connect(self) -> OnConnect | None:
        return self.inner.connect

    def describe(self, rows: Rows | None = None) -> dict[str, Json]:
        return self.inner.describe(rows)

    def check_frame(self, rows: Rows) -> Sequence[str]:
        return self.inner.check_frame(rows)

    def check_output_mode(self, mode: str) -> None:
        self.inner.check_output_mode(mode)

    def open(self, lineage: str) -> Memory:
        return self.inner.open(lineage)

    def claim(self, claim: Claim, *, version: int, rows: Rows | None = None) -> bool:
        return self.inner.claim(claim, version=version, rows=rows)

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
