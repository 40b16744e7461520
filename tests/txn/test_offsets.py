"""What two digests of offsets say about the rows of an epoch, and what the protocol does about it."""

from __future__ import annotations

import json
import logging

import pytest

from epochal.txn.batches import BatchOutcome
from epochal.txn.choices import Choices
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import OffsetsChanged, Rewound
from epochal.txn.guard import check_start
from epochal.txn.model import Json
from epochal.txn.offsets import Digest, Match, compare, why_not_provable
from epochal.txn.plan import choose_winner
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.view import fold
from tests.txn.stream import QUERY, TAG, Rows, Stream
from tests.txn.test_guard import journal, memory, observed

OLD = "ab12"


@pytest.mark.parametrize(
    ("recorded", "now", "match"),
    [
        ("v2:ab12:=:01", "v2:ab12:=:02", Match.SAME),
        ("v2:ab12:=:01", "v2:cd34:=:01", Match.DIFFERENT),
        ("v2:ab12:77:01", "v2:ab12:77:02", Match.SAME),
        ("v2:ab12:77:01", "v2:ab12:88:02", Match.DIFFERENT),
        ("v2:ab12:77:01", "v2:ab12:88:01", Match.DIFFERENT),
        ("v2:ab12:=.9c:01", "v2:ab12:=.9c:02", Match.SAME),
        ("v2:ab12:=.9c:01", "v2:ab12:=.9d:02", Match.DIFFERENT),
        ("v2:ab12:=:01", "v2:ab12:=.9d:02", Match.SAME),  # an older epochal did not record where it began
        ("v2:ab12:77.9c:01", "v2:ab12:77.9c:02", Match.SAME),
        ("v2:ab12:77.9c:01", "v2:ab12:88.9c:02", Match.DIFFERENT),
        ("v2:ab12:77:01", "v2:ab12:77.9c:02", Match.SAME),
        ("v2:ab12:-:01", "v2:ab12:=.9c:02", Match.UNPROVEN),
        (OLD, "v2:ab12:=.9c:02", Match.SAME),
        ("v2:ab12:-:01", "v2:ab12:-:01", Match.SAME),
        ("v2:ab12:-:01", "v2:ab12:-:02", Match.UNPROVEN),
        ("v2:ab12:77:01", "v2:ab12:-:02", Match.UNPROVEN),
        ("v2:ab12:77:01", "v2:ab12:-:01", Match.SAME),  # the source's log is gone, and Spark replays
        (OLD, "v2:ab12:=:02", Match.SAME),
        (OLD, "v2:ab12:77:02", Match.UNPROVEN),
        (OLD, "v2:ab12:-:02", Match.UNPROVEN),
        (OLD, "v2:cd34:=:02", Match.DIFFERENT),
        (OLD, OLD, Match.SAME),
        (OLD, "cd34", Match.DIFFERENT),
    ],
)
def test_two_digests_tell_the_same_rows_from_others(recorded: str, now: str, match: Match) -> None:
    assert compare(recorded, now) is match


@pytest.mark.parametrize("text", ["v2:ab12:=:01", "ab12", "v2:ab12", "v2:::", "offsets of 3"])
def test_a_digest_is_spelled_as_it_was_read(text: str) -> None:
    assert str(Digest.parse(text)) == text


@pytest.mark.parametrize(
    ("recorded", "now", "why"),
    [
        ("v2:ab12:=:01", None, None),
        ("v2:ab12:77:01", None, None),
        ("v2:ab12:-:01", "v2:cd34:=:01", "keeps no log"),
        (OLD, "v2:cd34:=:01", None),
        (OLD, "v2:cd34:=.9c:01", None),
        (OLD, "v2:cd34:77:01", "older epochal"),
        (OLD, None, "older epochal"),
        (None, "v2:cd34:=:01", "long ago"),
    ],
)
def test_what_cannot_be_proven_is_known_beforehand(recorded: str | None, now: str | None, why: str | None) -> None:
    found = why_not_provable(recorded, now)

    assert found == why or (found is not None and why is not None and why in found)


def test_an_attempt_that_is_proven_wins_over_a_later_one_that_is_not() -> None:
    attempts = [Prepared(0, 1, "v2:ab12:-:01", {}), Prepared(0, 2, "v2:ab12:-:02", {})]
    view = fold([GenerationStarted(1, QUERY, 0), GenerationStarted(2, QUERY, 0), *attempts])

    assert choose_winner(view, 0, "v2:ab12:-:01") == 1
    assert choose_winner(view, 0, "v2:ab12:-:03") == 2


def test_adopt_is_offered_only_where_it_can_be_proven() -> None:
    known = observed(journal(0), memory(2), committed=0)
    socket = observed(journal(0), memory(2, recent="v2:ab12:-:01"), committed=0)
    older = observed(journal(0), memory(2, recent=OLD), committed=0)

    with pytest.raises(Rewound, match="adopt='7c8d2a4e@2'"):
        check_start(known, Choices())
    for found in (socket, older):
        with pytest.raises(
            Rewound, match="adopt= is not offered: nothing would prove that epoch 1 is replayed"
        ) as raised:
            check_start(found, Choices(adopt=frozenset({"7c8d2a4e@2"})))
        assert "adopt='" not in str(raised.value)
        assert "new='7c8d2a4e@2'" in str(raised.value)


def plan(stream: Stream, epoch: int, *, counter: int, file: str) -> None:
    """What Spark writes for a file source, in its order."""
    entry = {"path": file, "timestamp": 1, "batchId": counter}
    log = f"v1\n{json.dumps(entry, separators=(',', ':'))}"
    stream.files.delete(f"{stream.path}/sources/0/{counter}")
    stream.files.create(f"{stream.path}/sources/0/{counter}", log.encode())
    stream.files.delete(f"{stream.path}/offsets/{epoch}")
    stream.files.create(f"{stream.path}/offsets/{epoch}", f'v1\n{{}}\n{{"logOffset":{counter}}}'.encode())


def run(stream: Stream, coordinator: Coordinator[Rows], epoch: int, file: str) -> None:
    plan(stream, epoch, counter=epoch, file=file)
    coordinator.run(epoch, [file])
    stream.commit(epoch)
    coordinator.settle()


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.mark.parametrize("journal_too", [False, True])
def test_an_adopted_epoch_that_comes_back_from_other_files_is_refused(stream: Stream, journal_too: bool) -> None:
    first = stream.start()
    for epoch, file in enumerate(("a", "b")):
        run(stream, first, epoch, file)
    stream.rewind(keep=0)
    if journal_too:
        stream.files.delete("checkpoint/epochal")
    plan(stream, 1, counter=1, file="c")
    again = stream.start(adopt=f"{TAG}@1")

    with pytest.raises(OffsetsChanged, match="other files"):
        again.run(1, ["c"])
    assert stream.sink().rows() == ["a", "b"]


def test_an_adopted_epoch_that_comes_back_from_the_same_files_is_skipped(stream: Stream) -> None:
    first = stream.start()
    for epoch, file in enumerate(("a", "b")):
        run(stream, first, epoch, file)
    stream.rewind(keep=0)
    plan(stream, 1, counter=1, file="b")

    assert stream.start(adopt=f"{TAG}@1").run(1, ["b"]) is BatchOutcome.SKIPPED


def test_an_eager_epoch_that_comes_back_from_other_files_is_refused(stream: Stream) -> None:
    eager = stream.coordinator(eager=True)
    eager.begin()
    plan(stream, 0, counter=0, file="a")
    eager.run(0, ["a"])
    eager.settle()
    plan(stream, 0, counter=0, file="b")
    again = stream.coordinator(eager=True)
    again.begin()

    with pytest.raises(OffsetsChanged, match="epoch 0 was written before, from other source offsets or other"):
        again.run(0, ["b"])


def test_a_record_of_an_older_epochal_is_believed_with_a_warning(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    plan(stream, 0, counter=0, file="a")
    digest = stream.coordinator()._checkpoint.offsets(0)
    assert digest is not None
    eager = stream.coordinator(eager=True, checkpoint=_Older(stream, Digest.parse(digest).plain))
    eager.begin()
    eager.run(0, ["a"])
    eager.settle()
    again = stream.coordinator(eager=True)
    again.begin()

    with caplog.at_level(logging.WARNING, logger="epochal"):
        assert again.run(0, ["a"]) is BatchOutcome.SKIPPED
    assert "older epochal" in caplog.text


class _Older:
    """The checkpoint as an older epochal reads it."""

    def __init__(self, stream: Stream, plain: str) -> None:
        self._stream, self._plain = stream, plain

    def query_id(self) -> str:
        return QUERY

    def committed(self) -> int:
        return -1

    def committed_at(self, epoch: int) -> float | None:
        return None

    def offsets(self, epoch: int) -> str | None:
        return self._plain

    def sources(self, epoch: int) -> dict[str, Json]:
        return {}

    def watermark(self, epoch: int) -> float | None:
        return None
