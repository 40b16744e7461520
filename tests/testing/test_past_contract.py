"""The contracts of the optional abilities `past` and `connect`: one that keeps them, and some that break them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from epochal import EpochWriter, OptionError
from epochal.participant import HasPast, NoPast, OnConnect, SinkAt, Wrapper
from epochal.testing import DirectoryParticipant
from epochal.testing.contract import ConnectContract, ParticipantContract, PastContract
from epochal.txn.model import Json
from epochal.txn.participant import ABILITIES, Abilities, Participant, faults_of, members


class Chronicle(DirectoryParticipant):
    """Each epoch is one file, so the epochs up to one are the files up to one."""

    @property
    def past(self) -> HasPast | None:
        return self

    @property
    def connect(self) -> OnConnect | None:
        return self

    def pin(self, at: SinkAt) -> dict[str, Json]:
        return {"files": sum(epoch <= at.epoch for epoch in self.epochs())}

    def read_at(self, spark: Any, at: SinkAt, pin: Mapping[str, Json]) -> Any:  # no frame here
        found = self.epochs()[: int(str(pin["files"]))]
        return self.rows()[: sum(self._counts[epoch] for epoch in found)]

    def connect_faults(self) -> Sequence[str]:
        return []

    @property
    def _counts(self) -> dict[int, int]:
        lines = {name: self._files.read(f"{self._path}/{name}").count(b"\n") - 1 for name in self._published()}
        return {int(name.split(".")[0]): count for name, count in lines.items()}


class OfChronicle(ParticipantContract[Sequence[Json]], PastContract[Sequence[Json]], ConnectContract[Sequence[Json]]):
    path = ""

    def participant(self) -> Participant[Sequence[Json]]:
        return Chronicle(self.path)

    def rows(self, numbers: Sequence[int]) -> Sequence[Json]:
        return list(numbers)

    def visible(self) -> list[int]:
        return [number for number in Chronicle(self.path).rows() if isinstance(number, int)]

    def read(self, past: HasPast, at: SinkAt, pin: Mapping[str, Json]) -> list[int]:
        rows: list[int] = past.read_at(None, at, pin)
        return rows


class TestChronicle(OfChronicle):
    @pytest.fixture(autouse=True)
    def _empty_store(self, tmp_path: Path) -> None:
        self.path = str(tmp_path / "target")


class ShowsTheNewestState(Chronicle):
    def read_at(self, spark: Any, at: SinkAt, pin: Mapping[str, Json]) -> Any:  # that is the fault
        return self.rows()


class PinsTheNewestState(Chronicle):
    def pin(self, at: SinkAt) -> dict[str, Json]:  # that is the fault
        return {"files": len(self.epochs())}


class PinsNoJson(Chronicle):
    def pin(self, at: SinkAt) -> dict[str, Json]:
        pin: Any = {**super().pin(at), "path": Path(self._path)}
        return dict(pin)


class ForgetsThePast(Wrapper[Sequence[Json]]):
    @property
    def past(self) -> HasPast | None:
        return None


class ForgetsConnect(Wrapper[Sequence[Json]]):
    @property
    def connect(self) -> OnConnect | None:
        return None


class HoldsWhatCannotBeSent(Chronicle):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.on_commit = lambda: None


class HasAPastOnceItHasStaged(Chronicle):
    staged = False

    @property
    def past(self) -> HasPast | None:
        return self if self.staged else None

    def stage(self, batch: Any) -> Any:
        self.staged = True
        return super().stage(batch)


class DescribesTheColumnsThatItHasSeen(Chronicle):
    seen: Sequence[Json] | None = None

    def check_frame(self, rows: Sequence[Json]) -> Sequence[str]:
        self.seen = rows
        return ()

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "columns": None if self.seen is None else len(self.seen)}


@pytest.mark.parametrize(
    ("made", "claim"),
    [
        (ShowsTheNewestState, "test_an_epoch_is_read_as_it_was_when_later_ones_are_staged_and_when_they_are_shown"),
        (PinsTheNewestState, "test_an_epoch_is_read_as_it_was_when_later_ones_are_staged_and_when_they_are_shown"),
        (PinsNoJson, "test_a_pin_is_json_and_the_newest_epoch_is_read_with_those_before_it"),
        (lambda path: ForgetsThePast(Chronicle(path)), "test_it_declares_that_its_store_has_a_past"),
        (lambda path: ForgetsConnect(Chronicle(path)), "test_it_declares_that_nothing_keeps_it_from_spark_connect"),
        (HoldsWhatCannotBeSent, "test_it_goes_to_another_process_after_it_was_used_here"),
        (HasAPastOnceItHasStaged, "test_what_it_can_do_is_the_same_before_and_after_its_calls"),
        (
            DescribesTheColumnsThatItHasSeen,
            "test_the_columns_of_a_start_come_with_its_calls_and_not_from_earlier_ones",
        ),
    ],
)
def test_a_fault_breaks_the_claim_made_for_it(
    made: Callable[[str], Participant[Sequence[Json]]], claim: str, tmp_path: Path
) -> None:
    class Contract(OfChronicle):
        path = str(tmp_path)

        def participant(self) -> Participant[Sequence[Json]]:
            return made(self.path)

    with pytest.raises((AssertionError, AttributeError, TypeError)):
        getattr(Contract(), claim)()


@pytest.mark.parametrize("ability", ABILITIES)
def test_a_wrapper_has_the_abilities_of_what_it_wraps(ability: str) -> None:
    class All(DirectoryParticipant):
        pass

    able = type("Able", (), dict.fromkeys(members(ABILITIES[ability])))()
    setattr(All, ability, property(lambda _: able))

    assert getattr(Wrapper(All("/t")), ability) is able
    assert getattr(Wrapper(DirectoryParticipant("/t")), ability) is None


class FormerSink(DirectoryParticipant):
    """As one was written before the properties."""

    def connect_faults(self) -> list[str]:
        return []

    def pin(self, at: SinkAt) -> dict[str, Json]:
        raise NoPast("it is only asked for")

    def read_at(self, spark: Any, at: SinkAt, pin: Mapping[str, Json]) -> Any:
        raise NoPast("it is only asked for")


def test_a_sink_that_has_the_calls_of_an_ability_and_not_its_property_is_refused() -> None:
    sink: Any = FormerSink("/t")

    with pytest.raises(OptionError) as refused:
        EpochWriter(sink)
    text = str(refused.value)
    assert "it has pin and read_at, and its property 'past' is None: let that return self" in text
    assert "it has connect_faults, and its property 'connect' is None: let that return self" in text


def test_a_sink_that_lacks_a_property_is_refused_with_the_class_that_has_it() -> None:
    lacking: Any = type("Lacking", (), {name: None for name in members(Participant) if name != "past"})()

    assert faults_of(lacking) == ["it has no past (epochal.participant.Abilities has past for it)"]


def test_an_ability_that_lacks_a_call_is_refused_by_name() -> None:
    class Half(Abilities):
        @property
        def past(self) -> Any:
            return object()

    for name in members(Participant):
        if name not in ABILITIES:
            setattr(Half, name, None)

    assert faults_of(Half()) == ["its property 'past' has no pin, read_at"]
