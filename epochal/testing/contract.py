"""The suite that any participant must pass.

Derive from `ParticipantContract`, define how to make the participant, how to make rows and how to
read all visible rows, and let pytest collect the class::

    class TestMyStore(ParticipantContract[list[MyRow]]):
        @pytest.fixture(autouse=True)
        def _empty_store(self, tmp_path: Path) -> None:
            self.path = tmp_path / "store"

        def participant(self) -> MyStore:
            return MyStore(self.path)

        def rows(self, numbers: Sequence[int]) -> list[MyRow]:
            return [MyRow(id=number) for number in numbers]

        def visible(self) -> list[int]:
            return [row.id for row in read_store(self.path)]

What a participant can do beyond that has a contract of its own, which it passes too if it declares the ability:
`RollsContract` (configured so that it holds rows open over epochs), `PastContract` and `ConnectContract`. Each test
runs twice, with the participant as it is and behind a `Wrapper`, and starts with an empty store. Rows have numbers, so
that the tests can distinguish a lost row from a doubled one. The tests are plain asserts; for pytest's detailed
messages put ``pytest.register_assert_rewrite("epochal.testing.contract")`` into ``conftest.py``.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import pytest

from epochal.testing.processes import Answer, in_threads
from epochal.txn.errors import DataLost, EpochalError, Rewound, TwoJournals
from epochal.txn.model import NO_EPOCH, Attempt, Batch, Claim, Handle, Json, Memory, Outcome, RollRequest, Staged
from epochal.txn.participant import ABILITIES, Participant, Wrapper, description_of, faults_of
from epochal.txn.past import HasPast, SinkAt
from epochal.txn.state.versions import SinkState

Rows = TypeVar("Rows")

OURS = "7a1f1c9e-0000-4000-8000-000000000001"
OURS_AGAIN = OURS + "~2"  # the same query after the user chose `new`
THEIRS = "c0ffee00-0000-4000-8000-000000000002"
FIRST = Attempt(OURS, 0, 1)
SECOND = Attempt(OURS, 1, 1)


class StoreUnderTest(Generic[Rows]):
    """What a contract needs to know about a store."""

    rounds = 10  # repetitions of each race
    wrapped = False  # set by `_each_way`

    @pytest.fixture(autouse=True, params=["bare", "wrapped"])
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        """Run every test twice: a participant behind a `Wrapper`, such as dead letters, must lose nothing."""
        self.wrapped = request.param == "wrapped"

    # What a subclass provides.

    def participant(self) -> Participant[Rows]:
        """A new object on the same store at each call, as a new process would create it."""
        raise NotImplementedError

    def rows(self, numbers: Sequence[int]) -> Rows:
        """Rows that carry these numbers."""
        raise NotImplementedError

    def visible(self) -> list[int]:
        """The numbers of all rows that any reader of the store can see, in any order."""
        raise NotImplementedError

    # What a subclass may replace.

    def rebuilt(self, description: dict[str, Json]) -> Participant[Rows]:  # noqa: ARG002  # for subclasses
        """The participant as the command line rebuilds it: from the JSON of `describe`."""
        return self.participant()

    def lose_staged(self, attempt: Attempt, handle: Handle) -> None:
        """Remove what an attempt staged, without the participant's knowledge."""
        self._made().abort(attempt, handle)

    def at_once(self, calls: Sequence[Callable[[], Answer]]) -> list[Answer | Exception]:
        """Run calls at the same time; `in_processes` where the store's client survives a fork."""
        return in_threads(calls)

    # Helpers of the tests.

    def _made(self) -> Participant[Rows]:
        return Wrapper(self.participant()) if self.wrapped else self.participant()

    def _rebuilt(self, description: dict[str, Json]) -> Participant[Rows]:
        rebuilt = self.rebuilt(description)
        return Wrapper(rebuilt) if self.wrapped else rebuilt

    def _claim(self, lineage: str, *, start: str = "a", replaces: tuple[str, ...] = ()) -> Claim:
        return claim_for(self._made(), lineage, start=start, replaces=replaces)

    def _enrolled(self, lineage: str = OURS) -> Participant[Rows]:
        if not self._memory(lineage).enrolled:
            self._claim(lineage)
        return self._made()

    def _stage(self, attempt: Attempt, numbers: Sequence[int]) -> Handle:
        return self._enrolled(attempt.lineage).stage(self._batch(attempt, numbers)).handle

    def _batch(self, attempt: Attempt, numbers: Sequence[int]) -> Batch[Rows]:
        return Batch(attempt=attempt, rows=self.rows(numbers), offsets=_offsets(attempt))

    def _commit(self, attempt: Attempt, numbers: Sequence[int]) -> Handle:
        handle = self._stage(attempt, numbers)
        self._made().commit(attempt, handle)
        return handle

    def _memory(self, lineage: str = OURS) -> Memory:
        return self._made().open(lineage)


class ParticipantContract(StoreUnderTest[Rows]):
    """What the protocol relies on, one claim a test."""

    # Staging and committing.

    def test_staged_rows_are_invisible(self) -> None:
        self._stage(FIRST, [1, 2, 3])

        assert self.visible() == []

    def test_stage_counts_its_rows(self) -> None:
        staged = self._enrolled().stage(self._batch(FIRST, [1, 2, 3]))

        assert staged.rows == 3

    def test_commit_shows_the_rows(self) -> None:
        handle = self._stage(FIRST, [1, 2, 3])

        assert self._made().commit(FIRST, handle) is Outcome.COMMITTED
        assert sorted(self.visible()) == [1, 2, 3]

    def test_commit_repeated_shows_the_rows_once_and_says_so(self) -> None:
        handle = self._commit(FIRST, [1, 2, 3])

        assert self._made().commit(FIRST, handle) is Outcome.ALREADY_COMMITTED
        assert self._made().commit(FIRST, handle) is Outcome.ALREADY_COMMITTED
        assert sorted(self.visible()) == [1, 2, 3]

    def test_commit_of_an_earlier_epoch_repeated_after_a_later_one_changes_nothing(self) -> None:
        handle = self._commit(FIRST, [1, 2])
        self._commit(SECOND, [3])

        assert self._made().commit(FIRST, handle) is Outcome.ALREADY_COMMITTED
        assert sorted(self.visible()) == [1, 2, 3]
        assert self._memory().last == SECOND.epoch

    def test_a_new_process_commits_with_the_description_and_the_handle_as_json(self) -> None:
        handle = _through_json(self._stage(FIRST, [1, 2, 3]))
        description = json.loads(json.dumps(self._made().describe()))

        assert self._rebuilt(description).commit(FIRST, handle) is Outcome.COMMITTED
        assert sorted(self.visible()) == [1, 2, 3]

    def test_epochs_add_up(self) -> None:
        self._commit(FIRST, [1, 2])
        self._commit(SECOND, [3])

        assert sorted(self.visible()) == [1, 2, 3]

    def test_what_it_keeps_over_epochs_is_json_and_follows_from_the_state_alone(self) -> None:
        state = SinkState()
        for epoch in range(2):
            kept = json.dumps(dict(state), sort_keys=True)
            staged = [
                self._enrolled().stage(replace(self._batch(Attempt(OURS, epoch, g), [epoch]), state=state))
                for g in (1, 2)
            ]
            mine, others = (json.loads(json.dumps(dict(part.changes), allow_nan=False)) for part in staged)

            assert json.dumps(dict(state), sort_keys=True) == kept, "staging changed the state that it was given"
            assert mine.keys() == others.keys(), "attempts at an epoch that start from the same state change other keys"
            self._made().abort(Attempt(OURS, epoch, 2), staged[1].handle)
            self._made().commit(Attempt(OURS, epoch, 1), staged[0].handle)
            state = state.then((epoch, 0), mine)

    def test_two_epochs_may_be_staged_before_either_is_committed(self) -> None:
        first, second = self._stage(FIRST, [1, 2]), self._stage(SECOND, [3])
        self._made().commit(FIRST, first)
        seen_between = sorted(self.visible())
        self._made().commit(SECOND, second)

        assert seen_between == [1, 2]
        assert sorted(self.visible()) == [1, 2, 3]

    def test_an_empty_epoch_commits_and_is_remembered(self) -> None:
        staged = self._enrolled().stage(self._batch(FIRST, []))
        outcome = self._made().commit(FIRST, _through_json(staged.handle))

        assert (staged.rows, outcome) == (0, Outcome.COMMITTED)
        assert self._made().commit(FIRST, staged.handle) is Outcome.ALREADY_COMMITTED
        assert self.visible() == []
        assert self._memory().last == FIRST.epoch, "the guard would refuse the target as an older copy"

    def test_an_empty_epoch_between_others_hides_nothing(self) -> None:
        self._commit(FIRST, [1])
        self._commit(SECOND, [])
        self._commit(Attempt(OURS, 2, 1), [2])

        assert sorted(self.visible()) == [1, 2]

    def test_staged_data_that_is_lost_is_an_error_and_not_a_commit(self) -> None:
        handle = self._stage(FIRST, [1, 2, 3])
        self.lose_staged(FIRST, handle)

        fault = _raised(lambda: self._made().commit(FIRST, handle))
        assert isinstance(fault, DataLost), repr(fault)
        assert self.visible() == []

    def test_a_handle_of_an_unknown_version_is_refused_and_its_data_kept(self) -> None:
        handle = self._stage(FIRST, [1, 2, 3])
        newer = Handle(handle.version + 1000, handle.body)

        fault = _raised(lambda: self._made().commit(FIRST, newer))
        assert isinstance(fault, EpochalError), f"{fault!r} would be retried for ever"
        assert self.visible() == []
        assert self._made().commit(FIRST, handle) is Outcome.COMMITTED
        assert sorted(self.visible()) == [1, 2, 3]

    def test_two_processes_that_commit_the_same_handle_show_the_rows_once(self) -> None:
        expected: list[int] = []
        for epoch in range(self.rounds):
            attempt = Attempt(OURS, epoch, 1)
            handle = self._stage(attempt, [2 * epoch, 2 * epoch + 1])
            expected += [2 * epoch, 2 * epoch + 1]
            answers = self.at_once([partial(self._made().commit, attempt, handle) for _ in range(2)])

            assert not [a for a in answers if isinstance(a, EpochalError)], answers
            assert self._made().commit(attempt, handle) is Outcome.ALREADY_COMMITTED
            assert sorted(self.visible()) == expected

    # Aborting.

    def test_abort_without_a_handle_removes_an_attempt_that_was_never_prepared(self) -> None:
        self._stage(FIRST, [1, 2, 3])
        self._made().abort(FIRST, None)

        assert self._made().leftovers(OURS) == []
        assert self.visible() == []

    def test_abort_with_its_handle_removes_an_attempt(self) -> None:
        handle = self._stage(FIRST, [1, 2, 3])
        self._made().abort(FIRST, _through_json(handle))

        assert self._made().leftovers(OURS) == []
        assert self.visible() == []

    def test_abort_repeated_is_no_error(self) -> None:
        handle = self._stage(FIRST, [1, 2, 3])
        for _ in range(2):
            self._made().abort(FIRST, handle)
            self._made().abort(FIRST, None)

        assert self._made().leftovers(OURS) == []

    def test_abort_of_what_was_never_staged_is_no_error(self) -> None:
        self._enrolled().abort(FIRST, None)

        assert self._made().leftovers(OURS) == []

    def test_abort_after_commit_removes_nothing_visible(self) -> None:
        handle = self._commit(FIRST, [1, 2, 3])
        self._made().abort(FIRST, handle)
        self._made().abort(FIRST, None)

        assert sorted(self.visible()) == [1, 2, 3]
        assert self._memory().last == FIRST.epoch

    def test_an_aborted_epoch_can_be_staged_by_the_next_generation(self) -> None:
        self._stage(FIRST, [1, 2, 3])
        self._made().abort(FIRST, None)
        self._commit(Attempt(OURS, 0, 2), [1, 2, 3])

        assert sorted(self.visible()) == [1, 2, 3]

    def test_two_processes_that_abort_at_once_raise_no_error(self) -> None:
        for generation in range(1, self.rounds + 1):
            attempt = Attempt(OURS, 0, generation)
            handle = self._stage(attempt, [1, 2])
            answers = self.at_once([partial(self._made().abort, attempt, handle) for _ in range(2)])

            assert answers == [None, None]
            assert self._made().leftovers(OURS) == []

    # Two attempts at one epoch.

    def test_of_two_attempts_the_older_can_win(self) -> None:
        self._of_two_attempts(winner=1, loser=2)

    def test_of_two_attempts_the_newer_can_win(self) -> None:
        self._of_two_attempts(winner=2, loser=1)

    def test_the_loser_can_be_aborted_before_the_winner_commits(self) -> None:
        self._stage(Attempt(OURS, 0, 1), [1, 2])
        handle = self._stage(Attempt(OURS, 0, 2), [1, 2])
        self._made().abort(Attempt(OURS, 0, 1), None)
        self._made().commit(Attempt(OURS, 0, 2), handle)

        assert sorted(self.visible()) == [1, 2]

    # What is left over.

    def test_leftovers_are_the_attempts_that_are_staged(self) -> None:
        again = Attempt(OURS, 0, 2)
        for attempt in (FIRST, again, SECOND):
            self._stage(attempt, [attempt.epoch])

        assert sorted(self._made().leftovers(OURS)) == sorted([FIRST, again, SECOND])

    def test_leftovers_do_not_include_what_was_committed(self) -> None:
        handle = self._stage(FIRST, [1, 2, 3])
        self._stage(SECOND, [4])
        self._made().commit(FIRST, handle)

        assert self._made().leftovers(OURS) == [SECOND]

    def test_leftovers_of_an_unused_store_are_none(self) -> None:
        assert self._made().leftovers(OURS) == []

    def test_leftovers_are_those_of_one_lineage(self) -> None:
        for lineage in (OURS, OURS_AGAIN, THEIRS):
            self._stage(Attempt(lineage, 0, 1), [1])

        assert self._made().leftovers(OURS_AGAIN) == [Attempt(OURS_AGAIN, 0, 1)]

    # Several lineages.

    def test_lineages_with_the_same_epoch_and_generation_do_not_meet(self) -> None:
        ours, again, theirs = (Attempt(lineage, 0, 1) for lineage in (OURS, OURS_AGAIN, THEIRS))
        handles = {a: self._stage(a, [number]) for number, a in enumerate((ours, again, theirs))}
        self._made().abort(again, None)
        outcomes = [self._made().commit(a, handles[a]) for a in (ours, theirs)]

        assert outcomes == [Outcome.COMMITTED, Outcome.COMMITTED]
        assert sorted(self.visible()) == [0, 2]

    # Memory.

    def test_an_unused_store_remembers_nothing(self) -> None:
        memory = self._memory()

        assert (memory.enrolled, memory.last, dict(memory.recent)) == (False, NO_EPOCH, {})
        assert (dict(memory.others), memory.adopted_by) == ({}, None)

    def test_opening_enrols_nobody(self) -> None:
        self._memory(THEIRS)
        self._memory(OURS)

        assert not self._memory(OURS).enrolled
        assert dict(self._memory(OURS).others) == {}

    def test_enrolment_is_remembered(self) -> None:
        self._enrolled()

        assert self._memory().enrolled
        assert self._memory().last == NO_EPOCH

    def test_enrolment_repeated_is_no_error(self) -> None:
        self._enrolled()
        self._commit(FIRST, [1])
        self._enrolled()

        assert (self._memory().enrolled, self._memory().last) == (True, FIRST.epoch)

    def test_staging_and_aborting_are_not_remembered_as_epochs(self) -> None:
        self._stage(FIRST, [1])
        staged = self._memory()
        self._made().abort(FIRST, None)

        assert (staged.last, dict(staged.recent)) == (NO_EPOCH, {})
        assert (self._memory().last, dict(self._memory().recent)) == (NO_EPOCH, {})

    def test_the_last_epoch_and_the_offsets_of_recent_ones_are_remembered(self) -> None:
        self._commit(FIRST, [1, 2])
        self._commit(SECOND, [3])
        memory = self._memory()

        assert memory.last == SECOND.epoch
        assert memory.recent[FIRST.epoch] == _offsets(FIRST)
        assert memory.recent[SECOND.epoch] == _offsets(SECOND)

    def test_other_lineages_are_remembered_with_their_last_epochs(self) -> None:
        self._commit(Attempt(THEIRS, 0, 1), [1])
        self._commit(Attempt(THEIRS, 1, 1), [2])
        memory = self._memory()

        assert dict(memory.others) == {THEIRS: 1}
        assert (memory.enrolled, memory.last) == (False, NO_EPOCH)

    def test_a_lineage_that_has_only_enrolled_is_known_to_others(self) -> None:
        self._enrolled(THEIRS)

        assert dict(self._memory().others) == {THEIRS: NO_EPOCH}

    def test_a_lineage_knows_who_has_adopted_it(self) -> None:
        self._commit(FIRST, [1])
        self._claim(THEIRS, replaces=(OURS,))

        assert self._memory(OURS).adopted_by == THEIRS
        assert self._memory(THEIRS).adopted_by is None
        assert dict(self._memory(THEIRS).others) == {OURS: FIRST.epoch}

    # Claims.

    def test_the_newest_claim_holds_the_target(self) -> None:
        first = self._claim(OURS, start="a")
        second = self._claim(OURS, start="b")

        assert first != second
        assert self._made().holder(OURS) == self._memory(OURS).holder == second
        assert self._made().holder(THEIRS) is None

    def test_a_claim_on_a_version_that_is_over_is_refused(self) -> None:
        seen = self._memory(THEIRS).version
        first = self._claim(OURS)

        late = Claim(lineage=THEIRS, generation=1, start="z", journal="/journals/z")
        assert not self._made().claim(late, version=seen)
        assert self._made().holder(THEIRS) is None
        assert self._made().holder(OURS) == first
        assert not self._memory(THEIRS).enrolled

    def test_of_several_that_claim_at_once_one_succeeds(self) -> None:
        for number in range(self.rounds):
            version = self._memory().version
            claims = [Claim(lineage=OURS, generation=number, start=f"{number}{who}", journal="/j") for who in "ab"]
            answers = self.at_once([partial(self._made().claim, claim, version=version) for claim in claims])

            assert sorted(map(str, answers)) == ["False", "True"], answers
            assert self._made().holder(OURS) == claims[answers.index(True)]

    def test_who_takes_a_lineages_place_holds_the_target_for_it(self) -> None:
        self._claim(OURS)
        theirs = self._claim(THEIRS, replaces=(OURS,))

        assert self._made().holder(OURS) == theirs

    def test_a_lineage_stays_replaced_when_its_successor_starts_again(self) -> None:
        self._claim(OURS)
        self._claim(THEIRS, start="a", replaces=(OURS,))
        self._claim(THEIRS, start="b")
        holder = self._made().holder(OURS)

        assert holder is not None
        assert (holder.lineage, holder.start) == (THEIRS, "b")
        assert self._memory(OURS).adopted_by == THEIRS

    def test_a_claim_that_is_taken_back_leaves_the_target_to_those_before_it(self) -> None:
        ours = self._claim(OURS)
        theirs = self._claim(THEIRS, replaces=(OURS,))
        self._made().withdraw(theirs)

        assert self._made().holder(OURS) == ours
        assert self._made().holder(THEIRS) is None
        assert self._memory(OURS).adopted_by is None

    # Copies of a journal, and stores that went back.

    def test_an_epoch_that_is_there_from_another_start_is_refused(self) -> None:
        ours, copy = replace(FIRST, start="a"), replace(FIRST, start="b")
        self._made().commit(ours, self._stage(ours, [1, 2]))
        handle = self._stage(copy, [1, 2])

        fault = _raised(lambda: self._made().commit(copy, handle))
        assert isinstance(fault, TwoJournals), repr(fault)
        assert sorted(self.visible()) == [1, 2]

    def test_an_epoch_is_not_shown_where_the_one_before_it_is_missing(self) -> None:
        self._commit(FIRST, [1])
        later = Attempt(OURS, 3, 1, after=2)
        handle = self._stage(Attempt(OURS, 3, 1), [2])

        fault = _raised(lambda: self._made().commit(later, handle))
        assert isinstance(fault, Rewound), repr(fault)
        assert self.visible() == [1]
        assert self._made().commit(replace(later, after=0), handle) is Outcome.COMMITTED
        assert sorted(self.visible()) == [1, 2]

    # Abilities.

    def test_each_ability_that_it_declares_has_all_its_calls(self) -> None:
        assert faults_of(self._made()) == []

    def test_what_it_can_do_is_the_same_before_and_after_its_calls(self) -> None:
        used, new = self._enrolled(), self.participant()
        used.stage(self._batch(FIRST, [1]))

        for ability in ABILITIES:
            assert (getattr(used, ability) is None) == (getattr(new, ability) is None), ability

    # Description.

    def test_the_description_is_json_with_type_and_target(self) -> None:
        description = self._made().describe()

        assert json.loads(json.dumps(description, allow_nan=False)) == description
        assert isinstance(description.get("type"), str)
        assert isinstance(description.get("target"), str)

    def test_the_description_and_the_memory_name_the_same_target(self) -> None:
        assert self._made().describe()["target"] == self._enrolled().open(OURS).target

    def test_the_columns_of_a_start_come_with_its_calls_and_not_from_earlier_ones(self) -> None:
        rows, used = self.rows([1]), self._made()
        used.check_frame(rows)
        claim = Claim(lineage=OURS, generation=1, start="a", journal="/journals/a")

        assert used.describe() == self._made().describe()
        assert used.describe(rows) == self._made().describe(rows)
        assert json.loads(json.dumps(self._made().describe(rows), allow_nan=False)) == used.describe(rows)
        assert self._made().claim(claim, version=self._memory().version, rows=rows)
        assert self._made().holder(OURS) == claim

    def test_the_description_rebuilds_the_participant(self) -> None:
        description = self._made().describe()
        rebuilt = self._rebuilt(json.loads(json.dumps(description)))

        assert rebuilt.name == self._made().name
        assert rebuilt.describe() == description

    def _of_two_attempts(self, *, winner: int, loser: int) -> None:
        handles = {g: self._stage(Attempt(OURS, 0, g), [1, 2, 3]) for g in (1, 2)}
        outcome = self._made().commit(Attempt(OURS, 0, winner), handles[winner])
        self._made().abort(Attempt(OURS, 0, loser), handles[loser])

        assert outcome is Outcome.COMMITTED
        assert sorted(self.visible()) == [1, 2, 3]
        assert self._made().leftovers(OURS) == []
        assert self._made().commit(Attempt(OURS, 0, winner), handles[winner]) is Outcome.ALREADY_COMMITTED


class RollsContract(StoreUnderTest[Rows]):
    """What the protocol relies on if a participant holds rows open over epochs.

    Configure it so that two epochs of two rows each stay open and nothing closes by itself.
    """

    def test_it_declares_that_it_holds_rows_open(self) -> None:
        rolls = self._made().rolls

        assert rolls is not None
        assert rolls.opens

    def test_rows_held_open_are_committed_and_not_shown(self) -> None:
        state = self._run([1, 2], [3, 4])

        assert self.visible() == []
        assert state, "without a state the open rows could never be closed"

    def test_a_roll_shows_all_that_is_open_once(self) -> None:
        attempt, staged = self._rolled(self._run([1, 2], [3, 4]))
        hidden = self.visible()
        outcomes = [self._made().commit(attempt, _through_json(staged.handle)) for _ in range(2)]

        assert hidden == []
        assert outcomes == [Outcome.COMMITTED, Outcome.ALREADY_COMMITTED]
        assert sorted(self.visible()) == [1, 2, 3, 4]

    def test_nothing_is_open_after_a_roll(self) -> None:
        state = self._run([1, 2], [3, 4])
        attempt, staged = self._rolled(state)
        self._made().commit(attempt, staged.handle)
        after = _changed(state, staged)
        rolls = self._made().rolls

        assert rolls is not None
        assert rolls.roll(RollRequest(attempt=replace(attempt, roll=2), state=after, every=True)) is None
        assert (rolls.due(after), rolls.open_rows(after)) == (None, [])

    def test_what_is_open_is_listed(self) -> None:
        state = self._run([1, 2], [3, 4])
        rolls = self._made().rolls

        assert rolls is not None
        assert rolls.open_rows(state)
        rolls.check_state(state)

    def test_a_roll_that_is_aborted_leaves_everything_open(self) -> None:
        state = self._run([1, 2], [3, 4])
        attempt, staged = self._rolled(state)
        self._made().abort(attempt, staged.handle)
        again, staged = self._rolled(state)
        self._made().commit(again, staged.handle)

        assert sorted(self.visible()) == [1, 2, 3, 4]

    def test_a_new_process_continues_from_the_state_alone(self) -> None:
        state = json.loads(json.dumps(dict(self._run([1, 2]))))
        state = json.loads(json.dumps(dict(self._run([3, 4], state=state, first=1))))
        attempt, staged = self._rolled(state, after=1)
        self._made().commit(attempt, staged.handle)

        assert sorted(self.visible()) == [1, 2, 3, 4]

    def _run(self, *epochs: Sequence[int], state: Mapping[str, Json] | None = None, first: int = 0) -> SinkState:
        """Stage and commit epochs one after the other; the state after them."""
        state = SinkState(dict(state or {}))
        for epoch, numbers in enumerate(epochs, start=first):
            attempt = Attempt(OURS, epoch, 1)
            staged = self._enrolled().stage(replace(self._batch(attempt, numbers), state=state))
            self._made().commit(attempt, staged.handle)
            state = state.then((epoch, 0), staged.changes)
        return state

    def _rolled(self, state: Mapping[str, Json], after: int = 1) -> tuple[Attempt, Staged]:
        attempt = Attempt(OURS, after, 1, roll=1)
        rolls = self._made().rolls
        assert rolls is not None
        staged = rolls.roll(RollRequest(attempt=attempt, state=state, every=True))
        assert staged is not None
        return attempt, staged


class PastContract(StoreUnderTest[Rows]):
    """What a cut relies on if a participant's store can show what it held after an earlier epoch.

    Besides the store, say how its rows are read.
    """

    def read(self, past: HasPast, at: SinkAt, pin: Mapping[str, Json]) -> list[int]:
        """The numbers of the rows that `read_at` returns, in any order."""
        raise NotImplementedError

    def test_it_declares_that_its_store_has_a_past(self) -> None:
        assert self._made().past is not None

    def test_an_epoch_is_read_as_it_was_when_later_ones_are_staged_and_when_they_are_shown(self) -> None:
        at = self._after(FIRST, [1, 2])
        pin = self._past().pin(at)
        staged = self._stage(SECOND, [3])
        before = self.read(self._past(), at, pin)
        self._made().commit(SECOND, staged)

        assert sorted(before) == sorted(self.read(self._past(), at, pin)) == [1, 2]
        assert self._past().pin(at) == pin
        assert sorted(self.visible()) == [1, 2, 3]

    def test_a_pin_is_json_and_the_newest_epoch_is_read_with_those_before_it(self) -> None:
        self._after(FIRST, [1, 2])
        at = self._after(SECOND, [3])
        pin = self._past().pin(at)
        again = json.loads(json.dumps(pin, allow_nan=False))

        assert again == pin
        assert sorted(self.read(self._past(), at, again)) == [1, 2, 3]

    def _after(self, attempt: Attempt, numbers: Sequence[int]) -> SinkAt:
        """The sink once an epoch is committed, as a journal describes it."""
        self._commit(attempt, numbers)
        described = description_of(self._made(), self.rows([]))
        return SinkAt(self._made().name, attempt.lineage, attempt.epoch, described, {attempt.generation: described})

    def _past(self) -> HasPast:
        past = self._made().past
        assert past is not None
        return past


class ConnectContract(StoreUnderTest[Rows]):
    """What Spark Connect needs of a participant that works there. Configure it so that nothing keeps it from that."""

    def test_it_declares_that_nothing_keeps_it_from_spark_connect(self) -> None:
        connect = self._made().connect

        assert connect is not None
        assert list(connect.connect_faults()) == []

    def test_it_goes_to_another_process_after_it_was_used_here(self) -> None:
        here = self._enrolled()
        first = here.stage(self._batch(FIRST, [1, 2])).handle
        there = self._sent(here)
        there.commit(FIRST, first)
        second = self._sent(there).stage(self._batch(SECOND, [3])).handle
        self._made().commit(SECOND, second)

        assert (there.name, there.describe()) == (here.name, here.describe())
        assert sorted(self.visible()) == [1, 2, 3]

    def _sent(self, participant: Participant[Rows]) -> Participant[Rows]:
        sent: Participant[Rows] = pickle.loads(pickle.dumps(participant))
        return sent


def _changed(state: Mapping[str, Json], staged: Staged) -> Mapping[str, Json]:
    """The state after an epoch is decided, as the journal computes it."""
    return {key: value for key, value in {**state, **staged.changes}.items() if value is not None}


def claim_for(
    participant: Participant[Any], lineage: str, *, start: str = "a", replaces: tuple[str, ...] = ()
) -> Claim:
    """Claim a store for a lineage, as a start of its query does."""
    claim = Claim(lineage=lineage, generation=1, start=start, journal="/journals/a", sink="x", replaces=replaces)
    assert participant.claim(claim, version=participant.open(lineage).version)
    return claim


def _offsets(attempt: Attempt) -> str:
    """Offsets as the protocol passes them: a digest, the same for every attempt at an epoch."""
    return f"{attempt.epoch:064x}"


def _through_json(handle: Handle) -> Handle:
    return Handle.from_json(json.loads(json.dumps(handle.to_json(), allow_nan=False)))


def _raised(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as fault:  # noqa: BLE001  # the test checks it
        return fault
    return None
