"""Every refusal, its words and its token, and that each of its choices works."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import pytest

from epochal.txn.choices import Choices, tokens
from epochal.txn.errors import ForeignTarget, JournalLost, Refused, Rewound, TwoJournals
from epochal.txn.guard import Observed, StartPlan, check_start
from epochal.txn.model import NO_EPOCH, Claim, Description, Handle, Memory, Staged
from epochal.txn.records import Decided, Done, GenerationStarted, Prepared, Record
from epochal.txn.view import View, fold

QUERY = "7c8d2a4e-aaaa-bbbb"
TAG = "7c8d2a4e"
OTHER = "99999999-cccc"
TARGET = "lake/orders"
PLACE = "/checkpoints/orders/epochal"
START = "5a17"
PROVES = "v2:4e07:=:8b21"  # offsets that identify rows by themselves
SINKS = {"lake": Description({"type": "lake", "target": TARGET})}
STAGED = Staged(Handle(1, {}), 1)


def journal(
    *epochs: int,
    base: int = 0,
    commit: str = "checkpoint",
    adopted: int | None = None,
    missing: int | None = None,
    left_out: Collection[int] = (),
) -> View:
    """A journal that has these epochs as done, in some of them without the sink."""
    start = GenerationStarted(
        1,
        QUERY,
        base,
        commit=commit,
        sinks=SINKS,
        adopted={} if adopted is None else {"lake": adopted},
        start=START,
        missing={} if missing is None else {"lake": missing},
    )
    records: list[Record] = [start]
    for epoch in epochs:
        sinks = {} if epoch in left_out else {"lake": STAGED}
        records += [Prepared(epoch, 1, PROVES, sinks), Decided(epoch, 1), Done(epoch, 1)]
    return fold(records)


def claimed(generation: int, *, start: str = START, place: str = PLACE) -> Claim:
    return Claim(lineage=QUERY, generation=generation, start=start, journal=place)


def memory(last: int = NO_EPOCH, *, enrolled: bool = True, recent: str = PROVES, **more: object) -> Memory:
    known = dict.fromkeys(range(last + 1), recent)
    return Memory(TARGET, enrolled, last, known, **more)  # type: ignore[arg-type]  # the tests name the rest


def observed(
    view: View,
    store: Memory,
    committed: int,
    *,
    before: View | None = None,
    eager: bool = False,
    closed_at: int | None = None,
    journal: str = "",
) -> Observed:
    return Observed(
        lineage=QUERY,
        before=before or view,
        memories={"lake": store},
        committed=committed,
        after=view,
        eager=eager,
        closed_at=closed_at,
        journal=journal,
    )


EMPTY = fold([])
POWER_CUT = fold([GenerationStarted(1, QUERY, base=0), Prepared(0, 1, "", {"lake": STAGED})])
FIRST: list[Record] = [
    GenerationStarted(1, QUERY, base=0, sinks=SINKS),
    Prepared(0, 1, PROVES, {"lake": STAGED}),
    Decided(0, 1),
]
NOT_DONE = fold(FIRST)
SECOND_NOT_DONE = fold([*FIRST, Done(0, 1), Prepared(1, 1, PROVES, {"lake": STAGED}), Decided(1, 1)])


@dataclass(frozen=True)
class Case:
    """A state that is refused, and what its choices lead to."""

    found: Observed
    error: type[Refused]
    says: str
    token: str
    adopt: StartPlan | None = None
    new: StartPlan | None = None
    options: list[str] = field(default_factory=list)


CASES = {
    "the checkpoint was rewound": Case(
        observed(journal(0, 1, 2), memory(2), committed=0),
        Rewound,
        "the journal has epoch 2 as done, but the checkpoint's last committed epoch is 0: the checkpoint was rewound, "
        "or restored from an older copy",
        f"{TAG}@2",
        adopt=StartPlan(base=0),
        new=StartPlan(base=0, reincarnate=True),
        options=["adopt", "new"],
    ),
    "an epoch was checkpointed without epochal": Case(
        observed(journal(0), memory(0), committed=3),
        JournalLost,
        "epoch 1 was checkpointed by Spark, but the journal has no record of it (it covers epochs from 0). Either "
        "the journal lost records: restore it from a copy. Or the query ran without epochal in between",
        f"{TAG}@3",
        adopt=StartPlan(base=4),
        options=["adopt"],
    ),
    "an epoch in doubt was checkpointed after its journal was closed": Case(
        observed(EMPTY, memory(enrolled=False), committed=3, closed_at=2),
        JournalLost,
        "epoch 2 was in doubt when this stream was started as a new one, and another driver has checkpointed it since. "
        "Its rows are still staged, but not visible in any sink",
        f"{TAG}@3",
        adopt=StartPlan(base=4),
        options=["adopt"],
    ),
    "another stream has taken this one's place": Case(
        observed(journal(0), memory(0, adopted_by=OTHER), committed=0),
        ForeignTarget,
        f"sink 'lake' ({TARGET}): stream 99999999 has taken this stream's place",
        f"{TAG}@0",
        new=StartPlan(base=0, reincarnate=True),
        options=["new"],
    ),
    "another stream has written the target": Case(
        observed(EMPTY, memory(enrolled=False, others={OTHER: 41}), committed=NO_EPOCH),
        ForeignTarget,
        f"sink 'lake' ({TARGET}): another stream, 99999999, has written it up to epoch 41. A new checkpoint on an old "
        "target starts from the beginning of its source and would write rows again",
        "99999999@41",
        adopt=StartPlan(base=0, replaces={"lake": (OTHER,)}),
        new=StartPlan(base=0),
        options=["adopt", "new"],
    ),
    "the journal is gone": Case(
        observed(EMPTY, memory(5), committed=5),
        JournalLost,
        f"sink 'lake' ({TARGET}): this stream has written it up to epoch 5, but the journal is empty: it was lost or "
        "moved. The checkpoint's last committed epoch is 5",
        f"{TAG}@5",
        adopt=StartPlan(base=6, adopted={"lake": 5}),
        new=StartPlan(base=6, reincarnate=True),
        options=["adopt", "new"],
    ),
    "the journal is kept elsewhere, and the start does not say so": Case(
        observed(EMPTY, memory(5, holder=claimed(1, place="s3://bucket/journal")), committed=5, journal=PLACE),
        JournalLost,
        "The target was last claimed by generation 1 of the journal in s3://bucket/journal. If the journal is still "
        "there, choose nothing: name its place, by EpochWriter's journal= or --journal",
        f"{TAG}@5",
        adopt=StartPlan(base=6, adopted={"lake": 5}),
        new=StartPlan(base=6, reincarnate=True),
        options=["adopt", "new"],
    ),
    "the journal is gone with epochs that the sink lacks": Case(
        observed(EMPTY, memory(3), committed=5),
        JournalLost,
        "The checkpoint's last committed epoch is 5; epochs 4 to 5 may be missing",
        f"{TAG}@3",
        adopt=StartPlan(base=6, adopted={"lake": 3}),
        new=StartPlan(base=6, reincarnate=True),
        options=["adopt", "new"],
    ),
    "the journal is gone before anything was written": Case(
        observed(EMPTY, memory(), committed=0),
        JournalLost,
        "this stream has claimed it and has written nothing yet, but the journal is empty: it was lost or moved. "
        "The checkpoint's last committed epoch is 0; epoch 0 may be missing",
        f"{TAG}@none",
        adopt=StartPlan(base=1, adopted={"lake": NO_EPOCH}),
        new=StartPlan(base=1, reincarnate=True),
        options=["adopt", "new"],
    ),
    "journal and checkpoint were rewound": Case(
        observed(journal(0), memory(2), committed=0),
        Rewound,
        f"sink 'lake' ({TARGET}): it holds epoch 2 of this stream, but the journal knows only epochs up to 0: "
        "checkpoint and journal were rewound, or restored from an older copy",
        f"{TAG}@2",
        adopt=StartPlan(base=0, adopted={"lake": 2}),
        new=StartPlan(base=0, reincarnate=True),
        options=["adopt", "new"],
    ),
    "the target was emptied": Case(
        observed(journal(0, 1), memory(), committed=1),
        Rewound,
        f"sink 'lake' ({TARGET}): epoch 1 was committed there, but its last one is none: the target was emptied, moved "
        "or restored from an older copy; epochs 0 to 1 may be missing",
        f"{TAG}@none",
        adopt=StartPlan(base=0, missing={"lake": 1}),
        options=["adopt"],
    ),
    "the target's records are gone while an epoch is decided": Case(
        observed(NOT_DONE, memory(enrolled=False), committed=0),
        Rewound,
        f"sink 'lake' ({TARGET}): it has no record of this stream any more, and epoch 0 is decided: nothing tells "
        "whether its rows are there. The target was emptied or replaced, or epochal's own records in it were",
        f"{TAG}@none",
        adopt=StartPlan(base=0),
        options=["adopt"],
    ),
    "the target's records are gone while a later epoch is decided": Case(
        observed(SECOND_NOT_DONE, memory(enrolled=False), committed=1),
        Rewound,
        "and epoch 1 is decided: nothing tells whether its rows are there. The target was emptied or replaced, or "
        "epochal's own records in it were; epoch 0 may be missing",
        f"{TAG}@none",
        adopt=StartPlan(base=0, missing={"lake": 0}),
        options=["adopt"],
    ),
    "journal and checkpoint were rewound, and the sink shows a part of a later epoch": Case(
        observed(journal(0), memory(0, begun=1), committed=0),
        Rewound,
        f"sink 'lake' ({TARGET}): some rows of epoch 1 of this stream are there, and the journal knows only epochs up "
        "to 0: checkpoint and journal were rewound, or restored from an older copy, after epoch 1 was decided",
        f"{TAG}@1",
        new=StartPlan(base=0, reincarnate=True),
        options=["new"],
    ),
    "the journal is gone, and the sink shows a part of a later epoch": Case(
        observed(EMPTY, memory(begun=0), committed=NO_EPOCH),
        Rewound,
        f"sink 'lake' ({TARGET}): some rows of epoch 0 of this stream are there",
        f"{TAG}@0",
        new=StartPlan(base=0, reincarnate=True),
        options=["new"],
    ),
    "the target was restored from an older copy": Case(
        observed(journal(0, 1, 2), memory(1), committed=2),
        Rewound,
        f"sink 'lake' ({TARGET}): epoch 2 was committed there, but its last one is 1: the target was emptied, moved or "
        "restored from an older copy; epoch 2 may be missing",
        f"{TAG}@1",
        adopt=StartPlan(base=0, missing={"lake": 2}),
        options=["adopt"],
    ),
    "the sink was left out for a while": Case(
        observed(journal(0, 1, 2, 3, left_out=(2, 3)), memory(1), committed=3),
        Rewound,
        f"sink 'lake' ({TARGET}): its last epoch is 1, but the stream has gone on to epoch 3 without it: the sink was "
        "left out of the writer meanwhile; epochs 2 to 3 may be missing",
        f"{TAG}@1",
        adopt=StartPlan(base=0, missing={"lake": 3}),
        options=["adopt"],
    ),
    "a copy of the checkpoint has claimed the target since": Case(
        observed(journal(0), memory(0, holder=claimed(2)), committed=0, journal=PLACE),
        TwoJournals,
        f"sink 'lake' ({TARGET}): it was last claimed by generation 2 of the journal in {PLACE}, and this journal "
        "knows only generations up to 1. The checkpoint was copied, moved or restored from a copy. If the other one "
        "still runs, both would write the same epochs with different rows",
        f"{TAG}.g2@0",
        adopt=StartPlan(base=0),
        new=StartPlan(base=0, reincarnate=True),
        options=["adopt", "new"],
    ),
    "a copy of the checkpoint has a start of the same number": Case(
        observed(journal(0), memory(0, holder=claimed(1, start="another")), committed=0, journal=PLACE),
        TwoJournals,
        "and this journal has another start of that number",
        f"{TAG}.g1@0",
        adopt=StartPlan(base=0),
        new=StartPlan(base=0, reincarnate=True),
        options=["adopt", "new"],
    ),
    "the target was claimed from a journal in another place": Case(
        observed(journal(0), memory(0, holder=claimed(1, place="/elsewhere/epochal")), committed=0, journal=PLACE),
        TwoJournals,
        f"last claimed by generation 1 of the journal in /elsewhere/epochal, and this journal is in {PLACE}",
        f"{TAG}.g1@0",
        adopt=StartPlan(base=0),
        new=StartPlan(base=0, reincarnate=True),
        options=["adopt", "new"],
    ),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def refusal(found: Observed, choices: Choices) -> Refused:
    with pytest.raises(Refused) as caught:
        check_start(found, choices)
    return caught.value


@each_case
def test_the_refusal_says_what_was_found_and_names_each_choice(case: Case) -> None:
    error = refusal(case.found, Choices())

    assert type(error) is case.error
    assert case.says in str(error)
    assert "Nothing was written. Choose, by an option of EpochWriter:" in str(error)
    offered = [line.split("=")[0].strip() for line in str(error).splitlines()[1:]]
    assert offered == case.options
    assert all(f"={case.token!r}: " in line for line in str(error).splitlines()[1:])


@each_case
def test_adopt_is_taken_where_it_is_offered(case: Case) -> None:
    choices = Choices(adopt=frozenset({case.token}))

    if case.adopt is None:
        assert type(refusal(case.found, choices)) is case.error
    else:
        assert check_start(case.found, choices) == case.adopt


@each_case
def test_new_is_taken_where_it_is_offered(case: Case) -> None:
    choices = Choices(new=frozenset({case.token}))

    if case.new is None:
        assert type(refusal(case.found, choices)) is case.error
    else:
        assert check_start(case.found, choices) == case.new


@each_case
def test_a_token_of_another_state_accepts_nothing(case: Case) -> None:
    other = frozenset({f"{TAG}@77", "88888888@2", TAG, ""})

    assert type(refusal(case.found, Choices(adopt=other, new=other))) is case.error


@pytest.mark.parametrize(
    ("found", "base"),
    [
        (observed(EMPTY, memory(enrolled=False), committed=NO_EPOCH), 0),
        (observed(EMPTY, memory(enrolled=False), committed=6), 7),
        (observed(EMPTY, memory(enrolled=False), committed=6, closed_at=7), 7),
        (observed(EMPTY, memory(enrolled=False), committed=6, closed_at=9), 7),
        (observed(journal(), memory(), committed=NO_EPOCH), 0),
        (observed(journal(0, 1), memory(1), committed=1), 0),
        (observed(journal(7, base=7), memory(7), committed=7), 7),
        (observed(journal(0, 1, commit="eager"), memory(1), committed=0), 0),
        (observed(journal(0, 1), memory(1), committed=0, eager=True), 0),
        (observed(journal(0, adopted=2), memory(2), committed=0), 0),
        (observed(journal(0, 1), Memory("lake/moved", enrolled=True), committed=1), 0),
        (observed(journal(), memory(enrolled=False, others={f"{QUERY}~2": 4}), committed=NO_EPOCH), 0),
        (observed(POWER_CUT, memory(0), committed=0), 0),
        (observed(NOT_DONE, memory(begun=0), committed=0), 0),
        (observed(NOT_DONE, Memory("lake/moved"), committed=0), 0),
        (observed(EMPTY, memory(enrolled=False, others={OTHER: NO_EPOCH}), committed=NO_EPOCH), 0),
        (observed(EMPTY, memory(), committed=NO_EPOCH), 0),
        (observed(journal(0), memory(0, holder=claimed(1)), committed=0, journal=PLACE), 0),
        (observed(journal(0, 1, missing=1), memory(0), committed=1), 0),
        (observed(journal(0, 1, 2, left_out=(1, 2), missing=2), memory(0), committed=2), 0),
    ],
    ids=[
        "a new query",
        "a query that ran without epochal until now",
        "a query that goes on as a new one",
        "a query that was rewound and goes on as a new one",
        "a query that has only started",
        "a query that goes on",
        "a query that was taken over",
        "an eager epoch before its checkpoint",
        "an eager epoch, eager from now on",
        "epochs that were adopted at an earlier start",
        "a sink that was pointed elsewhere",
        "another incarnation of this query",
        "a power cut that took DECIDED and DONE of an epoch",
        "an epoch that is decided and shown in part",
        "a sink that was pointed elsewhere before an epoch was shown",
        "another stream that has started and written nothing",
        "a start that was refused before its first epoch, and lost its journal",
        "a target that this journal has claimed",
        "epochs that the user has accepted as missing",
        "epochs that the sink missed, which the user has accepted",
    ],
)
def test_what_breaks_nothing_is_not_refused(found: Observed, base: int) -> None:
    assert check_start(found, Choices()).base == base


def test_an_epoch_in_doubt_that_a_sink_holds_is_a_rewind_until_spark_has_committed_it() -> None:
    assert isinstance(refusal(observed(POWER_CUT, memory(0), committed=NO_EPOCH), Choices()), Rewound)


def test_an_adoption_stays_in_force() -> None:
    verdict = check_start(observed(journal(0, adopted=2), memory(2), committed=0), Choices())

    assert verdict.adopted == {"lake": 2}


def test_eager_allows_one_epoch_before_its_checkpoint_and_no_more() -> None:
    found = observed(journal(0, 1, 2, commit="eager"), memory(2), committed=0)

    assert isinstance(refusal(found, Choices()), Rewound)


def test_a_live_driver_that_commits_while_we_look_is_no_rewind() -> None:
    """Read in order: a journal without epoch 1, a store with it, commits/ with it, a journal with it."""
    found = observed(journal(0, 1), memory(1), committed=1, before=journal(0))

    assert check_start(found, Choices()) == StartPlan(base=0)


def test_two_foreign_streams_need_a_choice_each() -> None:
    found = observed(EMPTY, memory(enrolled=False, others={OTHER: 4, "88888888-dddd": 2}), committed=NO_EPOCH)
    first = Choices(new=frozenset({"99999999@4"}))
    both = Choices(new=frozenset({"99999999@4", "88888888@2"}))

    assert "88888888@2" in str(refusal(found, first))
    assert check_start(found, both) == StartPlan(base=0)


def test_each_sink_is_judged() -> None:
    good, bad = memory(1), memory(3)
    found = Observed(
        lineage=QUERY,
        before=journal(0, 1),
        memories={"lake": good, "files": bad},
        committed=1,
        after=journal(0, 1),
    )

    assert "sink 'files'" in str(refusal(found, Choices()))


def test_an_incarnation_is_part_of_the_token() -> None:
    found = observed(journal(0), memory(2), committed=0)
    again = Observed(lineage=f"{QUERY}~2", before=found.before, memories=found.memories, committed=0, after=found.after)

    assert f"adopt='{TAG}~2@2'" in str(refusal(again, Choices()))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, []), ("a@1", ["a@1"]), (["a@1", "b@2"], ["a@1", "b@2"]), ((), [])],
)
def test_tokens_come_alone_in_a_list_or_not_at_all(value: str | list[str] | None, expected: Iterable[str]) -> None:
    assert tokens(value) == frozenset(expected)


@pytest.mark.parametrize("place", [PLACE, "/elsewhere/epochal"])
def test_a_journal_with_open_parts_takes_nothing_over_from_a_start_that_it_does_not_know(place: str) -> None:
    part = Staged(Handle(1, {}), 1, changes={"000000000000 ": 1})
    start = GenerationStarted(1, QUERY, base=0, sinks=SINKS, start=START)
    view = fold([start, Prepared(0, 1, PROVES, {"lake": part}), Decided(0, 1), Done(0, 1)])
    found = observed(view, memory(0, holder=claimed(2, place=place)), committed=0, journal=PLACE)

    with pytest.raises(TwoJournals, match="this journal has open parts"):
        check_start(found, Choices(adopt=frozenset({f"{TAG}.g2@0"})))


def test_every_answer_that_is_needed_comes_in_one_error() -> None:
    """Two streams have written one target, and a third the other: three tokens, which are accepted together."""
    both = Memory(TARGET, others={OTHER: 4, "88888888-dddd": 7})
    one = Memory("archive", others={OTHER: 4, "66666666-eeee": 2})
    found = Observed(lineage=QUERY, before=EMPTY, memories={"lake": both, "files": one}, committed=-1, after=EMPTY)
    with pytest.raises(ForeignTarget, match="refused for 4 reasons") as refused:
        check_start(found, Choices())
    wanted = ["99999999@4", "88888888@7", "66666666@2"]
    plan = check_start(found, Choices(adopt=tokens(wanted)))

    assert [token for option, token in refused.value.offers if option == "adopt"] == wanted
    assert f"Several answers are given together: adopt={wanted!r}, new={wanted!r}" in str(refused.value)
    assert plan.replaces == {"lake": (OTHER, "88888888-dddd"), "files": (OTHER, "66666666-eeee")}
    with pytest.raises(ForeignTarget) as last:
        check_start(found, Choices(adopt=tokens(wanted[:2])))
    assert last.value.offers == (("adopt", "66666666@2"), ("new", "66666666@2"))


def test_records_that_are_missing_because_a_copy_ran_are_told_with_the_place_of_the_copy() -> None:
    copy = claimed(2, start="c0b1", place="/restored/orders/epochal")
    store = memory(3, holder=copy)
    found = observed(journal(0), store, committed=3, journal=PLACE)
    with pytest.raises(JournalLost) as refused:
        check_start(found, Choices())

    assert "epoch 1 was checkpointed by Spark, but the journal has no record of it" in str(refused.value)
    assert (
        "Or a copy of the checkpoint ran: sink 'lake' was last claimed by generation 2 of the journal in "
        f"/restored/orders/epochal, and this journal is in {PLACE}. Nothing was written"
    ) in str(refused.value)


def test_a_fault_that_no_choice_answers_does_not_hide_the_others() -> None:
    """Parts were open when the target's journal was restored; and the other target has another stream's rows."""
    opened = Staged(Handle(1, {}), 1, changes={"part": 1})
    view = fold(
        [
            GenerationStarted(1, QUERY, 0, sinks=SINKS, start=START),
            Prepared(0, 1, PROVES, {"lake": opened}),
            Decided(0, 1),
            Done(0, 1),
        ]
    )
    other = Memory("archive", others={OTHER: 4})
    found = Observed(lineage=QUERY, before=view, memories={"lake": memory(3), "files": other}, committed=0, after=view)
    with pytest.raises(
        Rewound, match=r"refused for 2 reasons(?s:.*)parts were open then(?s:.*)another stream, 99999999"
    ):
        check_start(found, Choices())
