"""A contract behind a `Wrapper`: all of it in the matrix; by default a claim for each call that a wrapper passes on.

That it passes each of them on, whole, is shown in tests/testing/test_wrapper.py; and behind one, rolling files on local
disks keep the whole contract by default. So what is left to be seen of another sink is that it works there at all.
"""

from __future__ import annotations

import pytest

FOR_EACH_CALL = (
    "test_a_new_process_commits_with_the_description_and_the_handle_as_json",
    "test_commit_repeated_shows_the_rows_once_and_says_so",
    "test_what_it_keeps_over_epochs_is_json_and_follows_from_the_state_alone",
    "test_leftovers_are_the_attempts_that_are_staged",
    "test_abort_without_a_handle_removes_an_attempt_that_was_never_prepared",
    "test_the_last_epoch_and_the_offsets_of_recent_ones_are_remembered",
    "test_a_claim_that_is_taken_back_leaves_the_target_to_those_before_it",
    "test_the_columns_of_a_start_come_with_its_calls_and_not_from_earlier_ones",
    "test_the_description_is_json_with_type_and_target",
    "test_each_ability_that_it_declares_has_all_its_calls",
)


class SampledBehindAWrapper:
    """Before the contract, among the bases of a test class."""

    wrapped: bool

    @pytest.fixture(autouse=True)
    def _each_way(self, request: pytest.FixtureRequest) -> None:
        self.wrapped = request.param == "wrapped"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        marks = () if metafunc.function.__name__ in FOR_EACH_CALL else (pytest.mark.matrix,)
        metafunc.parametrize("_each_way", ["bare", pytest.param("wrapped", marks=marks)], indirect=True)
