"""Options that no sink has, whatever else is wrong."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from epochal import CassandraSink, Complete, DeltaSink, EpochWriter, OptionError, Rolling, RollingFileSink


@pytest.mark.parametrize(
    ("kind", "target", "wrong", "right"),
    [
        (RollingFileSink, "archive", "bucketby", "bucket_by"),
        (DeltaSink, "lake", "partitionBy", "partition_by"),
        (CassandraSink, "shop.orders", "contact_point", "contact_points"),
        (EpochWriter, RollingFileSink("archive"), "max_pendin", "max_pending"),
    ],
)
def test_a_misspelt_option_is_told_with_the_nearest_right_name(kind: Any, target: Any, wrong: str, right: str) -> None:
    with pytest.raises(OptionError, match=f"{wrong}: no such option; did you mean '{right}'"):
        kind(target, **{wrong: []})


@pytest.mark.parametrize(("kind", "wrong", "right"), [(Rolling, "max_byte", "max_bytes"), (Complete, "dealy", "delay")])
def test_so_it_is_for_what_options_are_made_of(kind: Any, wrong: str, right: str) -> None:
    with pytest.raises(OptionError, match=f"{wrong}: no such option; did you mean '{right}'"):
        kind(**{wrong: "5 min"})


def test_a_misspelt_option_comes_with_all_other_faults() -> None:
    wrong: Any = {"bucketby": ["day"], "zzz": 1, "format": "parqet"}
    with pytest.raises(OptionError) as raised:
        RollingFileSink("archive", **wrong)

    assert [fault.partition(":")[0].partition("=")[0] for fault in raised.value.faults] == ["bucketby", "zzz", "format"]
    assert "RollingFileSink('archive'): 3 faults" in str(raised.value)


def test_what_an_unknown_option_was_given_is_not_repeated() -> None:
    secret: Any = {"passwort": "hunter2"}
    with pytest.raises(OptionError) as raised:
        CassandraSink("shop.orders", **secret)

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [(RollingFileSink, "pth", "path"), (DeltaSink, "paths", "path"), (CassandraSink, "tabel", "table")],
)
def test_a_misspelt_option_that_is_needed_is_told_with_the_nearest_name(kind: Any, wrong: str, right: str) -> None:
    with pytest.raises(OptionError) as raised:
        kind(**{wrong: "archive", "name": "1st"})

    assert [fault.partition(":")[0].partition("=")[0] for fault in raised.value.faults] == [wrong, right, "name"]
    assert f"{wrong}: no such option; did you mean '{right}'?" in str(raised.value)
    assert f"{right}: missing" in str(raised.value)


def test_the_name_of_a_class_of_options_is_not_one_of_them() -> None:
    wrong: Any = "complete"
    with pytest.raises(
        OptionError, match=r"marker='complete': give a Complete, Complete\(by=...\), not its name; as a"
    ):
        RollingFileSink("archive", marker=wrong)
    wrong = "epcoh"
    with pytest.raises(OptionError, match=r"'none', 'epoch', 'bucket', or a Complete; did you mean 'epoch'\?"):
        RollingFileSink("archive", marker=wrong)


def test_a_missing_argument_stays_a_type_error() -> None:
    with pytest.raises(TypeError, match="path"):
        RollingFileSink()  # type: ignore[call-arg]  # type checkers still see the real signature


def test_the_signature_is_the_constructors_own() -> None:
    names = list(inspect.signature(DeltaSink).parameters)

    assert names[:3] == ["path", "mode", "name"]
