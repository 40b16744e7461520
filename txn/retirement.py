"""A stream that is over: retired by a person, with the reason, so that monitors leave it alone.

Retiring is one record: the next generation, claimed by a command as `recovery.fence` does, whose `driver` says who
retired the stream, when and why. So it is create-if-absent, it fences a driver that nobody has seen, and a crash leaves
it made or not made. Undoing it is the next such record without that. Targets are not claimed: no driver is to be
stopped there, and their stores may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from epochal.txn.claims import new_start_id
from epochal.txn.errors import Refused
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.records import GenerationStarted

KEY = "retired"
LONGEST = 1000  # characters of a reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Who retired a stream, when and why."""

    why: str
    by: str
    at: str

    def __str__(self) -> str:
        return f"{self.at} by {self.by}: {self.why}"

    def to_json(self) -> dict[str, Json]:
        """As in the journal and in `epochal status --json`."""
        return {"why": self.why, "by": self.by, "at": self.at}


def retirement_of(latest: GenerationStarted | None) -> Retirement | None:
    """The retirement that the newest generation records; None if the stream is not retired."""
    found = latest.driver.get(KEY) if latest is not None else None
    if not isinstance(found, dict):
        return None
    return Retirement(why=str(found.get("why", "")), by=str(found.get("by", "")), at=str(found.get("at", "")))


def refuse_retired(latest: GenerationStarted | None, what: str) -> None:
    """Refuse to go on with a stream that is retired."""
    if (found := retirement_of(latest)) is not None:
        raise Refused(
            f"{what}: the stream was retired {found}. Nothing was written. To go on with it, run `epochal retire "
            "CHECKPOINT --undo` first"
        )


def record_retirement(
    journal: Journal,
    latest: GenerationStarted,
    retirement: Retirement | None,
    driver: Mapping[str, Json],
    *,
    start_ids: Callable[[], str] = new_start_id,
) -> int | None:
    """Retire the stream, or without a `retirement` undo that. Returns the generation that was claimed for it.

    None if another generation has started since `latest`: check everything again. `driver` is that of the command.
    """
    facts: dict[str, Json] = {**driver, "fence": True}
    started = replace(
        latest,
        generation=latest.generation + 1,
        start=start_ids(),
        driver=facts if retirement is None else {**facts, KEY: retirement.to_json()},
        at=journal.now(),
    )
    return started.generation if journal.claim(started) else None
