from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.audit import expected_rows
from epochal.txn.journal import Journal
from epochal.txn.model import Description, Handle, Staged
from epochal.txn.records import Decided, Done, GenerationStarted, Prepared, Record, Snapshot, decode, encode
from epochal.txn.row_digests import RowDigest, digest_text, total
from epochal.txn.totals import EpochSpan
from epochal.txn.view import KEEP_GENERATIONS, fold
from tests.txn.memory import MemoryFiles

HERE, THERE = "/here", "/there"
maybe_digests = st.one_of(st.none(), st.integers(0, 2**64 - 1).map(digest_text))
epochs_of_rows = st.lists(st.tuples(st.integers(0, 9), maybe_digests), min_size=1, max_size=12)


def started(generation: int = 1, target: str = HERE, base: int = 0) -> GenerationStarted:
    return GenerationStarted(
        generation, "query", base=base, sinks={"sink": Description({"type": "files", "target": target})}
    )


def done(epoch: int, rows: int, digest: str | None = None, generation: int = 1, sink: str = "sink") -> list[Record]:
    part = Staged(Handle(1, {}), rows, digest=digest)
    return [Prepared(epoch, generation, "", {sink: part}), Decided(epoch, generation), Done(epoch, generation)]


def journal(records: Sequence[Record]) -> Journal:
    files = MemoryFiles()
    for record in records:
        files.content[f"journal/{record.name}"] = encode(record)
    return Journal(files, "journal", clock=lambda: 0.0)


@given(epochs_of_rows, st.lists(st.integers(0, 12)))
def test_however_often_a_journal_is_folded_the_totals_are_the_sum_of_its_epochs(
    staged: list[tuple[int, str | None]], folds: list[int]
) -> None:
    made = journal([started(), *(r for epoch, (rows, digest) in enumerate(staged) for r in done(epoch, rows, digest))])
    for retain in sorted(folds, reverse=True):
        made.compact(made.read(), retain=retain, slack=0)

    wanted = expected_rows(made.read(), "sink", HERE, alone=True)

    assert wanted.since == 0
    assert wanted.count == len(staged)
    assert wanted.total == total(RowDigest(rows, digest) for rows, digest in staged)


def test_two_drivers_that_fold_at_different_times_come_to_the_same_totals() -> None:
    records = [started(), *(r for epoch in range(6) for r in done(epoch, epoch, digest_text(epoch)))]
    early, late = journal(records), journal(records)
    early.compact(early.read(), retain=4, slack=0)
    early.compact(early.read(), retain=1, slack=0)
    late.compact(late.read(), retain=1, slack=0)

    assert early.read().folded_totals == late.read().folded_totals is not None


def test_a_snapshot_of_an_older_version_leaves_rows_unknown_up_to_its_epoch() -> None:
    view = fold([started(), Snapshot(4), *done(5, 3), *done(6, 3)])

    assert view.totals(through=6).since == 5
    assert expected_rows(view, "sink", HERE, alone=True).since == 5


def test_a_sink_that_moved_has_totals_for_each_place() -> None:
    records = [started(), *done(0, 1), *done(1, 2), started(2, THERE), *done(2, 4, generation=2)]

    assert fold(records).totals(through=2).sinks["sink"] == (
        EpochSpan(HERE, 0, 1, 2, RowDigest(3)),
        EpochSpan(THERE, 2, 2, 1, RowDigest(4)),
    )
    assert expected_rows(fold(records), "sink", HERE, alone=False).total == RowDigest(3)
    assert expected_rows(fold(records), "sink", THERE, alone=False).total == RowDigest(4)


def test_epochs_of_a_start_that_is_gone_belong_to_the_only_place_or_are_uncertain() -> None:
    later = [started(number) for number in range(2, KEEP_GENERATIONS + 2)]
    answer = fold([*later, *done(0, 7, generation=1)]).totals(through=0)
    view = fold([*later, Snapshot(0, totals=answer)])

    assert expected_rows(view, "sink", HERE, alone=True).total == RowDigest(7)
    assert expected_rows(view, "sink", HERE, alone=False).uncertain


def test_an_epoch_that_is_decided_and_not_done_is_not_expected() -> None:
    view = fold([started(), *done(0, 1), *done(1, 2)[:2]])

    assert expected_rows(view, "sink", HERE, alone=True).total == RowDigest(1)


def test_totals_come_back_from_disk_as_they_were() -> None:
    view = fold([started(), *done(0, 1, digest_text(7)), *done(1, 0), *done(2, 5, sink="other")])
    snapshot = Snapshot(2, totals=view.totals(through=2))
    again = fold([started(), decode("path", snapshot.name, encode(snapshot))])

    assert again.totals(through=2) == view.totals(through=2)
