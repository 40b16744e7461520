"""What a restored stream begins with, where the sinks are ahead of the savepoint. Pure: no I/O, no clock.

A sink is ahead if it shows epochs that the stream has written after the savepoint. They are replayed, and each is
skipped if it reads what it read then. What it read then is known by the original's journal, if that can be read; else
by what each sink has recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from epochal.spark_plugins.moving.manifest import Manifest
from epochal.txn.errors import ForeignTarget, Refused, Rewound
from epochal.txn.model import Memory, lineage_tag
from epochal.txn.offsets import why_not_provable
from epochal.txn.view import View

CHOICES = (
    "Take a new savepoint of the original and restore that one: it costs what has changed since. Or bring the targets "
    "back to the savepoint's epoch by their own means first. Or give the restored stream targets of its own: --fork"
)


class JournalSource(Enum):
    """Which journal the restored stream has."""

    SAVEPOINT = "savepoint"  # through the savepoint's epoch
    ORIGINAL = "original"  # through the last epoch that the original has finished


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """How the restored stream begins."""

    journal: JournalSource
    through: int  # the last epoch that a sink shows; the savepoint's epoch if none is ahead
    adopted: Mapping[str, int] = field(default_factory=dict)  # sink -> last epoch that it alone knows to be there

    def ahead(self, epoch: int) -> range:
        """The epochs after the savepoint that are there already."""
        return range(epoch + 1, self.through + 1)


def plan(
    manifest: Manifest,
    memories: Mapping[str, Memory],
    saved: View,
    original: View | None,
    sample: Callable[[], str | None],
) -> RestorePlan:
    """How to begin. `saved` is the savepoint's journal; `original` that of the stream as it is now, if it can be read.

    Refused if epochs that are there could not be recognised when they are replayed.
    """
    for sink, memory in memories.items():
        if memory.adopted_by is not None:
            raise ForeignTarget(
                f"sink {sink!r} ({memory.target}): stream {lineage_tag(memory.adopted_by)} has taken this stream's "
                "place since the savepoint. Nothing was written. Restore with --fork, onto other targets"
            )
        if original is None and memory.begun > manifest.epoch:
            raise Rewound(
                f"sink {sink!r} ({memory.target}): some rows of epoch {memory.begun} of this stream are there, and "
                "only the stream that the savepoint was taken of can finish that epoch. Nothing was written. Run "
                "`epochal recover` with its checkpoint and restore then, or restore with --fork, onto other targets"
            )
    ahead = {sink: memory.last for sink, memory in memories.items() if memory.last > manifest.epoch}
    through = max(ahead.values(), default=manifest.epoch)
    facts = _facts(manifest, ahead, memories)
    if original is not None and original.floor <= manifest.epoch and _is_of(original, through, manifest, ahead):
        through = original.done_through
        if ahead and (own := [e for e in range(manifest.epoch + 1, through + 1) if original.is_sparks_own(e)]):
            raise Refused(
                f"{facts}. Since then the stream was rescaled, which took epoch {own[0]}: Spark would plan other rows "
                f"under the numbers of the epochs that are there. Nothing was written. {CHOICES}"
            )
        recorded = {e: won.offsets for e in original.decided if (won := original.winner(e)) is not None}
        _check_provable(facts, range(manifest.epoch + 1, through + 1), recorded, sample)
        return RestorePlan(JournalSource.ORIGINAL, through)
    changed = [*(ahead if original is None else memories)]
    if original is not None and not ahead and _only_rescaled(saved, original, manifest):
        changed = []
    for sink in changed:
        if _may_be_open(saved, sink):
            raise Rewound(
                f"{facts}. Sink {sink!r} had open parts at the savepoint, and what became of them since is not known "
                f"from here. Nothing was written. {CHOICES}"
            )
    for sink, last in ahead.items():
        _check_provable(facts, range(manifest.epoch + 1, last + 1), memories[sink].recent, sample)
    return RestorePlan(JournalSource.SAVEPOINT, through, ahead)


def _is_of(original: View, through: int, manifest: Manifest, ahead: Mapping[str, int]) -> bool:
    """Whether the original's journal is that of what the sinks hold: they were not brought back to the savepoint."""
    return original.done_through >= through and (bool(ahead) or original.done_through == manifest.epoch)


def _only_rescaled(saved: View, original: View, manifest: Manifest) -> bool:
    """Whether the original has done nothing since but rescale: what is open is what was open at the savepoint.

    Rolls that follow the floor are folded away, so nothing tells of them.
    """
    before, now = ([r for r in view.recorded_rolls() if r.after >= manifest.epoch] for view in (saved, original))
    return original.floor < manifest.epoch == original.shown_through and before == now


def _may_be_open(saved: View, sink: str) -> bool:
    """Whether a sink may have had open parts. The state that is in segments was not read."""
    described = saved.latest.sinks.get(sink) if saved.latest is not None else None
    unread = saved.state_record is not None and described is not None and described.keeps_open
    return unread or bool(saved.open_state(sink))


def _check_provable(facts: str, epochs: range, recorded: Mapping[int, str], sample: Callable[[], str | None]) -> None:
    for epoch in epochs:
        why = why_not_provable(recorded.get(epoch), sample())
        if why is not None:
            raise Refused(
                f"{facts}. Nothing would prove that epoch {epoch} is replayed with the same rows, because {why}. "
                f"Nothing was written. {CHOICES}"
            )


def _facts(manifest: Manifest, ahead: Mapping[str, int], memories: Mapping[str, Memory]) -> str:
    if not ahead:
        return f"the savepoint is of epoch {manifest.epoch}, and the stream has gone on since"
    sinks = ", ".join(f"{sink!r} ({memories[sink].target}) shows epoch {last}" for sink, last in sorted(ahead.items()))
    return f"the savepoint is of epoch {manifest.epoch}, but sink {sinks}"
