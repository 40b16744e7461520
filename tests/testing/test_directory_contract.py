from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epochal.testing.contract import ParticipantContract
from epochal.testing.directory import DirectoryParticipant
from epochal.testing.processes import Answer, in_processes
from epochal.txn.errors import OptionError
from epochal.txn.model import Json


class TestDirectory(ParticipantContract[Sequence[Json]]):
    rounds = 40

    @pytest.fixture(autouse=True)
    def _empty_store(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "target")

    def participant(self) -> DirectoryParticipant:
        return DirectoryParticipant(self.path)

    def rebuilt(self, description: dict[str, Json]) -> DirectoryParticipant:
        return DirectoryParticipant.from_description(description)

    def rows(self, numbers: Sequence[int]) -> Sequence[Json]:
        return list(numbers)

    def visible(self) -> list[int]:
        return [number for number in self.participant().rows() if isinstance(number, int)]

    def at_once(self, calls: Sequence[Callable[[], Answer]]) -> list[Answer | Exception]:
        return in_processes(calls)


def test_a_description_without_a_target_is_refused() -> None:
    with pytest.raises(OptionError, match="lacks a target"):
        DirectoryParticipant.from_description({"type": "directory", "name": "directory"})
