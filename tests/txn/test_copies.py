"""Copies of a checkpoint, new checkpoints on one target and adoption, in every order; and that each rule is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from epochal.txn import claims, coordinator, guard, settlement
from epochal.txn.model import Claim, Outcome
from tests.txn import copies
from tests.txn.copies import Explorer, Found, Process, Setting, Store
from tests.txn.fronts import view_of

A_COPY = Setting((Process("a", 0), Process("b", 1)))
TAKEN_OVER = Setting((Process("a", 0), Process("b", 1, adopt=("query.g1@0", "query.g2@0"))))
TWO_NEW = Setting((Process("a", 0), Process("b", 1, query="other")), epochs=2, copied=False)
ADOPTED = Setting((Process("a", 0), Process("b", 1, query="other", adopt=("query@0",))), epochs=3)


@pytest.fixture(autouse=True)
def fresh_views() -> Iterator[None]:
    yield
    view_of.cache_clear()


def fault_of(setting: Setting) -> str:
    with pytest.raises(Found) as caught:
        Explorer(setting).run()
    return str(caught.value)


@pytest.mark.parametrize("setting", [A_COPY, TAKEN_OVER, TWO_NEW, ADOPTED], ids=str)
def test_of_those_that_share_a_store_only_one_ends_well(setting: Setting) -> None:
    states = Explorer(setting).run()
    print(setting, states)

    assert states > 10


def test_without_the_claims_copies_write_over_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (settlement, guard, claims):
        monkeypatch.setattr(module, "why_not_ours", lambda *_: None)
    for module in (coordinator, claims):
        monkeypatch.setattr(module, "why_claim_lost", lambda *_: None)
    monkeypatch.setattr(copies, "TwoJournals", Outcome.ALREADY_COMMITTED)  # as if only the number were compared

    assert fault_of(A_COPY) == "loss: b ends well, and in place of its epoch 1 are rows of a"


def test_an_epoch_that_is_known_by_its_number_alone_hides_that_another_wrote_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "TwoJournals", Outcome.ALREADY_COMMITTED)

    assert fault_of(TAKEN_OVER) == "loss: b ends well, and in place of its epoch 1 are rows of a"


def test_staging_areas_without_the_name_of_the_start_mix_the_rows_of_copies() -> None:
    assert fault_of(replace(TAKEN_OVER, named=False)).startswith("loss: b ends well, and in place of its epoch 1")


def test_enrolling_without_looking_again_lets_two_new_streams_write_one_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def enrol(store: Store, claim: Claim, *, version: int, rows: None = None) -> bool:
        return bool(store._ask("claim", claim, store._ask("open")[0]))  # whatever has happened since

    monkeypatch.setattr(Store, "claim", enrol)

    assert fault_of(TWO_NEW) == "double: two streams end well on one target"


def test_a_stream_that_does_not_look_who_holds_its_target_goes_on_after_it_was_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (coordinator, claims):
        monkeypatch.setattr(module, "why_claim_lost", lambda *_: None)

    assert fault_of(ADOPTED) == "double: query goes on writing after another stream has taken its place"
