"""What a `Wrapper` passes on, and which claims of the contract see it when one does not."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epochal.testing.contract import ParticipantContract
from epochal.testing.directory import DirectoryParticipant
from epochal.txn.model import Json
from epochal.txn.participant import ABILITIES, Participant, Wrapper, members
from integration_tests.behind_a_wrapper import FOR_EACH_CALL

CALLS = [name for name in members(Participant) if name != "name" and name not in ABILITIES]
WITHOUT_ANSWER = ("check_output_mode", "withdraw", "abort")
NOT_JUDGED = ("check_frame", "check_output_mode")  # by the contract: what they refuse is each sink's own


class Recording:
    """Answers every call with a new object, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.answers: dict[str, object] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            return self.answers.setdefault(name, object())

        def call(*arguments: object, **named: object) -> object:
            bound = inspect.signature(getattr(DirectoryParticipant, name)).bind(self, *arguments, **named)
            self.given[name] = {key: value for key, value in bound.arguments.items() if key != "self"}
            return self.answers.setdefault(name, object())

        return call


@pytest.mark.parametrize("name", CALLS)
def test_a_wrapper_passes_on_every_argument_of_every_call_and_the_answer(name: str) -> None:
    inner: Any = Recording()
    given = {key: object() for key in inspect.signature(getattr(Wrapper, name)).parameters if key != "self"}
    answer = getattr(Wrapper(inner), name)(**given)

    assert inner.given[name] == given
    assert set(given) == set(inspect.signature(getattr(Participant, name)).parameters) - {"self"}
    assert answer is (None if name in WITHOUT_ANSWER else inner.answers[name])


@pytest.mark.parametrize("name", ["name", *ABILITIES])
def test_a_wrapper_has_the_name_and_the_abilities_of_what_it_wraps(name: str) -> None:
    inner: Any = Recording()

    assert getattr(Wrapper(inner), name) is inner.answers[name]


@pytest.mark.parametrize("name", [name for name in CALLS if name not in NOT_JUDGED])
def test_a_call_that_a_wrapper_keeps_to_itself_is_seen_by_the_claims_for_each_call(name: str, tmp_path: Path) -> None:
    keeping = type("Keeping", (Wrapper,), {name: lambda self, *arguments, **named: None})

    class Contract(ParticipantContract[Sequence[Json]]):
        path = ""

        def participant(self) -> Participant[Sequence[Json]]:
            made: Participant[Sequence[Json]] = keeping(DirectoryParticipant(self.path))
            return made

        def rows(self, numbers: Sequence[int]) -> Sequence[Json]:
            return list(numbers)

        def visible(self) -> list[int]:
            return [number for number in DirectoryParticipant(self.path).rows() if isinstance(number, int)]

    failed = []
    for claim in FOR_EACH_CALL:
        contract = Contract()
        contract.path = str(tmp_path / claim)
        try:
            getattr(contract, claim)()
        except Exception:  # noqa: BLE001  # whatever it is, somebody has seen it
            failed.append(claim)

    assert failed
