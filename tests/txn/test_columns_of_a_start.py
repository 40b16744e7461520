"""The frame of a start reaches each sink with the calls that record its columns, whoever wraps the sink."""

from __future__ import annotations

from dataclasses import dataclass, field

from epochal.testing import DirectoryParticipant
from epochal.txn.model import Claim, Json
from epochal.txn.participant import Participant, Wrapper
from tests.txn.keeping import Keeping
from tests.txn.stream import TAG, Rows, Stream

FRAME: Rows = ["id", "amount"]


@dataclass
class Told:
    """What sinks were given."""

    claimed: list[Rows | None] = field(default_factory=list)


class _Recording(DirectoryParticipant):
    told: Told

    def describe(self, rows: Rows | None = None) -> dict[str, Json]:
        described = super().describe(rows)
        return described if rows is None else {**described, "columns": list(rows)}

    def claim(self, claim: Claim, *, version: int, rows: Rows | None = None) -> bool:
        self.told.claimed.append(rows)
        return super().claim(claim, version=version, rows=rows)


class _Both(_Recording, Keeping):
    """Keeps rows open too."""


def sink(stream: Stream, told: Told) -> Participant[Rows]:
    made = _Both("sink", files=stream.files)
    made.told = told
    return Wrapper(made)


def columns(stream: Stream, incarnation: int = 1) -> Json:
    latest = stream.journal(incarnation).read().latest
    assert latest is not None
    return latest.sinks["sink"].settings.get("columns")


def test_a_start_records_the_columns_of_its_own_frame() -> None:
    stream, told = Stream(), Told()
    stream.coordinator(sink(stream, told)).begin(FRAME)
    first = columns(stream)
    stream.coordinator(sink(stream, told)).begin(["id"])

    assert (first, columns(stream)) == (["id", "amount"], ["id"])
    assert told.claimed == [FRAME, ["id"]]


def test_a_start_without_a_frame_records_no_columns_whatever_its_sink_has_seen() -> None:
    stream, told = Stream(), Told()
    participant = sink(stream, told)
    participant.check_frame(FRAME)
    stream.coordinator(participant).begin()

    assert columns(stream) is None
    assert told.claimed == [None]


def test_what_a_closed_stream_left_open_is_published_under_the_columns_of_the_new_start() -> None:
    stream, told = Stream(), Told()
    first = stream.coordinator(sink(stream, told))
    first.begin(["id"])
    stream.run(first, 0, 1)
    stream.rewind(keep=0)
    stream.coordinator(sink(stream, told), new=f"{TAG}@1").begin(FRAME)

    assert Keeping("sink", files=stream.files).rows() == [0, 1]
    assert (columns(stream), columns(stream, 2)) == (FRAME, FRAME)
