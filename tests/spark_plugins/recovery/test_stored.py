"""What Spark stores beside its state is decoded, and anything else is a ValueError."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.spark_plugins.recovery import stored
from epochal.spark_plugins.recovery.names import Provider
from tests.spark_plugins.recovery.written import archive

OF_VERSION_2 = {
    "operatorInfo": {"operatorId": 3, "operatorName": "transformWithStateInPySparkExec"},
    "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 5}],
    "operatorPropertiesJson": json.dumps({"stateVariables": [{"stateName": "total"}, {"stateName": "seen"}]}),
}


def test_an_operator_of_version_2_has_its_state_variables() -> None:
    found = stored.operator(b"v2\n" + json.dumps(OF_VERSION_2).encode())

    assert (found.operator, found.partitions, found.stores) == (3, 5, ("default",))
    assert found.variables == ("total", "seen")


def test_of_a_join_only_the_stores_with_its_rows_are_counted() -> None:
    join = stored.OperatorMetadata(0, stored.JOIN, ("left-keyToNumValues", "left-keyWithIndexToValue"), 2)

    assert [join.holds_rows(store) for store in join.stores] == [False, True]


def test_a_snapshot_lists_its_files_and_its_rows() -> None:
    found = stored.snapshot(archive(852, {"000008-a.sst": 6000, "000009-b.sst": 350}, ["default", "total"]))

    assert (found.rows, found.bytes, found.families) == (852, 6350, ("default", "total"))


def test_a_store_that_does_not_count_its_rows_has_none() -> None:
    assert stored.snapshot(archive(-1, {})).rows is None


def test_settings_name_provider_codec_and_partitions() -> None:
    conf = {stored.PROVIDER: "a.b.RocksDBStateStoreProvider", stored.CODEC: "zstd", stored.PARTITIONS: "7"}

    assert stored.settings(b"v1\n" + json.dumps({"conf": conf}).encode()) == stored.EpochSettings(
        Provider.ROCKSDB, "zstd", 7
    )


@pytest.mark.parametrize("data", [b"", b"v1", b"v1\n[]", b"v1\n{", b'v1\n{"conf": {}}'])
def test_settings_that_are_not_there_are_the_defaults(data: bytes) -> None:
    assert stored.settings(data) == stored.EpochSettings()


def test_ids_of_an_epoch_are_by_operator_and_partition() -> None:
    data = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"],["b","c"]]}}'

    assert stored.unique_ids(data) == {0: (frozenset("a"), frozenset("bc"))}
    assert stored.unique_ids(b'v1\n{"nextBatchWatermarkMs":0}') == {}


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: b"v1\n" + text.encode()))
def test_anything_else_is_a_value_error(data: bytes) -> None:
    for decode in (stored.operator, stored.snapshot):
        with pytest.raises(ValueError):  # noqa: PT011  # of any wording
            decode(data)


@pytest.mark.parametrize("value", [[], 5, {}, {"operatorInfo": 5}, {"operatorInfo": {}, "stateStoreInfo": []}])
def test_json_of_another_shape_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match="Spark"):
        stored.operator(b"v1\n" + json.dumps(value).encode())


NESTED = "[" * 200_000


def test_a_number_that_is_too_long_and_values_that_nest_too_deep_are_of_no_use() -> None:
    digits = "9" * 5_000

    assert stored.settings(f'v1\n{{"conf":{{"{stored.PARTITIONS}":"{digits}"}}}}'.encode()).partitions is None
    assert stored.settings(f"v1\n{NESTED}".encode()) == stored.EpochSettings()
    assert stored.unique_ids(f"v1\n{NESTED}".encode()) == {}
    with pytest.raises(ValueError, match="RecursionError"):
        stored.operator(f"v2\n{NESTED}".encode())
