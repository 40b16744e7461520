"""What an audit of a Cassandra table proves: that the ledger has the last epoch. No server: the ledger is given."""

from __future__ import annotations

import pytest

from epochal import CassandraSink
from epochal.sinks.cassandra.ledger import Ledger
from epochal.sinks.cassandra.ledger_state import LedgerState, StreamState
from epochal.txn.audit import AuditVerdict, Expected, Scope, StoreReport
from epochal.txn.audit_comparison import compare_with_store
from epochal.txn.row_digests import RowDigest

GIVEN = Expected(since=0, epochs={0: RowDigest(3), 1: RowDigest(3)}, through=1)


def audit(monkeypatch: pytest.MonkeyPatch, last: int) -> StoreReport:
    monkeypatch.setattr(Ledger, "read", lambda self: LedgerState({"1f0c9a2e": StreamState("1f0c9a2e", epoch=last)}))
    return CassandraSink("shop.orders").audit(Scope(lineage="1f0c9a2e", expected=GIVEN))


def test_a_ledger_that_has_the_last_epoch_is_all_that_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = compare_with_store(GIVEN, audit(monkeypatch, 1))

    assert (answer.verdict, answer.differences) == (AuditVerdict.NOT_PROVABLE, ())
    assert "cannot be counted" in answer.unproven[0]


@pytest.mark.parametrize(("last", "said"), [(0, "is 0"), (-1, "is none")])
def test_a_ledger_that_lacks_the_last_epoch_differs(monkeypatch: pytest.MonkeyPatch, last: int, said: str) -> None:
    (difference,) = compare_with_store(GIVEN, audit(monkeypatch, last)).differences

    assert difference.epoch == 1
    assert difference.what.endswith(said)


def test_an_epoch_that_is_not_done_yet_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    found = audit(monkeypatch, 2)

    assert found.differences == ()
    assert "it is in progress" in found.unproven[-1]
