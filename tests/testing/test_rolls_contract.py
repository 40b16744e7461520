"""The contract of participants that hold rows open: one that keeps it, and some that are seen to break it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.testing.contract import RollsContract
from epochal.txn.model import Batch, Json, Staged
from epochal.txn.participant import Participant, Rolls, Wrapper
from tests.txn.keeping import Keeping


class OfKeeping(RollsContract[Sequence[Json]]):
    path = ""

    def participant(self) -> Participant[Sequence[Json]]:
        return Keeping(self.path)

    def rows(self, numbers: Sequence[int]) -> Sequence[Json]:
        return list(numbers)

    def visible(self) -> list[int]:
        return [number for number in Keeping(self.path).rows() if isinstance(number, int)]


class TestKeeping(OfKeeping):
    @pytest.fixture(autouse=True)
    def _empty_store(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "target")


class LosesChanges(Wrapper[Sequence[Json]]):
    """What a wrapper for dead letters once did: the rows stayed open for ever."""

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        return replace(super().stage(batch), changes={})


class LosesState(Wrapper[Sequence[Json]]):
    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        staged = super().stage(replace(batch, state={}))
        return replace(staged, changes={**dict.fromkeys(batch.state), **staged.changes})


class LosesRolls(Wrapper[Sequence[Json]]):
    @property
    def rolls(self) -> Rolls | None:
        return None


@pytest.mark.parametrize("wrapper", [LosesChanges, LosesState, LosesRolls])
def test_a_wrapper_that_loses_a_part_of_what_it_passes_on_is_seen(
    wrapper: type[Wrapper[Sequence[Json]]], tmp_path: Path
) -> None:
    class Contract(OfKeeping):
        def participant(self) -> Participant[Sequence[Json]]:
            return wrapper(Keeping(self.path))

    claims = [name for name in dir(Contract) if name.startswith("test_")]
    failed = []
    for claim in claims:
        contract = Contract()
        contract.path = str(tmp_path / claim)
        try:
            getattr(contract, claim)()
        except AssertionError:
            failed.append(claim)

    assert failed
