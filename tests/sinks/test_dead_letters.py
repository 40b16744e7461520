"""The sink of dead letters is to the protocol what it was before: nothing that it can do is lost on the way."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from epochal import CassandraSink, DeltaSink, EpochWriter, Rolling, RollingFileSink
from epochal.sinks.dead_letters import DeadLetters
from epochal.testing import DirectoryParticipant
from epochal.txn.model import Attempt, Batch, Handle, Staged
from epochal.txn.participant import Participant, members

LETTERS = [
    RollingFileSink("bad", name="bad"),
    RollingFileSink("bad", name="bad", rolling=Rolling(max_rows=1)),
    DeltaSink("bad", name="bad"),
    CassandraSink("shop.bad", name="bad"),
    DirectoryParticipant("/bad", name="bad"),
]
ATTEMPT = Attempt("1f0c9a2e-0000", 7, 2, start="5a17", after=6, scratch="/checkpoint/epochal-staged")
MEMBERS = {name: getattr(Participant, name) for name in members(Participant)}
PROPERTIES = [name for name, member in MEMBERS.items() if isinstance(member, property)]
CALLS = [name for name in MEMBERS if name not in (*PROPERTIES, "stage", "check_frame")]  # those two change the rows


def wrapped(letters: Any) -> Any:
    writer = EpochWriter(CassandraSink("shop.orders", dead_letters=letters))
    return writer.sinks[1]


@pytest.mark.parametrize("letters", LETTERS, ids=lambda sink: type(sink).__name__)
def test_dead_letters_roll_and_are_audited_if_their_sink_is_and_only_then(letters: Any) -> None:
    assert wrapped(letters).rolls is letters.rolls
    assert wrapped(letters).audits is letters.audits
    assert wrapped(letters).past is letters.past
    assert wrapped(letters).connect is letters.connect
    assert wrapped(letters).name == "bad"


@pytest.mark.parametrize("name", PROPERTIES)
def test_dead_letters_have_every_property_of_their_sink(name: str) -> None:
    letters = Mock(spec_set=list(MEMBERS))

    assert getattr(DeadLetters(Mock(), letters), name) is getattr(letters, name)


@pytest.mark.parametrize("name", CALLS)
def test_every_call_of_dead_letters_reaches_their_sink_with_all_that_was_given(name: str) -> None:
    letters, origin = Mock(spec_set=list(MEMBERS)), Mock()
    parameters = list(inspect.signature(MEMBERS[name]).parameters.values())[1:]
    given = {p.name: object() for p in parameters}
    expected = {**given, **({"rows": origin.rejected.return_value} if "rows" in given else {})}

    positional, named = _arguments(parameters, given)
    answer = getattr(DeadLetters(origin, letters), name)(*positional, **named)

    answers = inspect.signature(MEMBERS[name]).return_annotation != "None"
    positional, named = _arguments(parameters, expected)
    getattr(letters, name).assert_called_once_with(*positional, **named)
    assert origin.rejected.call_args_list == ([call(given["rows"])] if "rows" in given else [])
    assert answer is (getattr(letters, name).return_value if answers else None)


def test_dead_letters_are_staged_with_all_that_the_batch_holds_but_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.Observation", lambda: SimpleNamespace(get={"rows": 9}))  # there is no session
    monkeypatch.setattr("pyspark.sql.functions.count", Mock())
    monkeypatch.setattr("pyspark.sql.functions.lit", Mock())
    letters, origin, rows = Mock(spec_set=list(MEMBERS)), Mock(), Mock()
    letters.stage.return_value = Staged(Handle(1, {}), 2, changes={"a": 1}, digest="x64:0000000000000001")
    batch: Batch[Any] = Batch(
        attempt=ATTEMPT,
        rows=rows,
        offsets="digest",
        state={"000000000006 ": {"at": 1.0}},
        earlier=(Handle(1, {"clock": 1.0}),),
        watermark=17.0,
    )
    assert all(getattr(batch, f.name) not in (f.default, _default(f)) for f in fields(batch))

    staged = DeadLetters(origin, letters).stage(batch)

    ((passed,), _) = letters.stage.call_args
    assert passed == replace(batch, rows=origin.rejected.return_value)
    assert passed.attempt is ATTEMPT
    assert passed.scratch == "/checkpoint/epochal-staged"
    assert staged == replace(letters.stage.return_value, seen=9)


def test_dead_letters_without_a_folder_are_staged_and_removed_in_the_streams_own(tmp_path: Path) -> None:
    sink = wrapped(CassandraSink("shop.bad", name="bad"))
    attempt = replace(ATTEMPT, after=None, scratch=str(tmp_path))
    (tmp_path / "bad" / attempt.lineage / attempt.key / "data").mkdir(parents=True)

    (left,) = sink.leftovers(attempt.lineage, str(tmp_path))
    assert (left.key, left.scratch) == (attempt.key, str(tmp_path))
    sink.abort(left, None)
    assert sink.leftovers(attempt.lineage, str(tmp_path)) == []


@pytest.mark.parametrize("name", ["describe", "claim"])
def test_what_a_command_asks_of_dead_letters_without_a_frame_has_none_for_their_sink(name: str) -> None:
    letters, origin = Mock(spec_set=list(MEMBERS)), Mock()
    dead = DeadLetters(origin, letters)
    getattr(dead, name)(*([Mock()] if name == "claim" else []), **({"version": 3} if name == "claim" else {}))

    (passed,) = getattr(letters, name).call_args_list
    assert None in (*passed.args, *passed.kwargs.values())
    assert origin.rejected.call_count == 0


def _arguments(parameters: list[inspect.Parameter], given: dict[str, object]) -> tuple[list[object], dict[str, object]]:
    """As they are passed: by position, but those that can only be named."""
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return [one for name, one in given.items() if name not in named], {name: given[name] for name in named}


def _default(field: Any) -> Any:
    return MISSING if field.default_factory is MISSING else field.default_factory()
