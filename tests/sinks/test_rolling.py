"""When parts are closed: every policy, on pieces that are made up. No file and no Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal import Rolling, RollingFileSink
from epochal.sinks.files.opened import Opened
from epochal.sinks.files.options import Format
from epochal.sinks.files.policies.rolling import MERGE_BELOW, NEVER, Piece, due, open_parts, roll_plan
from epochal.sinks.files.state import open_parts_of
from epochal.txn.errors import JournalCorrupt, OptionError
from epochal.txn.participant import description_of
from epochal.txn.state.typed import Edit

SHAPE = "json 0123456789abcdef"


def piece(
    epoch: int, bucket: str = "day=1/", *, size: int = 10, rows: int = 1, at: float = 0.0, shape: str = SHAPE
) -> Piece:
    return Piece(epoch, bucket, f"part-{epoch}", size, rows, at, shape)


def epochs(parts: tuple[tuple[Piece, ...], ...]) -> list[list[int]]:
    return [[p.epoch for p in part] for part in parts]


def test_a_part_closes_when_its_bytes_reach_the_limit_and_the_next_begins() -> None:
    found = roll_plan([piece(n, size=40) for n in range(5)], Rolling(max_bytes=80), clock=0)

    assert epochs(found.closed) == [[0, 1], [2, 3]]
    assert [p.epoch for p in found.open] == [4]


def test_a_part_closes_when_its_rows_reach_the_limit() -> None:
    found = roll_plan([piece(n, rows=3) for n in range(5)], Rolling(max_rows=5), clock=0)

    assert epochs(found.closed) == [[0, 1], [2, 3]]


def test_a_part_closes_when_it_is_old_though_it_still_grows() -> None:
    pieces = [piece(n, at=10.0 * n) for n in range(4)]

    assert roll_plan(pieces, Rolling(max_age="31 s"), clock=30).closed == ()
    assert epochs(roll_plan(pieces, Rolling(max_age="31 s"), clock=31).closed) == [[0, 1, 2, 3]]


def test_a_part_closes_when_nothing_came_for_a_while() -> None:
    pieces = [piece(0, at=0), piece(1, at=50)]

    assert roll_plan(pieces, Rolling(inactivity=60), clock=109).closed == ()
    assert epochs(roll_plan(pieces, Rolling(inactivity=60), clock=110).closed) == [[0, 1]]


def test_whichever_limit_comes_first_closes() -> None:
    policy = Rolling(max_bytes=1000, max_rows=1000, max_age="1 h", inactivity="10 s")

    assert due([[piece(0, at=100), piece(1, at=105)]], policy) == 115
    assert due([[piece(0, at=100), piece(1, at=3_695)]], policy) == 3_700


def test_how_pieces_become_one_file_is_no_limit() -> None:
    assert Rolling(max_rows=5).merge_limit == MERGE_BELOW
    assert Rolling(max_rows=5, merge_below="4 MB").merge_limit == 4 * 1024 * 1024
    with pytest.raises(OptionError, match="give a limit, or a part would never appear"):
        Rolling(merge_below="4 MB")
    with pytest.raises(OptionError, match="merge_below='much': a number of bytes above 0"):
        Rolling(max_rows=5, merge_below="much")


def test_buckets_close_each_for_itself() -> None:
    pieces = [piece(0, "day=1/", size=90), piece(0, "day=2/", size=20), piece(1, "day=2/", size=20)]
    found = roll_plan(pieces, Rolling(max_bytes=80), clock=0)

    assert [p.bucket for part in found.closed for p in part] == ["day=1/"]
    assert {p.bucket for p in found.open} == {"day=2/"}


def test_without_a_policy_all_that_is_open_closes() -> None:
    found = roll_plan([piece(0), piece(1), piece(1, "day=2/")], None, clock=0)

    assert epochs(found.closed) == [[0, 1], [1]]
    assert found.open == ()


def test_a_part_whose_columns_have_changed_closes_and_another_begins() -> None:
    pieces = [piece(0), piece(1), piece(2, shape="json other")]
    found = roll_plan(pieces, Rolling(max_age="1 h"), clock=0, shape="json other")

    assert epochs(found.closed) == [[0, 1]]
    assert [p.epoch for p in found.open] == [2]


def test_columns_that_change_and_change_back_make_one_part_of_what_fits_together() -> None:
    pieces = [piece(0, size=60), piece(1, shape="json other"), piece(2, size=60)]
    found = roll_plan(pieces, Rolling(max_bytes=100), clock=0)

    assert epochs(found.closed) == [[0, 2]]


def test_what_no_clock_can_close_is_never_due() -> None:
    assert due([[piece(0)]], Rolling(max_rows=5)) == NEVER


PIECES = st.lists(
    st.builds(
        Piece,
        epoch=st.integers(0, 20),
        bucket=st.sampled_from(["", "day=1/", "day=2/"]),
        name=st.text("abc", min_size=1, max_size=3),
        bytes=st.integers(1, 100),
        rows=st.none() | st.integers(0, 50),
        at=st.floats(0, 1000),
        shape=st.sampled_from([SHAPE, "json other"]),
    ),
    unique_by=lambda p: p.order,
    max_size=10,
)
POLICIES = st.builds(
    Rolling,
    max_bytes=st.integers(1, 300),
    max_rows=st.none() | st.integers(1, 100),
    max_age=st.none() | st.floats(1, 500),
    inactivity=st.none() | st.floats(1, 500),
)


@given(PIECES, st.none() | POLICIES, st.floats(0, 2000), st.none() | st.sampled_from([SHAPE]))
def test_every_piece_is_closed_once_or_open_once(
    pieces: list[Piece], policy: Rolling | None, clock: float, shape: str | None
) -> None:
    found = roll_plan(pieces, policy, clock, shape=shape)

    assert sorted([*found.open, *(p for part in found.closed for p in part)], key=lambda p: p.order) == sorted(
        pieces, key=lambda p: p.order
    )
    assert all(len({(p.bucket, p.shape) for p in part}) == 1 for part in found.closed)


@given(PIECES, POLICIES, st.floats(0, 2000))
def test_what_stays_open_is_not_due_and_under_every_limit(pieces: list[Piece], policy: Rolling, clock: float) -> None:
    left = roll_plan(pieces, policy, clock, shape=SHAPE).open

    assert all(due([part], policy) > clock for part in open_parts(left))
    assert all(sum(p.bytes for p in part) < (policy.bytes_limit or 0) for part in open_parts(left))


@given(PIECES, POLICIES, st.floats(0, 2000))
def test_the_same_pieces_at_the_same_time_close_the_same_parts(
    pieces: list[Piece], policy: Rolling, clock: float
) -> None:
    assert roll_plan(pieces, policy, clock) == roll_plan(list(reversed(pieces)), policy, clock)


@given(PIECES)
def test_what_is_open_comes_back_from_the_journal_as_it_went(pieces: list[Piece]) -> None:
    one_shape = {(p.epoch, p.bucket): p for p in pieces}  # an epoch writes pieces of one shape, at one time
    alike = [
        Piece(
            p.epoch,
            p.bucket,
            p.name,
            p.bytes,
            p.rows,
            one_shape[p.epoch, p.bucket].at,
            one_shape[p.epoch, p.bucket].shape,
        )
        for p in pieces
    ]
    edit, opened = Edit({}), Opened()
    opened.change(
        edit,
        "/target",
        looked_at=(),
        left=alike,
        headers={SHAPE: b"a,b\n"},
        awaited={"day=1/": 86_400.0},
        over=(),
    )
    after = open_parts_of(edit.changes)

    assert sorted(after.pieces, key=lambda p: p.order) == sorted(alike, key=lambda p: p.order)
    assert (after.target, after.awaited) == ("/target", {"day=1/": 86_400.0})
    assert after.headers == ({SHAPE: b"a,b\n"} if any(p.shape == SHAPE for p in alike) else {})


def test_a_note_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(JournalCorrupt, match="open parts"):
        open_parts_of({"000000000001 day=1/": {"files": [["a", "many", 1]], "at": 1.0, "shape": SHAPE}})


def test_limits_may_be_written_as_people_do() -> None:
    policy = Rolling(max_bytes="64 MB", max_age="5 min", inactivity=timedelta(seconds=90))

    assert (policy.bytes_limit, policy.age_limit, policy.idle_limit) == (64 * 2**20, 300.0, 90.0)


def test_all_faults_of_a_policy_come_in_one_error() -> None:
    with pytest.raises(OptionError) as caught:
        Rolling(max_bytes="much", max_rows=0, max_age="soon", inactivity=-1)

    text = str(caught.value)
    assert all(word in text for word in ("max_bytes='much'", "max_rows=0", "max_age='soon'", "inactivity=-1"))


def test_a_policy_without_limits_is_refused() -> None:
    with pytest.raises(OptionError, match="never appear"):
        Rolling()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"format": "xml"}, "cannot be joined"),
        ({"format": "json", "compression": "zstd"}, "gzip or bzip2"),
        ({"format": "json", "options": {"compression": "snappy"}}, "gzip or bzip2"),
        ({"format": "avro", "options": {"AvroSchemaUrl": "hdfs://host/order.avsc"}}, "give the schema itself"),
        ({"marker": "bucket"}, "with rolling, give a Complete"),
        ({"rolling": "64 MB"}, "a Rolling, such as"),
    ],
)
def test_what_cannot_roll_is_refused_when_the_sink_is_made(options: dict[str, object], fault: str) -> None:
    with pytest.raises(OptionError, match=fault):
        RollingFileSink("archive", **({"rolling": Rolling(max_rows=5)} | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", ["json", "csv", "text", "avro", "parquet", "orc"])
def test_what_can_roll_says_so_in_its_description(format_: Format, tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path), format=format_, rolling=Rolling(max_rows=5))

    assert description_of(sink).keeps_open
