"""The sink of dead letters is to the protocol what it was before: nothing that it can do is lost on the way."""

from __future__ import annotations

from typing import Any, cast

import pytest

from epochal import CassandraSink, DeltaSink, EpochWriter, Rolling, RollingFileSink
from epochal.testing import DirectoryParticipant
from epochal.txn.participant import Auditable, FollowsWatermark, KeepsState, StagesInCheckpoint

LETTERS = [
    RollingFileSink("bad", name="bad"),
    RollingFileSink("bad", name="bad", rolling=Rolling(max_rows=1)),
    DeltaSink("bad", name="bad"),
    CassandraSink("shop.bad", name="bad"),
    DirectoryParticipant("/bad", name="bad"),
]


def wrapped(letters: Any) -> Any:
    writer = EpochWriter(CassandraSink("shop.orders", dead_letters=letters))
    return writer.sinks[1]


@pytest.mark.parametrize("letters", LETTERS, ids=lambda sink: type(sink).__name__)
@pytest.mark.parametrize("protocol", [KeepsState, FollowsWatermark, StagesInCheckpoint, Auditable])
def test_dead_letters_have_the_protocols_of_their_sink_and_no_other(letters: Any, protocol: Any) -> None:
    assert isinstance(wrapped(letters), protocol) is isinstance(letters, protocol)


@pytest.mark.parametrize("letters", LETTERS, ids=lambda sink: type(sink).__name__)
def test_dead_letters_have_every_method_of_their_sink(letters: Any) -> None:
    methods = {name for name in dir(letters) if not name.startswith("_") and callable(getattr(letters, name))}

    assert methods <= set(dir(wrapped(letters)))
    assert wrapped(letters).name == "bad"


def test_what_reaches_dead_letters_reaches_their_sink() -> None:
    letters = CassandraSink("shop.bad", name="bad")
    cast("StagesInCheckpoint", wrapped(letters)).stage_in("file:/checkpoint/epochal-staged")

    assert letters.describe()["staging"] == "/checkpoint/epochal-staged/bad"
