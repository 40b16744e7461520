"""A checkpoint's state is read from its files, in every layout, also while they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.reading import TRIES, has_state, read_state
from epochal.spark_plugins.recovery.states import Rows, SparkState
from epochal.txn.errors import Refused
from epochal.txn.files import Entry, LocalFiles
from tests.spark_plugins.recovery.written import (
    HDFS_BACKED,
    Written,
    archive,
    lz4,
    rows,
    tagged,
    untagged,
    with_lineage,
)


def read(written: Written, *, counted: int = 1 << 20) -> SparkState:
    return read_state(LocalFiles(), written.path, counted=counted)


def changelog(written: Written, place: str, version: int, first: int, last: int) -> None:
    written.put(f"state/0/{place}/{version}.changelog", lz4(untagged(rows(first, last))))


def test_a_rocksdb_store_is_its_newest_snapshot_and_the_changes_after_it(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    for epoch in range(4):
        written.commit(epoch)
    for partition in range(2):
        written.put(f"state/0/{partition}/2.zip", zipped := archive(20, {"a.sst": 700}))
        written.put(f"state/0/{partition}/SSTs/a.sst", bytes(700))
        written.put(f"state/0/{partition}/SSTs/old.sst", bytes(50))
        for version in range(1, 6):  # 5 is of an epoch under way
            changelog(written, str(partition), version, version * 10, version * 10 + 10)
    state = read(written)

    (operator,) = state.operators
    assert (state.epoch, state.version, state.settings.provider) == (3, 4, Provider.ROCKSDB)
    assert [p.snapshot for p in operator.partitions] == [2, 2]
    assert (operator.extent, operator.replay_rows) == (2, Rows(40))
    assert operator.rows == Rows(40, exact=False)
    assert operator.partitions[0].bytes == len(zipped) + 700 + operator.partitions[0].replay_bytes
    assert operator.partitions[0].stored_bytes > operator.partitions[0].bytes + 50
    assert operator.skew == 1.0


def test_a_store_without_a_snapshot_is_counted_exactly(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(1)
    changelog(written, "0", 1, 0, 10)
    deletes = [(key, None) for key, _ in rows(0, 3)]
    written.put("state/0/0/2.changelog", lz4(untagged([*rows(5, 12), *deletes])))
    (operator,) = read(written).operators

    assert operator.partitions[0].snapshot is None
    assert operator.rows == Rows(9)
    assert operator.replay_rows == Rows(20)


def test_an_hdfs_backed_store_is_counted_with_its_snapshot(tmp_path: Path) -> None:
    written = Written(tmp_path, HDFS_BACKED)
    written.operator()
    written.commit(2)
    written.put("state/0/0/2.snapshot", lz4(untagged(rows(0, 100))))
    for version, first in ((1, 0), (2, 50), (3, 95)):
        written.put(f"state/0/0/{version}.delta", lz4(untagged(rows(first, first + 10))))
    (operator,) = read(written).operators

    assert operator.provider is Provider.HDFS_BACKED
    assert (operator.rows, operator.replay_rows, operator.extent) == (Rows(105), Rows(10), 1)


def test_in_format_2_the_lineage_of_the_committed_attempt_is_followed(tmp_path: Path) -> None:
    a, b, c = (f"{n:08x}-0000-0000-0000-000000000000" for n in range(3))
    written = Written(tmp_path)
    written.operator()
    written.commit(2, {"0": [[c]]})
    store = "state/0/0"
    written.put(f"{store}/1_{a}.zip", archive(4, {}))
    written.put(f"{store}/2_{b}.changelog", lz4(with_lineage(untagged(rows(0, 5)), [(1, a)])))
    written.put(f"{store}/2_{c}.zip", archive(999, {}))  # of an attempt that did not become the epoch
    written.put(f"{store}/3_{c}.changelog", lz4(with_lineage(untagged(rows(0, 3)), [(1, a), (2, b)])))
    written.put(f"{store}/3_{a}.changelog", lz4(with_lineage(untagged(rows(0, 90)), [(2, c)])))
    (operator,) = read(written).operators

    assert (operator.partitions[0].snapshot, operator.extent, operator.replay_rows) == (1, 2, Rows(8))


def test_a_join_has_four_stores_in_a_partition_and_counts_the_rows_of_two(tmp_path: Path) -> None:
    stores = [f"{side}-{kind}" for side in ("left", "right") for kind in ("keyToNumValues", "keyWithIndexToValue")]
    written = Written(tmp_path)
    written.operator(name="symmetricHashJoin", stores=stores)
    written.commit(0)
    for number, store in enumerate(stores):
        changelog(written, f"0/{store}", 1, 0, 10 + number)
        written.put(f"state/0/0/{store}/_metadata/schema", b"")
    (operator,) = read(written).operators

    assert [store.store for store in operator.stores] == stores
    assert operator.rows == Rows(11 + 13)
    assert operator.replay_rows == Rows(10 + 11 + 12 + 13)


def test_column_families_are_named(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(1)
    written.put("state/0/0/1.zip", archive(2, {}, ["default", "$rowCounter_seen", "seen", "total"]))
    written.put("state/0/0/2.changelog", lz4(tagged(rows(0, 7))))
    (operator,) = read(written).operators

    assert (operator.families, operator.replay_rows) == (("seen", "total"), Rows(7))


def test_with_column_families_and_no_snapshot_rows_are_an_estimate(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(0)
    written.put("state/0/0/1.changelog", lz4(tagged(rows(0, 7))))
    (operator,) = read(written).operators

    assert operator.rows == Rows(7, exact=False)


def test_rows_beyond_the_limit_are_estimated_from_the_newest_file(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(2)
    for version in (1, 2, 3):
        changelog(written, "0", version, 0, 100)
    (operator,) = read(written, counted=0).operators

    assert operator.replay_rows == Rows(300, exact=False)
    assert operator.rows is None


def test_a_version_that_has_no_file_is_missing(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(2)
    changelog(written, "1", 1, 0, 1)
    changelog(written, "1", 3, 0, 1)
    (operator,) = read(written).operators

    assert operator.missing == ((1, "default", 2),)


def test_folders_that_a_rescale_to_fewer_partitions_has_left_are_passed_over(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    for epoch in range(3):
        written.commit(epoch)  # of two partitions
    for partition in range(4):
        for version in range(1, 4 if partition < 2 else 2):  # 2 and 3 end before the rescale
            changelog(written, str(partition), version, 0, 5)

    (operator,) = read(written).operators

    assert [store.partition for store in operator.stores] == [0, 1]
    assert not operator.missing


def test_a_codec_that_cannot_be_read_leaves_rows_unknown(tmp_path: Path) -> None:
    written = Written(tmp_path, codec="snappy")
    written.operator()
    written.commit(0)
    written.put("state/0/0/1.changelog", b"snappy")
    (operator,) = read(written).operators

    assert (operator.rows, operator.replay_rows, operator.replay_bytes, operator.extent) == (None, None, 6, 1)


def test_a_torn_file_is_refused_by_name(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(0)
    written.put("state/0/0/1.changelog", b"torn")

    with pytest.raises(Refused, match=r"0/0/1\.changelog: .*restore the file"):
        read(written)


def test_metadata_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.commit(0)
    written.put("state/0/_metadata/metadata", b"v9")
    changelog(written, "0", 1, 0, 4)
    state = read(written)

    assert state.operators[0].rows == Rows(4)
    assert state.notes[0].startswith("operator 0: its metadata cannot be read")


def test_a_query_without_state_has_no_operators(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.commit(3)

    assert read(written).operators == ()
    assert not has_state(LocalFiles(), written.path)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not the checkpoint of a streaming query"):
        read_state(LocalFiles(), str(tmp_path))


class Moving(LocalFiles):
    """The query commits an epoch and removes what it no longer needs, whenever one of its folders was listed."""

    def __init__(self, written: Written, moves: int) -> None:
        super().__init__()
        self._written, self._left, self._epoch = written, moves, 0

    def list(self, path: str) -> list[Entry]:
        found = super().list(path)
        if self._left and path.endswith("state/0/0"):
            self._left -= 1
            self._epoch += 1
            (Path(path) / f"{self._epoch}.zip").unlink()
            self._written.put(f"state/0/0/{self._epoch + 1}.zip", archive(7, {}))
            self._written.commit(self._epoch)
        return found


def of_a_running_query(root: Path) -> Written:
    written = Written(root)
    written.operator()
    written.commit(0)
    written.put("state/0/0/1.zip", archive(7, {}))
    return written


def test_files_that_vanish_while_they_are_listed_are_read_again(tmp_path: Path) -> None:
    written = of_a_running_query(tmp_path)
    state = read_state(Moving(written, 3), written.path)

    assert state.operators[0].missing == ()
    assert state.operators[0].rows == Rows(7)
    assert state.epoch == 3


def test_a_query_that_is_always_quicker_is_said_to_be(tmp_path: Path) -> None:
    written = of_a_running_query(tmp_path)

    with pytest.raises(Refused, match=f"changed {TRIES} times"):
        read_state(Moving(written, 1000), written.path)
