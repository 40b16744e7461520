"""Is what the stores hold exactly what was given to them? Pure: no I/O and no clock.

*expected*: what the journal recorded while epochs were staged, epoch by epoch where the records are kept, in total
where they are folded away. *found*: what a sink reads in its store. `compare_with_store` compares the two:

============  =========================================================================================
verdict       when
============  =========================================================================================
EXACT         every row is accounted for, epoch by epoch or in total
DIFFERS       something contradicts: too many, too few or other rows, an epoch twice, a file unlisted
NOT_PROVABLE  nothing contradicts, but something could not be looked at; each reason is told
============  =========================================================================================

Row counts are compared always, digests where both sides have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from epochal.txn.model import NO_EPOCH, Json
from epochal.txn.row_digests import RowDigest, is_digest, lines_of, total
from epochal.txn.view import View


class Verdict(Enum):
    """What an audit says of one sink."""

    EXACT = "exact"
    DIFFERS = "differs"
    NOT_PROVABLE = "not provable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a sink was given in one place, as far as the journal goes back."""

    since: int  # the first epoch that was counted
    epochs: Mapping[int, RowDigest]  # one by one, where records are kept
    folded: RowDigest = field(default_factory=RowDigest)
    folded_epochs: int = 0
    folded_through: int = NO_EPOCH
    through: int = NO_EPOCH  # the last epoch that is done
    adopted: int = NO_EPOCH  # up to here the store had epochs that it was not given again
    uncertain: bool = False  # some of what is folded may have gone to another place

    @property
    def total(self) -> RowDigest:
        return self.folded + total(self.epochs.values())

    @property
    def count(self) -> int:
        return self.folded_epochs + len(self.epochs)

    @property
    def last(self) -> int:
        """The last epoch that it was given."""
        return max(self.epochs, default=self.folded_through if self.folded_epochs else NO_EPOCH)


def expected(view: View, sink: str, place: str, *, alone: bool) -> Expected:
    """What the journal says of a sink in one place; `alone` if the sink never had another."""
    folded = view.totals(through=view.floor)
    spans = [span for span in folded.sinks.get(sink, ()) if span.target == place or (alone and not span.target)]
    unknown = [span for span in folded.sinks.get(sink, ()) if not span.target and not alone]
    given: dict[int, RowDigest] = {}
    for epoch in sorted(view.done):
        winner = view.winner(epoch) if epoch > view.floor else None
        staged = winner.sinks.get(sink) if winner is not None else None
        where = view.target(sink, view.decided[epoch]) if staged is not None else None
        if staged is not None and (where == place or (alone and not where)):
            given[epoch] = RowDigest(staged.rows, staged.digest)
    return Expected(
        since=folded.since,
        epochs=given,
        folded=total(span.given for span in spans),
        folded_epochs=sum(span.epochs for span in spans),
        folded_through=view.floor,
        through=view.done_through,
        adopted=view.latest.adopted.get(sink, NO_EPOCH) if view.latest is not None else NO_EPOCH,
        uncertain=bool(unknown),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a sink is asked to look at."""

    lineage: str
    expected: Expected
    state: Mapping[str, Json] = field(default_factory=dict)  # the sink's state in the journal
    fast: bool = False  # without reading rows
    progress: Callable[[str], None] = lambda _: None  # for people


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that contradicts, and where."""

    what: str
    epoch: int | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a sink has read in its store.

    `landed` are the epochs that the store says it has, complete from `seen_from` on; None if it does not say.
    `recorded` is what the store itself remembers of what an epoch was given, `epochs` what is there now, where that can
    be told apart, and `total` all of it together. If each epoch takes the place of those before it, `only_from` is the
    first whose rows should be there.
    """

    landed: frozenset[int] | None = None
    seen_from: int = 0
    recorded: Mapping[int, RowDigest] = field(default_factory=dict)
    epochs: Mapping[int, RowDigest] = field(default_factory=dict)
    total: RowDigest | None = None
    only_from: int | None = None
    differences: tuple[Difference, ...] = ()
    unproven: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()  # what could not be told apart, and matters only if the total is not the one expected
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The answer for one sink."""

    verdict: Verdict
    epochs: int
    wanted: RowDigest
    found: RowDigest | None
    digests: str  # which of them were compared
    differences: tuple[Difference, ...] = ()
    unproven: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compare_with_store(wanted: Expected, found: Found) -> Judgement:
    """Compare what was given with what is there."""
    differences = [*found.differences, *_landed(wanted, found), *_recorded(wanted, found)]
    unproven = [*found.unproven, *_unknown(wanted, found)]
    notes = list(found.notes)
    if found.only_from is not None:
        wanted = _only(wanted, found.only_from)
        found = replace(found, landed=frozenset(e for e in found.landed or () if e >= found.only_from))
    asked = _asked(wanted, found)
    whole = _whole(wanted, found, asked)
    in_total = compare(whole, found.total) if whole is not None and found.total is not None else None
    by_epoch = [
        Difference(what, epoch)
        for epoch, there in sorted(found.epochs.items())
        if epoch in asked and (what := compare(asked[epoch], there))
    ]
    folded = _folded(wanted, found, asked)
    if folded:
        by_epoch.append(Difference(f"epochs {wanted.since} to {wanted.folded_through}: {folded}"))
    certain = whole is not None and _both_digests(whole, found.total)
    if in_total == "" and by_epoch and (certain or _flows(asked, found.epochs)):
        notes.append("some files hold rows of several epochs: compared in total")
        by_epoch = []
    differences += by_epoch
    if in_total and not by_epoch:
        differences.append(Difference(f"in total {in_total}"))
    # An epoch without rows leaves nothing to look at.
    unread = [epoch for epoch, tally in sorted(asked.items()) if tally.rows and epoch not in found.epochs]
    proven = in_total == "" or (not unread and (folded == "" or len(asked) >= wanted.count))
    if not proven:
        unproven += found.untold
    if not (proven or unproven or differences):
        unproven.append(_why(unread, wanted))
    verdict = Verdict.DIFFERS if differences else Verdict.EXACT if proven and not unproven else Verdict.NOT_PROVABLE
    return Judgement(
        verdict=verdict,
        epochs=max(wanted.count, len(asked)),
        wanted=whole if whole is not None else wanted.total,
        found=_there(found, asked, whole, in_total),
        digests=_digests(wanted, found, asked, whole),
        differences=tuple(differences),
        unproven=tuple(unproven),
        notes=tuple(notes),
    )


def compare(wanted: RowDigest, there: RowDigest) -> str:
    """What is wrong, or nothing.

    >>> compare(RowDigest(3), RowDigest(4))
    '3 rows were staged and 4 are there'
    """
    lines, found = lines_of(wanted.digest), lines_of(there.digest)
    if lines is not None and found is not None:  # a row may have several: where lines are counted, rows are not
        if lines != found:
            return f"{_were(lines, 'line')} staged and {found} {_are(found)} there"
    elif wanted.rows != there.rows:
        return f"{_were(wanted.rows, 'row')} staged and {there.rows} {_are(there.rows)} there"
    if _both_digests(wanted, there) and wanted.digest != there.digest and not (wanted.is_nothing and there.is_nothing):
        return f"{wanted.rows} rows are there, but not those that were staged"
    return ""


def _landed(wanted: Expected, found: Found) -> list[Difference]:
    """Epochs that are missing, and some that nobody gave."""
    if found.landed is None:
        return []
    missing = [epoch for epoch in sorted(wanted.epochs) if epoch >= found.seen_from and epoch not in found.landed]
    differences = [Difference("is done, and the store does not have it", epoch) for epoch in missing]
    never = [e for e in sorted(found.landed) if wanted.folded_through < e <= wanted.through and e not in wanted.epochs]
    differences += [
        Difference("is in the store, and the journal never gave it", epoch)
        for epoch in never
        if epoch >= wanted.since and epoch > wanted.adopted
    ]
    folded = [e for e in found.landed if wanted.since <= e <= wanted.folded_through and e > wanted.adopted]
    seen = found.seen_from <= wanted.since and wanted.adopted < wanted.since and not wanted.uncertain
    if seen and len(folded) != wanted.folded_epochs:
        differences.append(
            Difference(
                f"of epochs {wanted.since} to {wanted.folded_through} the store has {len(folded)}, and it was given "
                f"{wanted.folded_epochs}"
            )
        )
    return differences


def _recorded(wanted: Expected, found: Found) -> list[Difference]:
    """Where the store's own record of an epoch is not the journal's."""
    differences = []
    for epoch, tally in sorted(wanted.epochs.items()):
        if epoch in found.recorded and (found.recorded[epoch].rows, found.recorded[epoch].digest) != (
            tally.rows,
            tally.digest,
        ):
            differences.append(Difference("the store's own record of it is not what the journal has", epoch))
    folded = {e: t for e, t in found.recorded.items() if wanted.since <= e <= wanted.folded_through}
    if len(folded) == wanted.folded_epochs and folded and not wanted.uncertain:
        what = compare(wanted.folded, total(folded.values()))
        if what:
            span = f"epochs {wanted.since} to {wanted.folded_through}"
            differences.append(Difference(f"{span}, folded in the journal, are otherwise in the store's own records"))
    return differences


def _unknown(wanted: Expected, found: Found) -> list[str]:
    """What the journal cannot tell any more."""
    reasons = []
    before = [e for e in found.landed or () if e < wanted.since and e not in found.recorded]
    if before:
        reasons.append(
            f"epochs up to {max(before)}: staged before the journal counted rows, or folded away by an older epochal"
        )
    adopted = [e for e in found.landed or () if wanted.since <= e <= wanted.adopted and e not in found.recorded]
    if adopted:
        reasons.append(f"epochs up to {wanted.adopted}: taken as they were (adopt=), the journal did not give them")
    if wanted.uncertain:
        reasons.append("some epochs that are folded away may have gone to another place of this sink")
    if found.landed is not None and wanted.epochs and found.seen_from > min(wanted.epochs):
        reasons.append(f"epochs up to {found.seen_from - 1}: the store's own log does not go back to them")
    return reasons


def _asked(wanted: Expected, found: Found) -> dict[int, RowDigest]:
    """What each epoch was given: by the journal, or by what the store remembers of epochs before that."""
    asked = {epoch: tally for epoch, tally in found.recorded.items() if epoch <= wanted.through}
    return {**asked, **wanted.epochs}


def _whole(wanted: Expected, found: Found, asked: Mapping[int, RowDigest]) -> RowDigest | None:
    """What all epochs in the store were given together; None if that is not known of some."""
    if set(found.landed or ()) <= set(asked) and len(asked) >= wanted.count:
        return total(asked.values())
    before = [epoch for epoch in found.landed or () if epoch < wanted.since or epoch <= wanted.adopted]
    return None if before or wanted.uncertain else wanted.total


def _only(wanted: Expected, first: int) -> Expected:
    """Without the epochs whose place others have taken."""
    epochs = {epoch: tally for epoch, tally in wanted.epochs.items() if epoch >= first}
    return replace(wanted, since=first, epochs=epochs, folded=RowDigest(), folded_epochs=0, folded_through=first - 1)


def _flows(asked: Mapping[int, RowDigest], found: Mapping[int, RowDigest]) -> bool:
    """Whether rows that an epoch lacks may be in files of later ones, where parts stay open: never in earlier ones."""
    ahead = 0
    for epoch in sorted(asked):
        ahead += asked[epoch].rows - found.get(epoch, RowDigest()).rows
        if ahead < 0:
            return False
    return set(found) <= set(asked)


def _folded(wanted: Expected, found: Found, asked: Mapping[int, RowDigest]) -> str | None:
    """Epochs whose records are folded away, together; None if there is nothing to compare them with."""
    there = {e: t for e, t in found.epochs.items() if wanted.since <= e <= wanted.folded_through and e not in asked}
    if not there or len(there) != wanted.folded_epochs:
        return None
    return compare(wanted.folded, total(there.values()))


def _why(unread: list[int], wanted: Expected) -> str:
    if unread:
        return f"epochs {min(unread)} to {max(unread)}: the store cannot tell their rows from others"
    return f"epochs {wanted.since} to {wanted.folded_through}: folded in the journal, and not told apart in the store"


def _both_digests(one: RowDigest, another: RowDigest | None) -> bool:
    return another is not None and is_digest(one.digest) and is_digest(another.digest)


def _there(
    found: Found, asked: Mapping[int, RowDigest], whole: RowDigest | None, in_total: str | None
) -> RowDigest | None:
    """What was found, in rows: as many as were staged where lines were compared and are the same."""
    if found.total is not None:
        return RowDigest(whole.rows, found.total.digest) if in_total == "" and whole is not None else found.total
    if not found.epochs:
        return None
    good = {
        e: RowDigest(asked[e].rows, t.digest)
        for e, t in found.epochs.items()
        if e in asked and not compare(asked[e], t)
    }
    return total({**found.epochs, **good}.values())


def _digests(wanted: Expected, found: Found, asked: Mapping[int, RowDigest], whole: RowDigest | None) -> str:
    """In a word, which digests were compared and with what result."""
    if whole is not None and found.total is not None and _both_digests(whole, found.total):
        return "equal" if whole.digest == found.total.digest else "differs"
    compared = [e for e, there in found.epochs.items() if e in asked and _both_digests(asked[e], there)]
    if any(asked[epoch].digest != found.epochs[epoch].digest for epoch in compared):
        return "differs"
    with_rows = {epoch for epoch, tally in asked.items() if tally.rows}
    folded = 0 if is_digest(wanted.folded.digest) else max(0, wanted.count - len(asked))
    if compared and with_rows <= set(compared) and not folded:
        return "equal"
    if compared:
        return f"equal in {len(compared)} of {len(with_rows) + folded} epochs"
    return "not read" if any(tally.digest for tally in asked.values()) else "not taken"


def _were(count: int, noun: str) -> str:
    return f"{count} {noun} was" if count == 1 else f"{count} {noun}s were"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
