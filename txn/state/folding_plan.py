"""What to fold, decided by the thread that reads the journal. Pure: no I/O and no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epochal.txn.json_value import Json
from epochal.txn.view import View


@dataclass(frozen=True, slots=True)
class Whole:
    """A copy of the state of every sink after an epoch."""

    epoch: int
    states: Mapping[str, dict[str, Json]]


@dataclass(frozen=True)
class FoldingPlan:
    """What to fold, as a view says it. Made by the thread that reads the journal; any thread can carry it out."""

    view: View
    through: int
    may_roll: bool
    open_generations: frozenset[int]
    whole: Whole | None = None  # to heal: the state that replaces all segments
    work: int = 0  # what folding costs, in changes

    @staticmethod
    def of(view: View, *, retain: int) -> FoldingPlan:
        """Fold all but the newest `retain` done epochs."""
        through = view.done_through - retain
        if view.may_roll or view.state_record is not None or view.sink_states():
            # Rolls after the last epoch that is decided may still come; those before it are final.
            through = min(through, max(view.decided, default=through) - 1)
        while view.is_sparks_own(through):
            through -= 1  # what is folded ends with an epoch that sinks have: their last one is compared with it
        may_roll, needed = view.may_roll, frozenset(view.generations_with_open_rows())
        # A plan may wait; versions of states that it held would keep every later change in memory.
        return FoldingPlan(view.without_states(), through, may_roll, needed)

    @staticmethod
    def to_heal(view: View) -> FoldingPlan | None:
        """Replace all segments by the state in memory; None if that must wait for another epoch to be done.

        The state is that after the last epoch that is done, without the rolls that may still follow it. The state
        record says one epoch less: a reader applies the changes of the last epoch once more, which changes nothing.
        """
        last = view.done_through
        if last - 1 < max(view.floor, view.stored_through):
            return None  # state records never go back, or a snapshot could need a newer one
        states = {name: dict(state) for name, state in view.settled_states.states.items()}
        return FoldingPlan(view.without_states(), last - 1, view.may_roll, frozenset(), Whole(last, states))
