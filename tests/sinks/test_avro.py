"""What Avro has against a frame or an option, found in what Spark throws. Without Spark."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from epochal.sinks.files.formats.avro import BAD_FRAME, BAD_OPTION, complaint
from tests.sinks.test_hadoop_errors import Thrown, thrown


def failed(*causes: Thrown) -> Py4JError:
    """A job that failed; each of the causes lies in the one before."""
    whole: Thrown | None = None
    for cause in reversed(causes):
        whole = Thrown(cause.getName(), cause.getMessage(), whole)
    return thrown(Thrown("org.apache.spark.SparkException", "[TASK_WRITE_FAILED] Task failed", whole))


def test_the_innermost_complaint_is_told_because_it_names_the_column() -> None:
    fault = failed(
        Thrown(BAD_FRAME, "Cannot convert SQL type STRUCT<a: INT>"), Thrown(BAD_FRAME, "Cannot find field 'a'")
    )

    assert complaint(fault) == (BAD_FRAME, "Cannot find field 'a'")


def test_a_complaint_may_come_as_one_of_sparks_own_errors() -> None:
    fault = failed(
        Thrown("org.apache.spark.SparkRuntimeException", "[AVRO_CANNOT_WRITE_NULL_FIELD] Cannot\nwrite null.")
    )

    assert complaint(fault) == (
        "org.apache.spark.SparkRuntimeException",
        "[AVRO_CANNOT_WRITE_NULL_FIELD] Cannot write null",
    )


def test_an_option_that_avro_cannot_read_is_told_from_a_frame_that_it_cannot_hold() -> None:
    assert complaint(thrown(Thrown(BAD_OPTION, "Illegal character in: a b"))) == (
        BAD_OPTION,
        "Illegal character in: a b",
    )


@pytest.mark.parametrize("value", ["s3cret", 'with "quotes" s3cret', "on two\nlines s3cret"])
def test_a_complaint_is_told_without_the_value_of_a_row(value: str) -> None:
    text = f"Cannot convert SQL field 'size' to Avro field 'size' because \"{value}\" cannot be written since it's not"
    found = complaint(failed(Thrown(BAD_FRAME, text)))

    assert found is not None
    assert "s3cret" not in found[1]
    assert "'size' because a value cannot be written" in found[1]


def test_what_is_not_about_avro_is_no_complaint() -> None:
    assert complaint(failed(Thrown("java.io.IOException", "No space left on device"))) is None
