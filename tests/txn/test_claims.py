"""Whose a target is, by its newest claim and a journal."""

from __future__ import annotations

from epochal.txn.claims import why_claim_lost, why_not_ours
from epochal.txn.model import Claim
from epochal.txn.records import GenerationStarted
from epochal.txn.view import View, fold

JOURNAL = "/checkpoint/epochal"


def view(*numbers: int) -> View:
    """A journal that has the starts of some generations."""
    return fold(
        GenerationStarted(
            generation=number,
            query="query",
            base=0,
            start=f"start{number}",
            missing={},
            incarnation=1,
            commit="checkpoint",
            sinks={},
            adopted={},
            at="",
        )
        for number in numbers
    )


def claim(generation: int, start: str = "") -> Claim:
    return Claim(
        lineage="query", generation=generation, start=start or f"start{generation}", journal=JOURNAL, sink="sink"
    )


def test_a_claim_of_the_journals_own_start_is_no_strangers() -> None:
    assert why_not_ours(claim(2), view(1, 2), "query", JOURNAL) is None
    assert why_claim_lost(claim(2), view(1, 2), "query", JOURNAL) is None


def test_a_claim_whose_start_is_folded_away_may_be_old_at_a_start_but_not_while_a_driver_runs() -> None:
    folded = view(*range(4, 40))

    assert why_not_ours(claim(2), folded, "query", JOURNAL) is None
    answer = why_claim_lost(claim(2, "of-a-copy"), folded, "query", JOURNAL)
    assert answer is not None
    assert "this journal has no record of that start" in answer


def test_a_claim_of_a_copy_with_the_same_number_is_a_strangers() -> None:
    assert "another start of that number" in str(why_claim_lost(claim(2, "of-a-copy"), view(1, 2), "query", JOURNAL))
