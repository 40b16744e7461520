"""A copy for a drill is one epoch, whole, and can be rewound by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epochal.spark_plugins.recovery.copying import copy_checkpoint, rewind
from epochal.spark_plugins.recovery.reading import read_state
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles
from tests.spark_plugins.recovery.written import Written, lz4, rows, untagged


def running(root: Path) -> Written:
    """Two epochs are committed, and the third has written its offsets and its state."""
    written = Written(root)
    written.operator()
    for epoch in range(2):
        written.commit(epoch)
    written.put("offsets/2", (root / "offsets/1").read_bytes())
    written.put("sources/0/1", b"v1\n{}")
    for version in (1, 2, 3):
        written.put(f"state/0/0/{version}.changelog", lz4(untagged(rows(0, version))))
    written.put("state/0/0/.2.changelog.crc", b"crc")
    return written


def test_a_copy_has_the_last_committed_epoch_and_nothing_beyond_it(tmp_path: Path) -> None:
    written = running(tmp_path / "checkpoint")
    epoch = copy_checkpoint(LocalFiles(), written.path, tmp_path / "copy")

    assert epoch == 1
    names = sorted(
        str(file.relative_to(tmp_path / "copy")) for file in (tmp_path / "copy").rglob("*") if file.is_file()
    )
    assert names == [
        "commits/0",
        "commits/1",
        "metadata",
        "offsets/0",
        "offsets/1",
        "sources/0/1",
        "state/0/0/1.changelog",
        "state/0/0/2.changelog",
        "state/0/_metadata/metadata",
    ]


def test_a_rewound_copy_runs_its_last_epoch_again(tmp_path: Path) -> None:
    written, copy = running(tmp_path / "checkpoint"), tmp_path / "copy"
    copy_checkpoint(LocalFiles(), written.path, copy)

    assert rewind(copy) == 1
    assert read_state(LocalFiles(), str(copy)).version == 1
    assert not (copy / "commits/1").exists()
    assert (copy / "offsets/1").exists()
    assert not (copy / "state/0/0/2.changelog").exists()


def test_schemas_of_transform_with_state_are_those_of_the_copy(tmp_path: Path) -> None:
    written, copy = running(tmp_path / "checkpoint"), tmp_path / "copy"
    value = {
        "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateInPySparkExec"},
        "stateStoreInfo": [
            {
                "storeName": "default",
                "numPartitions": 1,
                "stateSchemaFilePaths": [f"file:{written.path}/state/0/_stateSchema/default/0_a"],
            }
        ],
    }
    written.put("state/0/_metadata/v2/0", b"v2\n" + json.dumps(value).encode())
    written.put("state/0/_stateSchema/default/0_a", b"schema")
    copy_checkpoint(LocalFiles(), written.path, copy)
    _, _, rest = (copy / "state/0/_metadata/v2/0").read_text().partition("\n")

    (path,) = json.loads(rest)["stateStoreInfo"][0]["stateSchemaFilePaths"]
    assert Path(path.removeprefix("file:")).read_bytes() == b"schema"
    assert path.startswith(f"file:{copy}/")


def test_a_checkpoint_without_a_commit_is_refused(tmp_path: Path) -> None:
    written = Written(tmp_path)

    with pytest.raises(Refused, match="committed no epoch yet"):
        copy_checkpoint(LocalFiles(), written.path, tmp_path / "copy")


def test_a_version_that_is_gone_is_not_copied_silently(tmp_path: Path) -> None:
    written = running(tmp_path / "checkpoint")
    (tmp_path / "checkpoint/state/0/0/1.changelog").unlink()

    with pytest.raises(Refused, match="removed files"):
        copy_checkpoint(LocalFiles(), written.path, tmp_path / "copy")
