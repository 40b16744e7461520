"""Which sinks a savepoint can be restored beside."""

from __future__ import annotations

import pytest

from epochal.spark_plugins.moving.manifest import Manifest
from epochal.spark_plugins.moving.planning import JournalSource, plan
from epochal.txn.errors import Rewound
from epochal.txn.model import Memory
from epochal.txn.records import Decided, Done, GenerationStarted, Prepared, Record
from epochal.txn.view import View, fold

QUERY = "7c8d2a4e-aaaa-bbbb"
SAVEPOINT = Manifest(
    name="s",
    query=QUERY,
    lineage=QUERY,
    epoch=0,
    generation=1,
    checkpoint="/checkpoint",
    journal="/checkpoint/epochal",
    at="2026-01-01T00:00:00Z",
)
BEGUN = {"topic": Memory("kafka:b/orders", enrolled=True, last=0, begun=1)}


def journal(epochs: int, *, decided: int) -> View:
    """A stream that has done so many epochs, and decided some more."""
    records: list[Record] = [GenerationStarted(1, QUERY, 0)]
    for epoch in range(epochs + decided):
        records += [Prepared(epoch, 1, "v2:a:=:b", {}), Decided(epoch, 1)]
    return fold([*records, *(Done(epoch, 1) for epoch in range(epochs))])


def test_half_an_epoch_beyond_the_savepoint_needs_the_original() -> None:
    with pytest.raises(Rewound, match=r"some rows of epoch 1 of this stream are there.*`epochal recover`"):
        plan(SAVEPOINT, BEGUN, journal(1, decided=0), None, lambda: None)
    found = plan(SAVEPOINT, BEGUN, journal(1, decided=0), journal(1, decided=1), lambda: None)

    assert (found.journal, found.through) == (JournalSource.ORIGINAL, 0)
