"""Which of Spark's errors say that rows are bad, and why."""

from __future__ import annotations

from pyspark.errors import AnalysisException, SparkRuntimeException

from epochal.sinks.spark.reasons import as_bad_rows, marked


def test_the_reason_of_a_check_that_ended_a_job_is_told() -> None:
    found = as_bad_rows("lake", SparkRuntimeException(f"[USER_RAISED_EXCEPTION] {marked('id is null in a row')}"))

    assert str(found) == "sink 'lake': id is null in a row. Nothing of the epoch was written"


def test_a_check_that_is_only_part_of_the_plan_is_not_taken_for_the_reason() -> None:
    plan = f"'Project [raise_error({marked('id is null in a row')})]"
    found = as_bad_rows("lake", AnalysisException(f"[UNRESOLVED_COLUMN] no column x;\n{plan}"))

    assert "no column x" in str(found)
    assert not str(found).startswith("sink 'lake': id is null")


def test_a_fault_of_sparks_is_none_of_rows() -> None:
    assert as_bad_rows("lake", SparkRuntimeException("the disk is full")) is None
