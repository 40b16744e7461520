"""From bucket values to folder names."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.sinks.files.policies.buckets import EMPTY, LIMIT, NULL, TimeBucket, escape, folder_name, survives
from epochal.sinks.spark.values import EXACT, Value, decode
from epochal.txn.errors import OptionError


def encoded(value: str | None) -> str:
    """What Spark makes of a value; the integration tests compare it with the real thing."""
    if value is None:
        return "n"
    data = value.encode()
    if len(data) <= EXACT:
        return "v" + base64.urlsafe_b64encode(data).decode().rstrip("=")
    head = base64.urlsafe_b64encode(value[:24].encode()).decode().rstrip("=")
    return "h" + hashlib.sha256(data).hexdigest() + head


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@given(st.one_of(st.none(), texts))
def test_no_value_leads_out_of_its_folder(value: str | None) -> None:
    name = folder_name("day", decode(encoded(value)))

    assert name.startswith("day=")
    assert "/" not in name
    assert "\0" not in name
    assert name not in (".", "..")
    assert len(name.encode()) <= LIMIT


@given(texts, texts)
def test_different_values_get_different_folders(one: str, other: str) -> None:
    special = {EMPTY, NULL}

    same = folder_name("k", decode(encoded(one))) == folder_name("k", decode(encoded(other)))

    assert same == (one == other) or one in special or other in special


@given(texts.filter(lambda t: len(t.encode()) <= EXACT))
def test_a_short_value_comes_back_whole(value: str) -> None:
    assert decode(encoded(value)) == Value(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("2026-11-16", "day=2026-11-16"),
        ("..", "day=.."),
        ("a/../b", "day=a%2F..%2Fb"),
        (None, f"day={NULL}"),
        ("", f"day={EMPTY}"),
        ("grün/日本", "day=grün%2F日本"),
        ("a\x00b\x01\n", "day=a%00b%01%0A"),
        ("50%", "day=50%25"),
    ],
)
def test_names_are_hive_s(value: str | None, name: str) -> None:
    assert folder_name("day", decode(encoded(value))) == name


def test_a_long_value_is_known_by_its_beginning_and_hash() -> None:
    name = folder_name("day", decode(encoded("x" * 300)))

    assert name == "day=" + "x" * 24 + "~" + hashlib.sha256(b"x" * 300).hexdigest()[:16]


def test_a_name_is_never_cut_inside_an_escape() -> None:
    name = folder_name("day", Value("/" * EXACT))

    assert name.rpartition("~")[0].removeprefix("day=").replace("%2F", "") == ""


@pytest.mark.parametrize(
    ("value", "whole"), [("a", True), (None, True), ("", False), (NULL, False), ("x" * 300, False), ("/" * 150, False)]
)
def test_only_values_that_the_folder_spells_out_survive_without_their_column(value: str | None, whole: bool) -> None:
    assert survives(decode(encoded(value)), "day") is whole


def test_escape_leaves_plain_text_alone() -> None:
    assert escape("Plain-text_1.2 ü") == "Plain-text_1.2 ü"


def test_all_faults_of_a_time_bucket_come_in_one_error() -> None:
    with pytest.raises(OptionError) as caught:
        TimeBucket("", "hours", timezone="Mars/Olympus", name="")  # type: ignore[arg-type]  # that is the point

    assert len(caught.value.faults) == 4
    assert "did you mean 'hour'?" in str(caught.value)
