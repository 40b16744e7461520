"""Names of state files: what is written is read, and nothing else is taken for one."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.spark_plugins.recovery.names import Part, Provider, Version, VersionFile, number, parse

versions = st.builds(Version, st.integers(0, 10**17), st.none() | st.uuids().map(str))


@given(versions, st.sampled_from(Part))
def test_a_name_is_read_as_it_was_written(version: Version, part: Part) -> None:
    file = VersionFile(version, part)

    assert parse(file.name) == file


@given(st.text())
def test_any_other_name_is_none_or_is_spelled_exactly_so(name: str) -> None:
    file = parse(name)

    assert file is None or file.name == name


@pytest.mark.parametrize(
    "name",
    [
        ".7.delta.crc",
        "7.delta.crc",
        ".7.changelog.5f0c.tmp",
        "07.zip",
        "-1.zip",
        "7_.zip",
        "7_x.zip",
        "7.sst",
        "7",
        "_metadata",
        f"7_{uuid.UUID(int=1)}_2.zip",
        "\u0667.zip",
        "7.zip\n",
    ],
)
def test_what_is_no_version_is_passed_over(name: str) -> None:
    assert parse(name) is None


def test_an_ending_tells_the_provider_and_whether_it_is_whole() -> None:
    whole = {part for part in Part if part.is_snapshot}
    of_rocksdb = {part for part in Part if part.provider is Provider.ROCKSDB}

    assert (whole, of_rocksdb) == ({Part.SNAPSHOT, Part.ZIP}, {Part.CHANGELOG, Part.ZIP})


@given(st.integers(0, 10**8))
def test_a_folder_of_a_number_is_read(value: int) -> None:
    assert number(str(value)) == value


@pytest.mark.parametrize("name", ["_metadata", "", "1 ", "01", "-1", "\u0661", "left-keyToNumValues"])
def test_any_other_folder_has_no_number(name: str) -> None:
    assert number(name) is None
