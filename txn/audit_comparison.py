"""The comparison of an audit: what was staged, by the journal, and what a sink has read in its store. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from epochal.txn.audit import ROWS_NOT_READ, AuditResult, AuditVerdict, Difference, Expected, StoreReport
from epochal.txn.row_digests import RowDigest, is_digest, lines_of, total


def compare_with_store(expected: Expected, report: StoreReport) -> AuditResult:
    """Compare what was staged with what is in the store."""
    differences = [*report.differences, *_epoch_differences(expected, report), *_record_differences(expected, report)]
    unproven = [*report.unproven, *_unknown_epochs(expected, report)]
    notes = list(report.notes)
    if report.only_from is not None:
        expected = _from_epoch(expected, report.only_from)
        present = frozenset(e for e in report.epochs_present or () if e >= report.only_from)
        report = replace(report, epochs_present=present)
    staged = _staged_by_epoch(expected, report)
    staged_total = _staged_total(expected, report, staged)
    in_total = (
        row_difference(staged_total, report.total) if staged_total is not None and report.total is not None else None
    )
    by_epoch = [
        Difference(what, epoch)
        for epoch, there in sorted(report.epochs.items())
        if epoch in staged and (what := row_difference(staged[epoch], there))
    ]
    folded = _folded(expected, report, staged)
    if folded:
        by_epoch.append(Difference(f"epochs {expected.since} to {expected.folded_through}: {folded}"))
    certain = staged_total is not None and _both_digests(staged_total, report.total)
    if in_total == "" and by_epoch and (certain or _may_be_in_later_files(staged, report.epochs)):
        notes.append("some files hold rows of several epochs: compared in total")
        by_epoch = []
    differences += by_epoch
    if in_total and not by_epoch:
        differences.append(Difference(f"in total {in_total}"))
    # An epoch without rows leaves nothing to read.
    unread = [epoch for epoch, rows in sorted(staged.items()) if rows.rows and epoch not in report.epochs]
    proven = in_total == "" or (not unread and (folded == "" or len(staged) >= expected.count))
    if not proven:
        unproven += report.ambiguous
    if not (proven or unproven or differences):
        unproven.append(_why_not_provable(unread, expected))
    return AuditResult(
        verdict=_verdict(differences, unproven, proven=proven),
        epochs=max(expected.count, len(staged)),
        expected=staged_total if staged_total is not None else expected.total,
        found=_rows_found(report, staged, staged_total, in_total),
        digests=_digests(expected, report, staged, staged_total),
        differences=tuple(differences),
        unproven=tuple(unproven),
        notes=tuple(notes),
    )


def _verdict(differences: Sequence[Difference], unproven: Sequence[str], *, proven: bool) -> AuditVerdict:
    if differences:
        return AuditVerdict.DIFFERS
    if proven and not unproven:
        return AuditVerdict.EXACT
    return AuditVerdict.CONSISTENT if set(unproven) == {ROWS_NOT_READ} else AuditVerdict.NOT_PROVABLE


def row_difference(expected: RowDigest, there: RowDigest) -> str:
    """What is different, as a text; empty if nothing is.

    >>> row_difference(RowDigest(3), RowDigest(4))
    '3 rows were staged and 4 are there'
    """
    lines, found = lines_of(expected.digest), lines_of(there.digest)
    if lines is not None and found is not None:  # a row may have several lines, so rows are not compared
        if lines != found:
            return f"{_were(lines, 'line')} staged and {found} {_are(found)} there"
    elif expected.rows != there.rows:
        return f"{_were(expected.rows, 'row')} staged and {there.rows} {_are(there.rows)} there"
    if (
        _both_digests(expected, there)
        and expected.digest != there.digest
        and not (expected.is_nothing and there.is_nothing)
    ):
        return f"{expected.rows} rows are there, but not those that were staged"
    return ""


def _epoch_differences(expected: Expected, report: StoreReport) -> list[Difference]:
    """Epochs that are missing in the store, and epochs that were never staged."""
    if report.epochs_present is None:
        return []
    missing = [
        epoch
        for epoch in sorted(expected.epochs)
        if epoch >= report.complete_from and epoch not in report.epochs_present
    ]
    differences = [Difference("is done, but the store does not have it", epoch) for epoch in missing]
    unknown = [
        e
        for e in sorted(report.epochs_present)
        if expected.folded_through < e <= expected.through and e not in expected.epochs
    ]
    differences += [
        Difference("is in the store, but the journal has no such epoch", epoch)
        for epoch in unknown
        if epoch >= expected.since and epoch > expected.adopted
    ]
    folded = [
        e for e in report.epochs_present if expected.since <= e <= expected.folded_through and e > expected.adopted
    ]
    comparable = report.complete_from <= expected.since and expected.adopted < expected.since and not expected.uncertain
    if comparable and len(folded) != expected.folded_epochs:
        differences.append(
            Difference(
                f"of epochs {expected.since} to {expected.folded_through} the store has {len(folded)}, but "
                f"{expected.folded_epochs} were staged"
            )
        )
    return differences


def _record_differences(expected: Expected, report: StoreReport) -> list[Difference]:
    """Epochs whose record in the store differs from the journal's."""
    differences = []
    for epoch, rows in sorted(expected.epochs.items()):
        if report.recorded.get(epoch, rows) != rows:
            differences.append(Difference("the store's own record of it differs from the journal", epoch))
    folded = {e: t for e, t in report.recorded.items() if expected.since <= e <= expected.folded_through}
    if len(folded) == expected.folded_epochs and folded and not expected.uncertain:
        what = row_difference(expected.folded, total(folded.values()))
        if what:
            span = f"epochs {expected.since} to {expected.folded_through}"
            differences.append(Difference(f"{span}, folded in the journal, differ in the store's own records"))
    return differences


def _unknown_epochs(expected: Expected, report: StoreReport) -> list[str]:
    """Why some epochs cannot be compared: journal or store no longer has a record of them."""
    reasons = []
    before = [e for e in report.epochs_present or () if e < expected.since and e not in report.recorded]
    if before:
        reasons.append(
            f"epochs up to {max(before)}: staged before the journal counted rows, or folded away by an older epochal"
        )
    adopted = [
        e for e in report.epochs_present or () if expected.since <= e <= expected.adopted and e not in report.recorded
    ]
    if adopted:
        reasons.append(
            f"epochs up to {expected.adopted}: taken as they were (adopt=), so the journal did not count their rows"
        )
    if expected.uncertain:
        reasons.append("some epochs that are folded away may have gone to another target of this sink")
    if report.epochs_present is not None and expected.epochs and report.complete_from > min(expected.epochs):
        reasons.append(f"epochs up to {report.complete_from - 1}: the store's own log does not go back to them")
    return reasons


def _staged_by_epoch(expected: Expected, report: StoreReport) -> dict[int, RowDigest]:
    """The rows staged in each epoch, by the journal; for epochs before that, by the store's own record."""
    staged = {epoch: rows for epoch, rows in report.recorded.items() if epoch <= expected.through}
    return {**staged, **expected.epochs}


def _staged_total(expected: Expected, report: StoreReport, staged: Mapping[int, RowDigest]) -> RowDigest | None:
    """The rows staged in all epochs of the store; None if the rows of some epoch are unknown."""
    if set(report.epochs_present or ()) <= set(staged) and len(staged) >= expected.count:
        return total(staged.values())
    before = [epoch for epoch in report.epochs_present or () if epoch < expected.since or epoch <= expected.adopted]
    return None if before or expected.uncertain else expected.total


def _from_epoch(expected: Expected, first: int) -> Expected:
    """Without the epochs before `first`, which later ones replaced."""
    epochs = {epoch: rows for epoch, rows in expected.epochs.items() if epoch >= first}
    return replace(expected, since=first, epochs=epochs, folded=RowDigest(), folded_epochs=0, folded_through=first - 1)


def _may_be_in_later_files(staged: Mapping[int, RowDigest], found: Mapping[int, RowDigest]) -> bool:
    """Whether rows missing in an epoch may be in files of later epochs, as with open parts. Never in earlier ones."""
    ahead = 0
    for epoch in sorted(staged):
        ahead += staged[epoch].rows - found.get(epoch, RowDigest()).rows
        if ahead < 0:
            return False
    return set(found) <= set(staged)


def _folded(expected: Expected, report: StoreReport, staged: Mapping[int, RowDigest]) -> str | None:
    """The difference in total of the epochs whose records are folded away; None if they cannot be compared."""
    there = {
        e: t for e, t in report.epochs.items() if expected.since <= e <= expected.folded_through and e not in staged
    }
    if not there or len(there) != expected.folded_epochs:
        return None
    return row_difference(expected.folded, total(there.values()))


def _why_not_provable(unread: list[int], expected: Expected) -> str:
    if unread:
        return f"epochs {min(unread)} to {max(unread)}: the store cannot distinguish their rows from others"
    folded = f"epochs {expected.since} to {expected.folded_through}"
    return f"{folded}: folded in the journal, and not distinguished in the store"


def _both_digests(one: RowDigest, another: RowDigest | None) -> bool:
    return another is not None and is_digest(one.digest) and is_digest(another.digest)


def _rows_found(
    report: StoreReport, staged: Mapping[int, RowDigest], staged_total: RowDigest | None, in_total: str | None
) -> RowDigest | None:
    """What is in the store, in rows. If lines were compared and are equal, there are as many rows as were staged."""
    if report.total is not None and in_total == "" and staged_total is not None:
        return RowDigest(staged_total.rows, report.total.digest)
    if report.total is not None:
        return report.total
    if not report.epochs:
        return None
    good = {
        e: RowDigest(staged[e].rows, t.digest)
        for e, t in report.epochs.items()
        if e in staged and not row_difference(staged[e], t)
    }
    return total({**report.epochs, **good}.values())


def _digests(
    expected: Expected, report: StoreReport, staged: Mapping[int, RowDigest], staged_total: RowDigest | None
) -> str:
    """Which digests were compared, and the result, in a few words."""
    if staged_total is not None and report.total is not None and _both_digests(staged_total, report.total):
        return "equal" if staged_total.digest == report.total.digest else "differs"
    compared = [e for e, there in report.epochs.items() if e in staged and _both_digests(staged[e], there)]
    if any(staged[epoch].digest != report.epochs[epoch].digest for epoch in compared):
        return "differs"
    with_rows = {epoch for epoch, rows in staged.items() if rows.rows}
    folded = 0 if is_digest(expected.folded.digest) else max(0, expected.count - len(staged))
    if compared and with_rows <= set(compared) and not folded:
        return "equal"
    if compared:
        return f"equal in {len(compared)} of {len(with_rows) + folded} epochs"
    return "not read" if any(rows.digest for rows in staged.values()) else "not taken"


def _were(count: int, noun: str) -> str:
    return f"{count} {noun} was" if count == 1 else f"{count} {noun}s were"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
