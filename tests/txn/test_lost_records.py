"""A journal that has lost records: it is found, or it harms nothing. Every record, and every set that goes together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from epochal.txn import guard, view
from epochal.txn.batches import Batches
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import CommitFailed, DataLost, EpochalError, JournalCorrupt
from epochal.txn.records import epoch_of_name
from tests.txn.keeping import Keeping
from tests.txn.memory import MemoryFiles
from tests.txn.stream import Rows, Stream

EPOCHS = 14
JOURNAL = "checkpoint/epochal/1"


def written(*, rolls: bool = True) -> Stream:
    """Three starts, rolls between epochs, a snapshot, something open, and an epoch that is prepared and in doubt."""
    stream = Stream()
    for start in range(3):
        driver = coordinator(stream)
        driver.begin()
        for epoch in range(4 * start, 4 * start + 4):
            stream.run(driver, epoch)
            if rolls and epoch % 4 == 2:
                driver.roll(every=True)
        if start == 1:
            driver.journal.compact(driver.journal.read(), retain=3, slack=0)
    stream.plan(12)
    driver.run(12, [12])
    return stream


def coordinator(stream: Stream) -> Coordinator[Rows]:
    return stream.coordinator(Keeping("sink", files=stream.files), retain=20)


def without(stream: Stream, lost: frozenset[str]) -> Stream:
    content = {path: data for path, data in stream.files.content.items() if path.rpartition("/")[2] not in lost}
    files = MemoryFiles()
    files.content.update(content)
    return Stream(files=files)


def records(stream: Stream) -> list[str]:
    return list(stream.files.names(JOURNAL))


def losses(*, rolls: bool = True) -> Iterator[frozenset[str]]:
    names = records(written(rolls=rolls))
    yield from (frozenset({name}) for name in names)
    for epoch in sorted({e for name in names if (e := epoch_of_name(name)) is not None}):
        yield frozenset(name for name in names if epoch_of_name(name) == epoch)
    yield frozenset(name for name in names if name.endswith(".done.json"))


def go_on(stream: Stream) -> list[int]:
    """Start again, run to the end and publish all that is open: how often each epoch's row is to be seen."""
    driver = coordinator(stream)
    driver.begin()
    for epoch in range(stream.committed() + 1, EPOCHS):
        stream.run(driver, epoch)
    driver.settle()
    driver.roll(every=True)
    seen = Counter(Keeping("sink", files=stream.files).rows())
    return [seen[epoch] for epoch in range(EPOCHS)]


def test_a_whole_journal_goes_on() -> None:
    assert go_on(written()) == [1] * EPOCHS


@pytest.mark.parametrize("lost", list(losses()), ids=lambda lost: " ".join(sorted(lost))[:60])
def test_a_record_that_is_lost_is_found_or_harms_nothing(lost: frozenset[str]) -> None:
    stream = without(written(), lost)

    try:
        seen = go_on(stream)
    except EpochalError as fault:
        print(f"{type(fault).__name__}: {fault}")
    else:
        assert seen == [1] * EPOCHS


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        (r"s\d+.json", "epoch 0 has no record, but epoch 12 has"),
        (r"e0+9\..*", "epoch 9 has no record, but epoch 12 has"),
        (r"e0+9\.g.*", "epoch 9 was decided for generation 3, whose PREPARED record is missing"),
        (r"e0+9\.d.*", "the decision about epoch 9 is missing"),
        (r"g000003.json", "generation 3 has left records, but its start is missing"),
        (r"g000002.json", "the start of generation 2 is missing"),
        (r"r000003.000001.json", "1 rolls followed epoch 10, but only 0 are there"),
    ],
)
def test_the_error_names_what_is_missing(lost: str, says: str) -> None:
    names = frozenset(name for name in records(written()) if re.fullmatch(lost, name))
    assert names

    with pytest.raises(JournalCorrupt, match=says):
        without(written(), names).journal().read()


@pytest.mark.parametrize("rule", ["_check_generations", "_check_epochs"])
def test_without_a_rule_rows_are_lost(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, rule, lambda _: None)
    monkeypatch.setattr(guard, "why_not_ours", lambda *_: None)  # the stores would notice a lost start too
    monkeypatch.setattr(Batches, "_is_own", lambda *_: True)  # and so would a driver with the same number
    gone = []
    for lost in losses(rolls=False):
        try:
            if go_on(without(written(rolls=False), lost)) != [1] * EPOCHS:
                gone.append(lost)
        except DataLost:
            gone.append(lost)
        except (EpochalError, CommitFailed, OSError):
            continue

    assert gone
