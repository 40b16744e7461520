"""A suite that cannot fail proves nothing: each fault is seen by the claim it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.testing.contract import ParticipantContract
from epochal.testing.directory import DirectoryParticipant
from epochal.txn.errors import DataLost
from epochal.txn.files import LocalFiles
from epochal.txn.model import Attempt, Batch, Claim, Handle, Json, Memory, Outcome, Staged


class ShowsAtStage(DirectoryParticipant):
    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        staged = super().stage(batch)
        self.commit(batch.attempt, staged.handle)
        return staged


class ShowsRepeatsAgain(DirectoryParticipant):
    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        outcome = super().commit(attempt, handle)
        if outcome is Outcome.ALREADY_COMMITTED:
            again = replace(attempt, generation=attempt.generation + 100)
            super().commit(again, self.stage(Batch(attempt=again, rows=[1], offsets="")).handle)
        return outcome


class NeedsItsObject(DirectoryParticipant):
    """Remembers in the object what belongs into the handle."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._own: set[Attempt] = set()

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        self._own.add(batch.attempt)
        return super().stage(batch)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        return super().commit(attempt, handle) if attempt in self._own else Outcome.COMMITTED


class NeverAborts(DirectoryParticipant):
    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        pass


class AbortsOnlyWithHandle(DirectoryParticipant):
    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        if handle is not None:
            super().abort(attempt, handle)


class AbortsWhatIsVisible(DirectoryParticipant):
    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        super().abort(attempt, handle)
        LocalFiles().delete(f"{self._path}/{attempt.number}.{attempt.lineage}")


class ForgetsItsLeftovers(DirectoryParticipant):
    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return []


class TakesLostDataForEmpty(DirectoryParticipant):
    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        try:
            return super().commit(attempt, handle)
        except DataLost:
            return Outcome.ALREADY_COMMITTED


class TakesAnyHandle(DirectoryParticipant):
    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        return super().commit(attempt, replace(handle, version=1))


class SkipsEmptyEpochs(DirectoryParticipant):
    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        if handle.body["bytes"] == len('{"lineage": "", "offsets": "", "start": ""}\n') + len(attempt.lineage) + 64:
            self.abort(attempt, handle)
            return Outcome.COMMITTED
        return super().commit(attempt, handle)


class ForgetsWhoAdopted(DirectoryParticipant):
    def open(self, lineage: str) -> Memory:
        return replace(super().open(lineage), adopted_by=None)


class ForgetsOffsets(DirectoryParticipant):
    def open(self, lineage: str) -> Memory:
        return replace(super().open(lineage), recent={})


class ForgetsOthers(DirectoryParticipant):
    def open(self, lineage: str) -> Memory:
        return replace(super().open(lineage), others={})


class EnrolsOnOpening(DirectoryParticipant):
    def open(self, lineage: str) -> Memory:
        self._register.claim(Claim(lineage=lineage, generation=1, start="a", journal="/j"), version=0)
        return super().open(lineage)


class DescribesNoTarget(DirectoryParticipant):
    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {"type": "directory"}


class KnowsOneLineage(DirectoryParticipant):
    """Mixes up streams that write to the same target."""

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        return super().stage(replace(batch, attempt=replace(batch.attempt, lineage="any")))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        return super().commit(replace(attempt, lineage="any"), handle)


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        (ShowsAtStage, "test_staged_rows_are_invisible"),
        (ShowsRepeatsAgain, "test_commit_repeated_shows_the_rows_once_and_says_so"),
        (NeedsItsObject, "test_a_new_process_commits_with_the_description_and_the_handle_as_json"),
        (NeverAborts, "test_of_two_attempts_the_newer_can_win"),
        (AbortsOnlyWithHandle, "test_abort_without_a_handle_removes_an_attempt_that_was_never_prepared"),
        (AbortsWhatIsVisible, "test_abort_after_commit_removes_nothing_visible"),
        (ForgetsItsLeftovers, "test_leftovers_are_the_attempts_that_are_staged"),
        (TakesLostDataForEmpty, "test_staged_data_that_is_lost_is_an_error_and_not_a_commit"),
        (TakesAnyHandle, "test_a_handle_of_an_unknown_version_is_refused_and_its_data_kept"),
        (SkipsEmptyEpochs, "test_an_empty_epoch_commits_and_is_remembered"),
        (ForgetsWhoAdopted, "test_a_lineage_knows_who_has_adopted_it"),
        (ForgetsOffsets, "test_the_last_epoch_and_the_offsets_of_recent_ones_are_remembered"),
        (ForgetsOthers, "test_other_lineages_are_remembered_with_their_last_epochs"),
        (EnrolsOnOpening, "test_opening_enrols_nobody"),
        (DescribesNoTarget, "test_the_description_is_json_with_type_and_target"),
        (KnowsOneLineage, "test_lineages_with_the_same_epoch_and_generation_do_not_meet"),
    ],
)
def test_a_fault_breaks_the_claim_made_for_it(fault: type[DirectoryParticipant], claim: str, tmp_path: Path) -> None:
    class Contract(ParticipantContract[Sequence[Json]]):
        def participant(self) -> DirectoryParticipant:
            return fault(str(tmp_path))

        def rows(self, numbers: Sequence[int]) -> Sequence[Json]:
            return list(numbers)

        def visible(self) -> list[int]:
            return [number for number in self.participant().rows() if isinstance(number, int)]

    with pytest.raises((AssertionError, KeyError)):
        getattr(Contract(), claim)()
