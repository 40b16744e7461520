"""When a bucket's time is over, and the markers that say so. No Spark: what a roll between epochs needs none."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal import Complete, Rolling, RollingFileSink, TimeBucket
from epochal.sinks.files.policies.buckets import Unit
from epochal.sinks.files.policies.completion import Marks, ends_at, marker, next_version
from epochal.sinks.files.policies.rolling import Piece, roll_plan
from epochal.spark_plugins.conf import writer_from_settings
from epochal.txn.errors import OptionError
from epochal.txn.model import Attempt, Handle, Json, RollRequest

DAY = TimeBucket("at", "day")
ATTEMPT = Attempt("1f0c9a2e-0000", 7, 2, 1)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("unit", "folder", "end"),
    [
        ("year", "2026", "2027-01-01T00:00+00:00"),
        ("month", "2026-12", "2027-01-01T00:00+00:00"),
        ("month", "2028-02", "2028-03-01T00:00+00:00"),
        ("day", "2026-12-31", "2027-01-01T00:00+00:00"),
        ("hour", "2026-11-16T23", "2026-11-17T00:00+00:00"),
        ("minute", "2026-11-16T23-59", "2026-11-17T00:00+00:00"),
    ],
)
def test_a_bucket_ends_where_the_next_begins(unit: Unit, folder: str, end: str) -> None:
    assert ends_at(f"{unit}={folder}/", [TimeBucket("at", unit)]) == seconds(end)


@pytest.mark.parametrize(
    ("unit", "folder", "end"),
    [
        ("day", "2026-11-16", "2026-11-17T00:00+01:00"),
        ("day", "2026-10-25", "2026-10-26T00:00+01:00"),  # 25 hours
        ("hour", "2026-10-25T01", "2026-10-25T02:00+02:00"),
        ("hour", "2026-10-25T02", "2026-10-25T03:00+01:00"),  # comes twice
        ("minute", "2026-10-25T02-29", "2026-10-25T02:30+01:00"),
    ],
)
def test_a_bucket_ends_by_the_clocks_of_its_time_zone_at_the_later_of_two(unit: Unit, folder: str, end: str) -> None:
    assert ends_at(f"{unit}={folder}/", [TimeBucket("at", unit, timezone="Europe/Berlin")]) == seconds(end)


def test_a_bucket_of_several_columns_ends_when_the_first_of_its_times_does() -> None:
    buckets: list[str | TimeBucket] = ["region", DAY, TimeBucket("at", "hour")]

    assert ends_at("region=e%2Fu/day=2026-11-16/hour=2026-11-16T05/", buckets) == seconds("2026-11-16T06:00+00:00")


@pytest.mark.parametrize("value", ["__HIVE_DEFAULT_PARTITION__", "__EPOCHAL_EMPTY__", "+12026-01-0", "9999-12-31", ""])
def test_a_bucket_without_a_time_never_ends(value: str) -> None:
    assert ends_at(f"day={value}/", [DAY]) is None


@given(st.integers(86_400, 29_000_000_000), st.sampled_from(["UTC", "Asia/Kolkata", "Pacific/Apia"]))
def test_a_row_is_never_later_than_the_end_of_its_bucket(at: int, zone: str) -> None:
    instant = datetime.fromtimestamp(at, UTC)
    local = instant.astimezone(ZoneInfo(zone))
    texts: list[tuple[Unit, str]] = [("day", local.strftime("%Y-%m-%d")), ("hour", local.strftime("%Y-%m-%dT%H"))]
    for unit, text in texts:
        end = ends_at(f"{unit}={text}/", [TimeBucket("at", unit, timezone=zone)])

        assert end is not None
        assert instant < datetime.fromtimestamp(end, UTC) <= instant + timedelta(hours=50)


def test_by_the_watermark_a_bucket_is_complete_when_the_watermark_reaches_its_end() -> None:
    awaited = {"a/": 100.0, "b/": 200.0}

    assert Complete().divide(awaited, watermark=99.999, clock=1e9).complete == ()
    assert Complete().divide(awaited, watermark=100.0, clock=0) == Marks({"b/": 200.0}, ("a/",))
    assert Complete(delay=50).divide(awaited, watermark=149, clock=1e9).complete == ()
    assert Complete().divide(awaited, watermark=None, clock=1e9).complete == ()
    assert Complete().due(100.0) == inf


def test_by_the_clock_a_bucket_is_complete_some_time_after_its_end() -> None:
    complete = Complete(by="clock", delay="1 min")

    assert complete.due(90.0) == 150.0
    assert complete.due(inf) == inf
    assert complete.divide({"a/": 100.0}, watermark=None, clock=160).complete == ("a/",)
    assert complete.divide({"a/": 100.0}, watermark=1e9, clock=159).complete == ()


def test_a_marker_is_numbered_after_those_that_are_there() -> None:
    names = ["part-0.json", "_SUCCESS", "_SUCCESS-9", "_SUCCESS-10", "_SUCCESS-x", "_SUCCESS-000000000003-1f0c9a2e"]

    assert next_version(names) == 11
    assert marker("day=1/", 1, ATTEMPT)[0] == "day=1/_SUCCESS"
    name, text = marker("day=1/", 2, ATTEMPT)
    assert name == "day=1/_SUCCESS-2"
    assert json.loads(text)["version"] == 2


def test_a_complete_bucket_closes_its_parts_of_every_shape() -> None:
    pieces = [
        Piece(epoch, bucket, f"part-{epoch}", 10, 1, 0.0, shape)
        for epoch, bucket, shape in [(0, "day=1/", "x"), (1, "day=1/", "y"), (1, "day=2/", "y")]
    ]
    found = roll_plan(pieces, Rolling(max_age="1 h"), clock=1, complete=("day=1/",))

    assert {p.bucket for part in found.closed for p in part} == {"day=1/"}
    assert len(found.closed) == 2
    assert [p.bucket for p in found.open] == ["day=2/"]


def by_the_clock(target: Path) -> RollingFileSink:
    return RollingFileSink(str(target), format="json", bucket_by=[DAY], marker=Complete(by="clock"))


def test_what_is_due_is_marked_between_epochs_and_forgotten(tmp_path: Path) -> None:
    sink = by_the_clock(tmp_path)
    state: dict[str, Json] = {
        "target": str(tmp_path),
        "awaited day=2026-01-01/": 100.0,
        "awaited day=9998-01-01/": 2e11,
    }
    due = sink.due(state)
    staged = sink.roll(RollRequest(attempt=ATTEMPT, state=state, every=False))
    assert staged is not None
    hidden = list(tmp_path.glob("day=*"))
    sink.commit(ATTEMPT, Handle(staged.handle.version, json.loads(json.dumps(staged.handle.body))))

    assert due == 100.0
    assert hidden == []
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("day=*/*")] == ["day=2026-01-01/_SUCCESS"]
    assert staged.changes == {"awaited day=2026-01-01/": None}


def test_a_bucket_that_was_marked_gets_the_next_version(tmp_path: Path) -> None:
    (tmp_path / "day=2026-01-01").mkdir()
    (tmp_path / "day=2026-01-01" / "_SUCCESS").touch()
    sink = by_the_clock(tmp_path)
    state: dict[str, Json] = {"target": str(tmp_path), "awaited day=2026-01-01/": 100.0}
    staged = sink.roll(RollRequest(attempt=ATTEMPT, state=state, every=False))
    assert staged is not None
    sink.commit(ATTEMPT, staged.handle)

    assert {p.name for p in tmp_path.glob("day=*/*")} == {"_SUCCESS", "_SUCCESS-2"}
    assert staged.changes == {"target": None, "awaited day=2026-01-01/": None}


def test_publishing_what_is_open_marks_nothing_and_forgets_nothing(tmp_path: Path) -> None:
    sink = RollingFileSink(str(tmp_path), format="json", name="files")  # as the command line makes it
    state: dict[str, Json] = {"target": str(tmp_path), "awaited day=2026-01-01/": 100.0}

    assert sink.roll(RollRequest(attempt=ATTEMPT, state=state, every=True)) is None


def test_a_marker_needs_a_bucket_that_has_a_time() -> None:
    with pytest.raises(OptionError, match="only a TimeBucket in bucket_by"):
        RollingFileSink("x", bucket_by=["day"], marker=Complete())


def test_wrong_options_of_complete_are_refused_together() -> None:
    with pytest.raises(OptionError) as error:
        Complete(by="watermrk", delay="soon")  # type: ignore[arg-type]  # that is the point

    assert "did you mean 'watermark'" in str(error.value)
    assert "delay='soon': a time above 0" in str(error.value)


def test_settings_carry_it() -> None:
    given = {"path": "x", "bucket_by": "day(at)", "marker.by": "clock", "marker.delay": "2 h"}
    settings = {f"spark.epochal.orders.archive.{name}": value for name, value in {"type": "files", **given}.items()}
    settings["spark.epochal.orders.sinks"] = "archive"

    (sink,) = writer_from_settings(settings, "orders").sinks
    with pytest.raises(OptionError, match="set one of them"):
        writer_from_settings({**settings, "spark.epochal.orders.archive.marker": "epoch"}, "orders")

    assert isinstance(sink, RollingFileSink)
    assert sink.marker == Complete(by="clock", delay="2 h")
