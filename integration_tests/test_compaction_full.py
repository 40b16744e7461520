"""The full search: compactors, a stream and readers in every order of their file operations.

What a state is checked for is said in ``tests/sinks/test_compaction_interleaved.py``. All of it takes about three
minutes on one core; what is not beside a stream is part of the long matrix.
"""

from __future__ import annotations

import pytest

from tests.sinks.interleaving import Program
from tests.sinks.test_compaction_interleaved import compact, compact_twice, go_on, search

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize(
    ("programs", "at_reads", "least"),
    [
        pytest.param((compact, compact), True, 5000, marks=pytest.mark.matrix),
        ((compact, compact, go_on), False, 2000),
        pytest.param((compact, compact_twice), False, 5000, marks=pytest.mark.matrix),
    ],
    ids=["others get in before each read too", "beside a stream", "one sleeps while another compacts twice"],
)
def test_in_every_order_of_steps_readers_by_manifest_see_every_row_exactly_once(
    programs: tuple[Program, ...], at_reads: bool, least: int
) -> None:
    assert search(*programs, at_reads=at_reads) > least
