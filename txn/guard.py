"""The lineage guard: a start that would lose or double rows is refused before anything is written.

It compares the journal, Spark's checkpoint and what each store has recorded. What the user may choose then is in
`choices`. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from epochal.txn.choices import Choice, Choices, require_choice, token_of
from epochal.txn.claims import same_place, why_not_ours
from epochal.txn.errors import EpochalError, ForeignTarget, JournalLost, Rewound, TwoJournals, all_in_one
from epochal.txn.model import NO_EPOCH, Memory, lineage_tag
from epochal.txn.offsets import why_not_provable
from epochal.txn.plan import lowest_not_done
from epochal.txn.restoration import forked_from, was_restored
from epochal.txn.view import View


@dataclass(frozen=True)
class Observed:
    """Everything that the guard compares, read in this order: `before`, `memories`, `committed`, `after`.

    A live driver may move on in between. Checks that need a journal at least as new as the stores and the checkpoint
    use `after`; checks that need one at most as new use `before`.
    """

    lineage: str
    before: View
    memories: Mapping[str, Memory]
    committed: int
    after: View
    eager: bool = False
    closed_at: int | None = None  # the first epoch that the incarnation before did not finish, if there was one
    journal: str = ""  # where the journal is; empty: claims are not compared with it
    ancestors: frozenset[str] = frozenset()  # the lineages that earlier incarnations were forked from
    starting: bool = True  # False: decided epochs are finished, and nothing new begins
    sample: Callable[[], str | None] = lambda: None  # the digest of any epoch that the checkpoint has


@dataclass
class StartPlan:
    """How to start."""

    base: int
    adopted: dict[str, int] = field(default_factory=dict)  # sink -> last epoch taken as written
    replaces: dict[str, tuple[str, ...]] = field(default_factory=dict)  # sink -> the lineages that it replaces
    missing: dict[str, int] = field(
        default_factory=dict
    )  # sink -> the last epoch that it may lack, as the user accepted
    reincarnate: bool = False  # the user chose `new` for this lineage
    refused: list[EpochalError] = field(default_factory=list)  # states that the user has not answered


def check_start(observed: Observed, choices: Choices) -> StartPlan:
    """How to start, or a Refused that spells out the choices."""
    plan = StartPlan(base=observed.after.base if observed.after.latest else _first_base(observed))
    latest = observed.after.latest
    plan.adopted.update(latest.adopted if latest else {})
    plan.missing.update(latest.missing if latest else {})
    exclusive = next((sink for sink, memory in observed.memories.items() if memory.exclusive), "")
    choices = replace(choices, exclusive=exclusive)
    _check_journal(observed, choices, plan)
    for sink, memory in observed.memories.items():
        try:
            _check_sink(observed, sink, memory, choices, plan)
        except EpochalError as fault:  # one that no choice answers
            plan.refused.append(fault)
    if plan.refused:
        raise all_in_one(plan.refused)
    return plan


def check_reincarnation(observed: Observed, lineage: str, memories: Mapping[str, Memory], choices: Choices) -> None:
    """Refuse what the next incarnation, `lineage`, would be refused for: other streams on its targets.

    `observed` is what the present one was checked by. Streams that the user has chosen to replace are allowed. This
    comes before the journal of the present incarnation is closed, which is for ever.
    """
    plan = StartPlan(base=0)
    for sink, memory in memories.items():
        if not memory.enrolled and (foreign := _foreign(lineage, memory)):
            try:
                _check_foreign(observed, sink, memory, foreign, choices, plan)
            except EpochalError as fault:  # one that no choice answers
                plan.refused.append(fault)
    if plan.refused:
        raise all_in_one(plan.refused)


def _first_base(observed: Observed) -> int:
    """The first epoch of a new journal: after what Spark has committed, but not after an epoch left in doubt."""
    after = observed.committed + 1
    return after if observed.closed_at is None else min(after, observed.closed_at)


def _check_journal(observed: Observed, choices: Choices, plan: StartPlan) -> None:
    view, committed = observed.after, observed.committed
    if view.latest is None:
        _check_first_base(observed, choices, plan)
        return
    done = observed.before.done_through
    eager = observed.eager or any(g.commit == "eager" for g in view.generations.values())
    if done > committed + (1 if eager else 0) and not was_restored(view, committed, done):
        _adopts(
            Rewound(
                f"the journal has epoch {done} as done, but the checkpoint's last committed epoch is {committed}: "
                "the checkpoint was rewound, or restored from an older copy"
            ),
            token_of(observed.lineage, done),
            choices,
            plan,
            adopt="skip the epochs that are done, as long as they are replayed with the same offsets and files",
            new="write the replayed epochs once more, beside what is there",
            why_no_adopt=_unprovable(observed, range(committed + 1, done + 1), _recorded(observed.before)),
        )
    open_epoch = lowest_not_done(view)
    if open_epoch <= committed and not view.prepared(open_epoch):
        adopted = _adopts(
            JournalLost(
                f"epoch {open_epoch} was checkpointed by Spark, but the journal has no record of it (it covers "
                f"epochs from {view.base}). Either the journal lost records: restore it from a copy. Or the query "
                f"ran without epochal in between{_claimed_elsewhere(observed)}"
            ),
            token_of(observed.lineage, committed),
            choices,
            plan,
            adopt=f"take epochs up to {committed} as they are and go on after them",
            new=None,
        )
        if adopted:
            plan.base = committed + 1


def _check_first_base(observed: Observed, choices: Choices, plan: StartPlan) -> None:
    """Refuse if an epoch was in doubt when its journal was closed, and its driver has committed it since."""
    committed = observed.committed
    if plan.base > committed:
        return
    adopted = _adopts(
        JournalLost(
            f"epoch {plan.base} was in doubt when this stream was started as a new one, and another driver has "
            "checkpointed it since. Its rows are still staged, but not visible in any sink"
        ),
        token_of(observed.lineage, committed),
        choices,
        plan,
        adopt=f"go on after epoch {committed}; those rows remain missing",
        new=None,
    )
    if adopted:
        plan.base = committed + 1


def _check_sink(observed: Observed, sink: str, memory: Memory, choices: Choices, plan: StartPlan) -> None:
    """At most one of the cases applies; the first that does is checked."""
    view, lineage = observed.after, observed.lineage
    where = f"sink {sink!r} ({memory.target})"
    if view.latest is not None and memory.adopted_by is None:
        _check_holder(observed, sink, where, memory, choices, plan)
    if memory.adopted_by is not None:
        _adopts(
            ForeignTarget(f"{where}: stream {lineage_tag(memory.adopted_by)} has taken this stream's place"),
            token_of(lineage, memory.last),
            choices,
            plan,
            adopt=None,
            new="write from here on as a stream of its own, beside the other",
        )
    elif not memory.enrolled and (foreign := _foreign(lineage, memory)):
        _check_foreign(observed, sink, memory, foreign, choices, plan)
    elif memory.begun > max(_last_possible(view, observed.committed), memory.last):
        _check_begun(observed, where, memory, choices, plan)
    elif (epoch := _decided_there(observed, sink, memory, plan)) is not None:
        _check_lost_claim(observed, sink, where, memory, epoch, choices, plan)
    elif memory.enrolled and view.latest is None:
        _check_lost_journal(observed, sink, where, memory, choices, plan)
    elif memory.last > max(_last_possible(view, observed.committed), plan.adopted.get(sink, NO_EPOCH)):
        _check_rewound_journal(observed, sink, where, memory, choices, plan)
    elif memory.last < (expected := _last_committed(observed.before, sink, memory, plan)):
        last = memory.last if memory.last > NO_EPOCH else "none"
        fault = (
            f"{where}: epoch {expected} was committed there, but its last one is {last}: the target was emptied, moved "
            "or restored from an older copy" + _missing_text(memory.last, expected)
        )
        adopt = "take the target as it is and go on; what is missing stays missing"
        if _adopts(Rewound(fault), token_of(lineage, memory.last), choices, plan, adopt=adopt, new=None):
            plan.missing[sink] = expected
    elif observed.starting and memory.enrolled and _was_left_out(observed.before, sink, memory, plan):
        done = observed.before.done_through
        fault = (
            f"{where}: its last epoch is {memory.last}, but the stream has gone on to epoch {done} without it: the "
            f"sink was left out of the writer meanwhile{_missing_text(memory.last, done)}"
        )
        adopt = "go on in this target; what it missed stays missing"
        if _adopts(Rewound(fault), token_of(lineage, memory.last), choices, plan, adopt=adopt, new=None):
            plan.missing[sink] = done


def _check_begun(observed: Observed, where: str, memory: Memory, choices: Choices, plan: StartPlan) -> None:
    """The target shows a part of an epoch that the journal has no record of."""
    fault = (
        f"{where}: some rows of epoch {memory.begun} of this stream are there, and the journal knows only epochs up to "
        f"{_last_possible(observed.after, observed.committed)}: checkpoint and journal were rewound, or restored from "
        f"an older copy, after epoch {memory.begun} was decided. Only the newest copy of both can finish that epoch: "
        "restore it, or run `epochal recover` with it"
    )
    _adopts(
        Rewound(fault),
        token_of(observed.lineage, memory.begun),
        choices,
        plan,
        adopt=None,
        new="write the replayed epochs once more, beside what is there",
    )


def _decided_there(observed: Observed, sink: str, memory: Memory, plan: StartPlan) -> int | None:
    """The first epoch that is decided for this target and not done, if the claim is gone that this stream had on it."""
    if memory.enrolled or memory.holder is not None:
        return None
    view, accepted = observed.before, plan.missing.get(sink, NO_EPOCH)
    waiting = (e for e in view.waiting() if e > accepted and view.is_decided(e))
    return next((e for e in waiting if not _was_not_given(view, e, sink, memory)), None)


def _check_lost_claim(
    observed: Observed, sink: str, where: str, memory: Memory, epoch: int, choices: Choices, plan: StartPlan
) -> None:
    """What the target has recorded about this stream is gone, and with it whether it holds a decided epoch."""
    fault = (
        f"{where}: it has no record of this stream any more, and epoch {epoch} is decided: nothing tells whether its "
        "rows are there. The target was emptied or replaced, or epochal's own records in it were"
    )
    expected = _last_committed(observed.before, sink, memory, plan)
    adopt = f"write epoch {epoch} and go on: choose it only if none of its rows are there, else they would be doubled"
    if expected > memory.last:
        fault += _missing_text(memory.last, expected)
        adopt += ". What is missing of earlier epochs stays missing"
    if _adopts(Rewound(fault), token_of(observed.lineage, memory.last), choices, plan, adopt=adopt, new=None):
        plan.missing.update({sink: expected} if expected > memory.last else {})


def _check_lost_journal(
    observed: Observed, sink: str, where: str, memory: Memory, choices: Choices, plan: StartPlan
) -> None:
    """The target knows this stream, and the journal is empty."""
    if memory.last == NO_EPOCH and observed.committed == NO_EPOCH:
        return  # an earlier start was refused, or died, before its first epoch
    adopted = _adopts(
        JournalLost(
            f"{where}: this stream {_written_text(memory.last)}, but the journal is empty: it was lost "
            f"or moved. The checkpoint's last committed epoch is {observed.committed}"
            + _missing_text(memory.last, observed.committed)
            + _where_it_was(observed, memory)
        ),
        token_of(observed.lineage, memory.last),
        choices,
        plan,
        adopt="take what the sink holds as it is and go on after it",
        new="write every epoch from here on as a new stream beside it",
        why_no_adopt=_unprovable(observed, range(observed.committed + 1, memory.last + 1), memory.recent),
    )
    if adopted:
        plan.adopted[sink] = memory.last


def _where_it_was(observed: Observed, memory: Memory) -> str:
    """The journal that this stream had when it claimed the target, and what to do if it is still there."""
    holder = memory.holder
    if holder is None:
        return ""
    was = f". The target was last claimed by {holder}"
    if holder.lineage != observed.lineage or holder.journal in ("", observed.journal):
        return was
    advice = "choose nothing: name its place, by EpochWriter's journal= or --journal"
    return f"{was}. If the journal is still there, {advice}"


def _check_rewound_journal(
    observed: Observed, sink: str, where: str, memory: Memory, choices: Choices, plan: StartPlan
) -> None:
    """The target holds an epoch that the journal has no record of."""
    last = _last_possible(observed.after, observed.committed)
    fault = f"{where}: it holds epoch {memory.last} of this stream, but the journal knows only epochs up to {last}"
    if observed.after.open_state(sink):
        # Neither choice is safe: the parts that were open may be visible by now, and others be open.
        raise Rewound(
            f"{fault}, and parts were open then: checkpoint and journal were restored from an older copy, which has no "
            "record of what happened to those parts since. Nothing was written. Restore the newest copy of the journal "
            "(the checkpoint may be older), or go on in another target"
        )
    adopted = _adopts(
        Rewound(f"{fault}: checkpoint and journal were rewound, or restored from an older copy"),
        token_of(observed.lineage, memory.last),
        choices,
        plan,
        adopt="skip the epochs that the sink holds, as long as they are replayed with the same offsets and files",
        new="write the replayed epochs once more, beside what is there",
        why_no_adopt=_unprovable(observed, range(last + 1, memory.last + 1), memory.recent),
    )
    if adopted:
        plan.adopted[sink] = memory.last


def _check_holder(observed: Observed, sink: str, where: str, memory: Memory, choices: Choices, plan: StartPlan) -> None:
    """Refuse a target whose newest claim is by another journal of this stream: one of the two is a copy."""
    holder = memory.holder
    # Decided epochs may be finished from a journal that was moved, or has another name, if it has a record of the
    # newest claim: the attempts are the same. So only a start compares the location.
    claimed_from = holder.journal if holder is not None and not observed.starting else observed.journal
    why = why_not_ours(holder, observed.after, observed.lineage, claimed_from) if observed.journal else None
    is_ahead = memory.last > _last_possible(observed.after, observed.committed)
    if is_ahead and holder is not None and same_place(holder.journal, observed.journal):
        return  # this journal itself was rewound; `_check_rewound_journal` says what to do
    if holder is not None and observed.after.open_state(sink):
        why_anywhere = why_not_ours(holder, observed.after, observed.lineage, holder.journal)
        if why_anywhere is not None:
            raise TwoJournals(
                f"{where}: {why_anywhere}, and this journal has open parts: it has no record of what the other start "
                "did with them. Nothing was written. Go on with the checkpoint that ran last, or in another target"
            )
    if why is not None and holder is not None:
        _adopts(
            TwoJournals(
                f"{where}: {why}. The checkpoint was copied, moved or restored from a copy. If the other one still "
                "runs, both would write the same epochs with different rows"
            ),
            token_of(observed.lineage, memory.last, holder.generation),
            choices,
            plan,
            adopt="this journal takes over; the other one, if it runs, is stopped and can write no more",
            new="write from here on as a stream of its own, beside the other",
        )


def _claimed_elsewhere(observed: Observed) -> str:
    """The journals that have claimed this stream's targets since this one did: copies, which may have the records."""
    found = [
        f". Or a copy of the checkpoint ran: sink {sink!r} was last claimed by {memory.holder}, and this journal is in "
        f"{observed.journal}"
        for sink, memory in observed.memories.items()
        if observed.journal
        and memory.holder is not None
        and why_not_ours(memory.holder, observed.after, observed.lineage, observed.journal) is not None
    ]
    return "".join(found[:1])


def _was_left_out(view: View, sink: str, memory: Memory, plan: StartPlan) -> bool:
    """Whether the stream has finished epochs since a sink's last one that were not written to it."""
    accounted = max(memory.last, plan.missing.get(sink, NO_EPOCH), plan.adopted.get(sink, NO_EPOCH), view.base - 1)
    later = [e for e in view.done if e > max(accounted, view.floor) and not view.is_sparks_own(e)]
    return memory.last > NO_EPOCH and (
        view.floor > accounted or any(_was_not_given(view, e, sink, memory) for e in later)
    )


def _was_not_given(view: View, epoch: int, sink: str, memory: Memory) -> bool:
    """Whether an epoch was written without this sink, or to another target of it."""
    winner = view.winner(epoch)
    if winner is None:
        return False
    return sink not in winner.sinks or view.target(sink, winner.generation) not in (None, memory.target)


def _foreign(lineage: str, memory: Memory) -> dict[str, int]:
    """The last epochs of other streams; not of earlier incarnations of this query, for which the user chose `new`."""
    if memory.exclusive:
        return dict(memory.others)  # also earlier incarnations: `new` was chosen because of another sink
    query = lineage.partition("~")[0]
    return {other: last for other, last in memory.others.items() if other.partition("~")[0] != query}


def _check_forked(where: str, ancestors: set[str], others: Mapping[str, int]) -> None:
    """Refuse a fork on a target of the stream that it was made of. No choice is offered: it would write rows again."""
    if forked := ancestors & others.keys():
        (of, *_) = sorted(forked)
        raise ForeignTarget(
            f"{where}: this stream is a fork of stream {lineage_tag(of)}, which {_written_text(others[of])}. It would "
            "write the same epochs there again. Nothing was written. Give it targets of its own; or, if it is to take "
            "that stream's place, restore the savepoint without --fork"
        )


def _check_foreign(
    observed: Observed, sink: str, memory: Memory, others: Mapping[str, int], choices: Choices, plan: StartPlan
) -> None:
    where = f"sink {sink!r} ({memory.target})"
    ancestors = {*observed.ancestors, *forked_from(observed.after)}
    _check_forked(where, ancestors, others)
    choices = replace(choices, exclusive=sink if memory.exclusive else "")
    again = (
        "This stream is a fork: what both read after their savepoints would be there twice. Give it a target of its own"
        if ancestors
        else "A new checkpoint on an old target starts from the beginning of its source and would write rows again"
    )
    taken = []
    for other, last in others.items():
        if last == NO_EPOCH:
            taken.append(other)  # it has written nothing, so nothing can be doubled; but it must not begin now
            continue
        adopted = _adopts(
            ForeignTarget(f"{where}: another stream, {lineage_tag(other)}, {_written_text(last)}. {again}"),
            token_of(other, last),
            choices,
            plan,
            adopt="this stream takes the other's place: its rows stay, and the other can write no more. What this "
            "checkpoint reads again is written again: let its source begin after what was written",
            new="both streams write here, each its own epochs",
            reincarnates=False,
        )
        if adopted:
            taken.append(other)
    if taken:
        plan.replaces[sink] = tuple(taken)


def _adopts(
    fault: EpochalError,
    token: str,
    choices: Choices,
    plan: StartPlan,
    *,
    adopt: str | None,
    new: str | None,
    reincarnates: bool = True,
    why_no_adopt: str | None = None,
) -> bool:
    """Whether the user adopts what is there; False for `new`, and if the user has not chosen: that is noted."""
    try:
        choice = require_choice(fault, token, choices, adopt=adopt, new=new, why_no_adopt=why_no_adopt)
    except EpochalError as refused:
        plan.refused.append(refused)
        return False
    if choice is Choice.NEW:
        plan.reincarnate |= reincarnates
    return choice is Choice.ADOPT


def _unprovable(observed: Observed, epochs: Iterable[int], recorded: Mapping[int, str]) -> str | None:
    """Why replayed epochs cannot be proven to have the same rows, so that a skip might lose some; None if they can."""
    for epoch in epochs:
        why = why_not_provable(recorded.get(epoch), None)
        if why is not None and why_not_provable(recorded.get(epoch), observed.sample()) is not None:
            return f"nothing would prove that epoch {epoch} is replayed with the same rows, because {why}"
    return None


def _recorded(view: View) -> dict[int, str]:
    """The digests of the epochs that the journal has a record of."""
    return {epoch: won.offsets for epoch in view.decided if (won := view.winner(epoch)) is not None}


def _last_possible(view: View, committed: int) -> int:
    """The last epoch that may be visible in a sink: done, decided, or to be decided.

    The last case includes an epoch whose DECIDED record was lost in a power cut.
    """
    prepared = [epoch for epoch in view.waiting() if epoch <= committed and view.prepared(epoch)]
    return max([view.done_through, *view.decided, *prepared])


def _last_committed(view: View, sink: str, memory: Memory, plan: StartPlan) -> int:
    """The last epoch that the journal has as committed to this target, unless the user accepted it as missing."""
    described = view.latest.sinks.get(sink) if view.latest else None
    if described is None or described.target != memory.target:
        return NO_EPOCH
    accepted = plan.missing.get(sink, NO_EPOCH)
    committed = (e for e in view.done if e > accepted and view.winner(e) and not _was_not_given(view, e, sink, memory))
    return max(committed, default=NO_EPOCH)


def _written_text(last: int) -> str:
    return f"has written it up to epoch {last}" if last > NO_EPOCH else "has claimed it and has written nothing yet"


def _missing_text(last: int, through: int) -> str:
    if last >= through:
        return ""
    first = last + 1
    return f"; epochs {first} to {through} may be missing" if first < through else f"; epoch {first} may be missing"
