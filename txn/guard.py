"""The lineage guard: what would lose or double rows is refused before anything is written.

Pure. It compares what the journal knows, what Spark's checkpoint says and what each store
remembers. Every refusal names a *token*, ``<lineage>@<epoch>``: the state that was found. Passing
the token back as ``adopt=`` or ``new=`` accepts just that state, so a choice left in the code
accepts nothing else later.

``adopt``  what the sink holds counts as written by this stream: go on after it.
``new``    what the sink holds belongs to another stream: write every epoch from here on beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from epochal.txn.errors import EpochalError, ForeignTarget, JournalLost, Rewound, TwoJournals
from epochal.txn.holding import same_place, stranger
from epochal.txn.model import NO_EPOCH, Memory, lineage_tag
from epochal.txn.offsets import why_not_provable
from epochal.txn.plan import lowest_open
from epochal.txn.view import View


@dataclass(frozen=True, slots=True)
class Choices:
    """The tokens that the user passed."""

    adopt: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    exclusive: str = ""  # a sink that takes one stream only: there is no `new` for the stream then


@dataclass(frozen=True)
class Evidence:
    """Everything the guard looks at, read in this order: `before`, `memories`, `committed`, `after`.

    A live driver may move on while we read. What must not be behind the stores and the checkpoint
    is taken from `after`, what must not be ahead of them from `before`.
    """

    lineage: str
    before: View
    memories: Mapping[str, Memory]
    committed: int
    after: View
    eager: bool = False
    closed_at: int | None = None  # the first epoch that an earlier incarnation left open, if there was one
    journal: str = ""  # where the journal is; empty where it does not matter
    starting: bool = True  # False: what is decided is finished, and nothing new begins
    sample: Callable[[], str | None] = lambda: None  # the digest of an epoch that the checkpoint has


@dataclass
class StartPlan:
    """How to start."""

    base: int
    adopted: dict[str, int] = field(default_factory=dict)  # sink -> last epoch taken as written
    replaces: dict[str, tuple[str, ...]] = field(default_factory=dict)  # sink -> the lineages whose place we take
    missing: dict[str, int] = field(default_factory=dict)  # sink -> the last epoch that it may lack: the user knows
    reincarnate: bool = False  # the user chose `new` for a lineage that is ours


def check_start(evidence: Evidence, choices: Choices) -> StartPlan:
    """How to start, or a Refused that spells out the choices."""
    plan = StartPlan(base=evidence.after.base if evidence.after.latest else _first_base(evidence))
    latest = evidence.after.latest
    plan.adopted.update(latest.adopted if latest else {})
    plan.missing.update(latest.missing if latest else {})
    exclusive = next((sink for sink, memory in evidence.memories.items() if memory.exclusive), "")
    choices = replace(choices, exclusive=exclusive)
    _check_journal(evidence, choices, plan)
    for sink, memory in evidence.memories.items():
        _check_sink(evidence, sink, memory, choices, plan)
    return plan


def _first_base(evidence: Evidence) -> int:
    """Where a new journal begins: after what Spark has committed, but never past an epoch left in doubt."""
    after = evidence.committed + 1
    return after if evidence.closed_at is None else min(after, evidence.closed_at)


def _check_journal(evidence: Evidence, choices: Choices, plan: StartPlan) -> None:
    view, committed = evidence.after, evidence.committed
    if view.latest is None:
        _check_first_base(evidence, choices, plan)
        return
    done = evidence.before.done_through
    eager = evidence.eager or any(g.commit == "eager" for g in view.generations.values())
    if done > committed + (1 if eager else 0):
        _accept(
            Rewound(
                f"the journal has epoch {done} as done, but the checkpoint's last committed epoch is {committed}: "
                "the checkpoint was rewound, or restored from an older copy"
            ),
            _token(evidence.lineage, done),
            choices,
            plan,
            adopt="skip the epochs that are done, as long as they come back with the same offsets and files",
            new="write the epochs that come back once more, beside what is there",
            unless=_unprovable(evidence, range(committed + 1, done + 1), _recorded(evidence.before)),
        )
    open_epoch = lowest_open(view)
    if open_epoch <= committed and not view.prepared(open_epoch):
        adopted = _accept(
            JournalLost(
                f"epoch {open_epoch} was checkpointed by Spark, but the journal has no record of it (it answers for "
                f"epochs from {view.base}). Either the journal lost records: restore it from a copy. Or the query "
                "ran without epochal in between"
            ),
            _token(evidence.lineage, committed),
            choices,
            plan,
            adopt=f"take epochs up to {committed} as they are and go on after them",
            new=None,
        )
        if adopted:
            plan.base = committed + 1


def _check_first_base(evidence: Evidence, choices: Choices, plan: StartPlan) -> None:
    """An epoch that was in doubt when its journal was closed, and that its driver has committed since."""
    committed = evidence.committed
    if plan.base > committed:
        return
    adopted = _accept(
        JournalLost(
            f"epoch {plan.base} was in doubt when this stream was started as a new one, and another driver has "
            "checkpointed it since. Its staged rows are kept, but no sink shows them"
        ),
        _token(evidence.lineage, committed),
        choices,
        plan,
        adopt=f"go on after epoch {committed}; those rows stay missing",
        new=None,
    )
    if adopted:
        plan.base = committed + 1


def _check_sink(evidence: Evidence, sink: str, memory: Memory, choices: Choices, plan: StartPlan) -> None:
    view, lineage = evidence.after, evidence.lineage
    known = _known(view, evidence.committed)
    where = f"sink {sink!r} ({memory.target})"
    if view.latest is not None and memory.adopted_by is None:
        _check_holder(evidence, sink, where, memory, choices, plan)
    if memory.adopted_by is not None:
        _accept(
            ForeignTarget(f"{where}: stream {lineage_tag(memory.adopted_by)} has taken this stream's place"),
            _token(lineage, memory.last),
            choices,
            plan,
            adopt=None,
            new="write from here on as a stream of its own, beside the other",
        )
    elif not memory.enrolled and (foreign := _foreign(lineage, memory)):
        _check_foreign(where, sink, foreign, replace(choices, exclusive=sink if memory.exclusive else ""), plan)
    elif memory.enrolled and view.latest is None:
        if memory.last == NO_EPOCH and evidence.committed == NO_EPOCH:
            return  # a start that was refused, or died, before its first epoch: it binds nobody
        adopted = _accept(
            JournalLost(
                f"{where}: this stream {_written(memory.last)}, but the journal is empty: it was lost "
                f"or moved. The checkpoint's last committed epoch is {evidence.committed}"
                + _missing(memory.last, evidence.committed)
                + (f". The target was last claimed by {memory.holder}" if memory.holder is not None else "")
            ),
            _token(lineage, memory.last),
            choices,
            plan,
            adopt="take what the sink holds as it is and go on after it",
            new="write every epoch from here on as a new stream beside it",
            unless=_unprovable(evidence, range(evidence.committed + 1, memory.last + 1), memory.recent),
        )
        if adopted:
            plan.adopted[sink] = memory.last
    elif memory.last > max(known, plan.adopted.get(sink, NO_EPOCH)):
        if view.sink_state(
            sink
        ):  # neither choice would do: what was open then may be shown by now, and other parts be open
            raise Rewound(
                f"{where}: it holds epoch {memory.last} of this stream, but the journal knows only epochs up to "
                f"{known}, and parts were open then: checkpoint and journal were restored from an older copy, which "
                "cannot tell what has become of those parts. Nothing was written. Bring back the newest copy of the "
                "journal, the checkpoint may be older; or go on in another target"
            )
        adopted = _accept(
            Rewound(
                f"{where}: it holds epoch {memory.last} of this stream, but the journal knows only epochs up to "
                f"{known}: checkpoint and journal were rewound, or restored from an older copy"
            ),
            _token(lineage, memory.last),
            choices,
            plan,
            adopt="skip the epochs that the sink holds, as long as they come back with the same offsets and files",
            new="write the epochs that come back once more, beside what is there",
            unless=_unprovable(evidence, range(known + 1, memory.last + 1), memory.recent),
        )
        if adopted:
            plan.adopted[sink] = memory.last
    elif memory.last < (expected := _expected(evidence.before, sink, memory, plan)):
        adopted = _accept(
            Rewound(
                f"{where}: epoch {expected} was committed there, but its last one is "
                f"{memory.last if memory.last > NO_EPOCH else 'none'}: the target was emptied, moved or restored "
                "from an older copy" + _missing(memory.last, expected)
            ),
            _token(lineage, memory.last),
            choices,
            plan,
            adopt="take the target as it is and go on; what is missing stays missing",
            new=None,
        )
        if adopted:
            plan.missing[sink] = expected
    elif evidence.starting and memory.enrolled and _was_left_out(evidence.before, sink, memory, plan):
        done = evidence.before.done_through
        adopted = _accept(
            Rewound(
                f"{where}: its last epoch is {memory.last}, and the stream has gone on to epoch {done} without it: the "
                f"sink was left out of the writer meanwhile{_missing(memory.last, done)}"
            ),
            _token(lineage, memory.last),
            choices,
            plan,
            adopt="go on in this target; what it missed stays missing",
            new=None,
        )
        if adopted:
            plan.missing[sink] = done


def _check_holder(evidence: Evidence, sink: str, where: str, memory: Memory, choices: Choices, plan: StartPlan) -> None:
    """A target that was claimed since by another journal of this stream: one of the two is a copy."""
    # What is decided may be finished from a journal that was moved, or is reached by another name, if it knows the
    # newest claim: the attempts are the same.
    held_by = memory.holder.journal if memory.holder is not None and not evidence.starting else evidence.journal
    why = stranger(memory.holder, evidence.after, evidence.lineage, held_by) if evidence.journal else None
    is_ahead = memory.last > _known(evidence.after, evidence.committed)
    if is_ahead and memory.holder is not None and same_place(memory.holder.journal, evidence.journal):
        return  # this journal itself was rewound, which is told with what to do about it
    holder = memory.holder
    if holder is not None and evidence.after.sink_state(sink):
        since = stranger(holder, evidence.after, evidence.lineage, holder.journal)  # wherever the journals lie
        if since is not None:
            raise TwoJournals(
                f"{where}: {since}, and parts are open by this journal: it cannot tell what the other start has made "
                "of them. Nothing was written. Go on with the checkpoint that ran last, or in another target"
            )
    if why is not None and holder is not None:
        _accept(
            TwoJournals(
                f"{where}: {why}. The checkpoint was copied, moved or restored from a copy. If the other one still "
                "runs, both would write the same epochs with different rows"
            ),
            _token(evidence.lineage, memory.last, holder.generation),
            choices,
            plan,
            adopt="this journal takes over; the other one, if it runs, is stopped and can write no more",
            new="write from here on as a stream of its own, beside the other",
        )


def _was_left_out(view: View, sink: str, memory: Memory, plan: StartPlan) -> bool:
    """Whether the stream has finished epochs since a sink's last one that never went to it."""
    held = max(memory.last, plan.missing.get(sink, NO_EPOCH), plan.adopted.get(sink, NO_EPOCH), view.base - 1)
    later = [e for e in view.done if e > max(held, view.floor)]
    return memory.last > NO_EPOCH and (view.floor > held or any(_lacks(view, e, sink, memory) for e in later))


def _lacks(view: View, epoch: int, sink: str, memory: Memory) -> bool:
    winner = view.winner(epoch)
    if winner is None:
        return False
    return sink not in winner.sinks or view.target(sink, winner.generation) not in (None, memory.target)


def _foreign(lineage: str, memory: Memory) -> dict[str, int]:
    """Other streams' epochs; earlier incarnations of this query were dealt with by choosing `new`."""
    if memory.exclusive:
        return dict(memory.others)  # for other sinks than this one
    query = lineage.partition("~")[0]
    return {other: last for other, last in memory.others.items() if other.partition("~")[0] != query}


def _check_foreign(where: str, sink: str, others: Mapping[str, int], choices: Choices, plan: StartPlan) -> None:
    taken = []
    for other, last in others.items():
        if last == NO_EPOCH:
            taken.append(other)  # it has written nothing, so it binds nobody; and it must not begin now
            continue
        adopted = _accept(
            ForeignTarget(
                f"{where}: another stream, {lineage_tag(other)}, {_written(last)}. A new checkpoint "
                "on an old target starts from the beginning of its source and would write rows again"
            ),
            _token(other, last),
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


def _accept(
    fault: EpochalError,
    token: str,
    choices: Choices,
    plan: StartPlan,
    *,
    adopt: str | None,
    new: str | None,
    reincarnates: bool = True,
    unless: str | None = None,
) -> bool:
    """True if the user adopts what was found, False for `new`; raises if there is no choice yet.

    `unless` says why adopting is no choice here.
    """
    if unless:
        adopt = None
        fault = type(fault)(f"{fault}. adopt= is not offered: {unless}")
    if adopt and token in choices.adopt:
        return True
    if new and token in choices.new and not choices.exclusive:
        plan.reincarnate |= reincarnates
        return False
    offered = (("adopt", adopt), ("new", "" if choices.exclusive else new))
    options = "".join(f"\n  {name}={token!r}: {text}" for name, text in offered if text)
    choose = f" Choose, by an option of EpochWriter:{options}" if options else ""
    alone = (
        f"{chr(10) if options else ' '}Sink {choices.exclusive!r} takes one stream only, so there is no new= here; "
        "give a stream that begins anew a target of its own"
    )
    raise type(fault)(f"{fault}. Nothing was written.{choose}{alone if choices.exclusive and new else ''}")


def _unprovable(evidence: Evidence, epochs: Iterable[int], recorded: Mapping[int, str]) -> str | None:
    """Why epochs that come back could not be told from others, so that skipping them might lose rows; None if not."""
    for epoch in epochs:
        why = why_not_provable(recorded.get(epoch), None)
        if why is not None and why_not_provable(recorded.get(epoch), evidence.sample()) is not None:
            return f"nothing would prove that epoch {epoch} comes back with the same rows, because {why}"
    return None


def _recorded(view: View) -> dict[int, str]:
    """The digests of the epochs that the journal remembers."""
    return {epoch: won.offsets for epoch in view.decided if (won := view.winner(epoch)) is not None}


def _known(view: View, committed: int) -> int:
    """The last epoch that a sink may show: done, decided, or to be decided (again, where a power cut took DECIDED)."""
    prepared = [epoch for epoch in view.waiting() if epoch <= committed and view.prepared(epoch)]
    return max([view.done_through, *view.decided, *prepared])


def _expected(view: View, sink: str, memory: Memory, plan: StartPlan) -> int:
    """The last epoch that was committed to this very target and is not known to be missing, by the journal."""
    described = view.latest.sinks.get(sink) if view.latest else None
    if described is None or described.target != memory.target:
        return NO_EPOCH
    accepted = plan.missing.get(sink, NO_EPOCH)
    given = (e for e in view.done if e > accepted and view.winner(e) and not _lacks(view, e, sink, memory))
    return max(given, default=NO_EPOCH)


def _written(last: int) -> str:
    return f"has written it up to epoch {last}" if last > NO_EPOCH else "is enrolled there and has written nothing yet"


def _missing(last: int, wanted: int) -> str:
    if last >= wanted:
        return ""
    first = last + 1
    return f"; epoch{'s' if first < wanted else ''} {first}{f' to {wanted}' if first < wanted else ''} may be missing"


def _token(lineage: str, epoch: int, generation: int | None = None) -> str:
    """The state that was found; with a generation, that of the start that holds the target."""
    holder = "" if generation is None else f".g{generation}"
    return f"{lineage_tag(lineage)}{holder}@{epoch if epoch > NO_EPOCH else 'none'}"


def tokens(value: str | Collection[str] | None) -> frozenset[str]:
    """Tokens from what a user passes: one, several or none."""
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, str) else value)
