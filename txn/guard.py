"""The lineage guard: what would lose or double rows is refused before anything is written.

Pure. It compares what the journal knows, what Spark's checkpoint says and what each store
remembers. Every refusal names a *token*, ``<lineage>@<epoch>``: the state that was found. Passing
the token back as ``adopt=`` or ``new=`` accepts just that state, so a choice left in the code
accepts nothing else later.

``adopt``  what the sink holds counts as written by this stream: go on after it.
``new``    what the sink holds belongs to another stream: write every epoch from here on beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from epochal.txn.errors import EpochalError, ForeignTarget, JournalLost, Rewound
from epochal.txn.model import NO_EPOCH, Memory, lineage_tag
from epochal.txn.plan import lowest_open
from epochal.txn.view import View


@dataclass(frozen=True, slots=True)
class Choices:
    """The tokens that the user passed."""

    adopt: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()


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


@dataclass
class Verdict:
    """How to start."""

    base: int
    adopted: dict[str, int] = field(default_factory=dict)  # sink -> last epoch taken as written
    adopts: dict[str, str] = field(default_factory=dict)  # sink -> the lineage whose place we take
    reincarnate: bool = False  # the user chose `new` for a lineage that is ours


def judge(evidence: Evidence, choices: Choices) -> Verdict:
    """How to start, or a Refused that spells out the choices."""
    verdict = Verdict(base=evidence.after.base if evidence.after.latest else _first_base(evidence))
    verdict.adopted.update(_adopted_before(evidence.after))
    _judge_journal(evidence, choices, verdict)
    for sink, memory in evidence.memories.items():
        _judge_sink(evidence, sink, memory, choices, verdict)
    return verdict


def _first_base(evidence: Evidence) -> int:
    """Where a new journal begins: after what Spark has committed, but never past an epoch left in doubt."""
    after = evidence.committed + 1
    return after if evidence.closed_at is None else min(after, evidence.closed_at)


def _judge_journal(evidence: Evidence, choices: Choices, verdict: Verdict) -> None:
    view, committed = evidence.after, evidence.committed
    if view.latest is None:
        _judge_first_base(evidence, choices, verdict)
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
            verdict,
            adopt="skip the epochs that are done, as long as they come back with the same offsets",
            new="write the epochs that come back once more, beside what is there",
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
            verdict,
            adopt=f"take epochs up to {committed} as they are and go on after them",
            new=None,
        )
        if adopted:
            verdict.base = committed + 1


def _judge_first_base(evidence: Evidence, choices: Choices, verdict: Verdict) -> None:
    """An epoch that was in doubt when its journal was closed, and that its driver has committed since."""
    committed = evidence.committed
    if verdict.base > committed:
        return
    adopted = _accept(
        JournalLost(
            f"epoch {verdict.base} was in doubt when this stream was started as a new one, and another driver has "
            "checkpointed it since. Its staged rows are kept, but no sink shows them"
        ),
        _token(evidence.lineage, committed),
        choices,
        verdict,
        adopt=f"go on after epoch {committed}; those rows stay missing",
        new=None,
    )
    if adopted:
        verdict.base = committed + 1


def _judge_sink(evidence: Evidence, sink: str, memory: Memory, choices: Choices, verdict: Verdict) -> None:
    view, lineage = evidence.after, evidence.lineage
    known = _known(view, evidence.committed)
    where = f"sink {sink!r} ({memory.target})"
    if memory.adopted_by is not None:
        _accept(
            ForeignTarget(f"{where}: stream {lineage_tag(memory.adopted_by)} has taken this stream's place"),
            _token(lineage, memory.last),
            choices,
            verdict,
            adopt=None,
            new="write from here on as a stream of its own, beside the other",
        )
    elif not memory.enrolled and (foreign := _foreign(lineage, memory)):
        _judge_foreign(where, sink, foreign, choices, verdict)
    elif memory.enrolled and view.latest is None:
        adopted = _accept(
            JournalLost(
                f"{where}: this stream {_written(memory.last)}, but the journal is empty: it was lost "
                f"or moved. The checkpoint's last committed epoch is {evidence.committed}"
                + _missing(memory.last, evidence.committed)
            ),
            _token(lineage, memory.last),
            choices,
            verdict,
            adopt="take what the sink holds as it is and go on after it",
            new="write every epoch from here on as a new stream beside it",
        )
        if adopted:
            verdict.adopted[sink] = memory.last
    elif memory.last > max(known, verdict.adopted.get(sink, NO_EPOCH)):
        if view.kept(sink):  # neither choice would do: what was open then may be shown by now, and other parts be open
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
            verdict,
            adopt="skip the epochs that the sink holds, as long as they come back with the same offsets",
            new="write the epochs that come back once more, beside what is there",
        )
        if adopted:
            verdict.adopted[sink] = memory.last
    elif memory.last < (expected := _expected(evidence.before, sink, memory)):
        _accept(
            Rewound(
                f"{where}: epoch {expected} was committed there, but its last one is "
                f"{memory.last if memory.last > NO_EPOCH else 'none'}: the target was emptied, moved or restored "
                "from an older copy" + _missing(memory.last, expected)
            ),
            _token(lineage, memory.last),
            choices,
            verdict,
            adopt="take the target as it is and go on; what is missing stays missing",
            new=None,
        )


def _foreign(lineage: str, memory: Memory) -> dict[str, int]:
    """Other streams' epochs; earlier incarnations of this query were dealt with by choosing `new`."""
    query = lineage.partition("~")[0]
    return {other: last for other, last in memory.others.items() if other.partition("~")[0] != query}


def _judge_foreign(where: str, sink: str, others: Mapping[str, int], choices: Choices, verdict: Verdict) -> None:
    for other, last in others.items():
        adopted = _accept(
            ForeignTarget(
                f"{where}: another stream, {lineage_tag(other)}, {_written(last)}. A new checkpoint "
                "on an old target starts from the beginning of its source and would write rows again"
            ),
            _token(other, last),
            choices,
            verdict,
            adopt="this stream takes the other's place: its rows stay, and the other can write no more",
            new="both streams write here, each its own epochs",
            reincarnates=False,
        )
        if adopted:
            verdict.adopts[sink] = other


def _accept(
    fault: EpochalError,
    token: str,
    choices: Choices,
    verdict: Verdict,
    *,
    adopt: str | None,
    new: str | None,
    reincarnates: bool = True,
) -> bool:
    """True if the user adopts what was found, False for `new`; raises if there is no choice yet."""
    if adopt and token in choices.adopt:
        return True
    if new and token in choices.new:
        verdict.reincarnate |= reincarnates
        return False
    options = [f"  {name}={token!r}: {text}" for name, text in (("adopt", adopt), ("new", new)) if text]
    raise type(fault)(f"{fault}. Nothing was written. Choose, by an option of EpochWriter:\n" + "\n".join(options))


def _adopted_before(view: View) -> Mapping[str, int]:
    taken = view.latest.adopted if view.latest else {}
    return {sink: last for sink, last in taken.items() if isinstance(last, int)}


def _known(view: View, committed: int) -> int:
    """The last epoch that a sink may show: done, decided, or to be decided (again, where a power cut took DECIDED)."""
    prepared = [epoch for epoch in view.waiting() if epoch <= committed and view.prepared(epoch)]
    return max([view.done_through, *view.decided, *prepared])


def _expected(view: View, sink: str, memory: Memory) -> int:
    """The last epoch that was committed to this very target, as far as the journal remembers."""
    described = view.latest.sinks.get(sink) if view.latest else None
    if not isinstance(described, dict) or described.get("target") != memory.target:
        return NO_EPOCH
    return max((e for e in view.done if (won := view.winner(e)) and sink in won.sinks), default=NO_EPOCH)


def _written(last: int) -> str:
    return f"has written it up to epoch {last}" if last > NO_EPOCH else "is enrolled there and has written nothing yet"


def _missing(last: int, wanted: int) -> str:
    if last >= wanted:
        return ""
    first = last + 1
    return f"; epoch{'s' if first < wanted else ''} {first}{f' to {wanted}' if first < wanted else ''} may be missing"


def _token(lineage: str, epoch: int) -> str:
    return f"{lineage_tag(lineage)}@{epoch if epoch > NO_EPOCH else 'none'}"


def tokens(value: str | Collection[str] | None) -> frozenset[str]:
    """Tokens from what a user passes: one, several or none."""
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, str) else value)
