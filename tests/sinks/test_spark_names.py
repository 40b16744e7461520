"""Endings of files that Spark has named, whatever its random part looks like."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.sinks.delta import layout as delta
from epochal.sinks.files import layout as files
from epochal.sinks.spark.names import ending_of_written
from epochal.txn.model import Attempt

ATTEMPT = Attempt("1f0c9a2e-77", 1, 1)
UNLUCKY = "part-00000-9d3336c3-9cec-428d-ad0e-c68841544624.c000"  # of some 2,800 such names one


@pytest.mark.parametrize("ending", [".csv", ".snappy.parquet", ".json.gz"])
def test_a_random_part_that_looks_like_a_number_of_a_file_is_not_taken_for_one(ending: str) -> None:
    assert files.part_name(ATTEMPT, 0, UNLUCKY + ending) == f"part-000000000001-00000-1f0c9a2e{ending}"
    assert delta.part_name(ATTEMPT, 0, UNLUCKY + ending).endswith(f"-000001{ending}")


@given(
    st.uuids(version=4),
    st.sampled_from(["c", "-c", ".c"]),
    st.integers(0, 1200),
    st.sampled_from([".csv", ".zstd.parquet", ".json.bz2"]),
)
def test_the_ending_is_what_follows_the_number_of_the_file(
    random: uuid.UUID, sign: str, number: int, ending: str
) -> None:
    name = f"part-00007-{random}{sign}{number:03d}{ending}"

    assert ending_of_written(name) == (None if sign == "c" else ending)


def test_a_name_that_is_not_spark_s_has_no_ending_of_its_kind() -> None:
    assert ending_of_written("orders.csv") is None
