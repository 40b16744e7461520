"""What a stream does to its state is read from its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal.spark_plugins.recovery.loads import load_of, setting_of
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.reading import read_state
from epochal.txn.files import LocalFiles
from tests.spark_plugins.recovery.written import HDFS_BACKED, Written, archive, lz4, rows, untagged


def test_a_load_is_changes_rows_and_the_time_between_commits(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    for epoch in range(4):
        written.commit(epoch)
        os.utime(tmp_path / "commits" / str(epoch), (1_700_000_000 + 7 * epoch,) * 2)
    for partition in range(2):
        written.put(f"state/0/{partition}/2.zip", archive(500, {"a.sst": 9000}))
        for version in (3, 4):
            written.put(f"state/0/{partition}/{version}.changelog", lz4(untagged(rows(0, 30))))
    state = read_state(LocalFiles(), written.path)
    load = load_of(LocalFiles(), written.path, state)
    setting = setting_of(state)

    assert (load.interval, load.updates, load.rows, load.stores) == (7.0, 60, 1000, 1)
    assert load.bytes == pytest.approx(18_000, rel=0.05)
    assert (setting.provider, setting.changelog, setting.partitions) == (Provider.ROCKSDB, True, 2)
    assert load_of(LocalFiles(), written.path, state, interval=2.0, updates=5).updates == 5


def test_without_changes_in_files_they_are_guessed_from_rows(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.operator()
    written.commit(9)
    written.put("state/0/0/10.zip", archive(500, {}))
    state = read_state(LocalFiles(), written.path)

    assert load_of(LocalFiles(), written.path, state).updates == 50
    assert not setting_of(state).changelog


def test_state_of_hdfs_backed_has_no_changelog(tmp_path: Path) -> None:
    written = Written(tmp_path, HDFS_BACKED)
    written.operator()
    written.commit(0)
    written.put("state/0/0/1.delta", lz4(untagged(rows(0, 30))))

    assert setting_of(read_state(LocalFiles(), written.path)).provider is Provider.HDFS_BACKED
