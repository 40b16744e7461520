"""``epochal state``, and what status and the console show of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from epochal.cli import main
from tests.cli.scene import QUERY as OF_SCENE
from tests.cli.scene import Scene
from tests.cli.test_schemas import check
from tests.spark_plugins.recovery.written import HDFS_BACKED, Written, lz4, rows, stateful, untagged


@pytest.fixture(autouse=True)
def no_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))


def test_state_is_shown_by_operator_and_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["state", stateful(tmp_path).path, "--cores", "2"])

    shown = capsys.readouterr().out
    assert code == 0
    assert "2; a recovery restores version 3" in shown
    assert "stateStoreSave  RocksDB            2   ~40" in shown
    assert "40 rows" in shown
    assert "by guesses" in shown


def test_state_as_json_fits_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", stateful(tmp_path).path, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    check("state", answer)
    (operator,) = answer["operators"]
    assert (operator["rows"], operator["extent"], operator["replay_rows"], operator["skew"]) == (40, 1, 40, 1.5)
    assert [partition["snapshot"] for partition in operator["partitions"]] == [2, 2]


def test_a_version_that_is_missing_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = stateful(tmp_path)
    (tmp_path / "state/0/0/3.changelog").unlink()

    assert main(["state", written.path]) == 2
    assert "the first is version 3 of partition 0, store default" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", str(tmp_path / "nowhere"), "--json"]) == 2
    check("error", json.loads(capsys.readouterr().out))


def test_a_query_without_state_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = Written(tmp_path)
    written.commit(0)

    assert main(["state", written.path]) == 0
    assert "the query keeps no state" in capsys.readouterr().out


def test_state_loads_no_spark(tmp_path: Path) -> None:
    code = "import sys; from epochal.cli import main; main(['state', sys.argv[1]]); print('pyspark' in sys.modules)"
    command = [sys.executable, "-c", code, stateful(tmp_path).path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "False"


def test_status_has_a_line_for_each_operator(scene: Scene) -> None:
    scene.run(scene.driver(), 3)
    stateful(scene.checkpoint, OF_SCENE)
    shown = scene.command("status").out
    answer = scene.command("status", "--json").json

    assert "0 stateStoreSave (RocksDB): ~40 rows" in shown
    check("status", answer)
    assert answer["spark_state"]["operators"][0]["extent"] == 1


def test_state_counts_rows_of_hdfs_backed_stores_and_status_says_that_it_does_not(scene: Scene) -> None:
    scene.run(scene.driver(), 3)
    written = Written(scene.checkpoint, HDFS_BACKED, query=OF_SCENE)
    written.operator()
    written.commit(2)
    for partition in (0, 1):
        for version in (1, 2, 3):
            written.put(f"state/0/{partition}/{version}.delta", lz4(untagged(rows(0, 10 * version))))
    status, state = scene.command("status"), scene.command("state", "--json").json

    assert "0 stateStoreSave (HDFSBacked): ? rows" in status.out
    assert (state["operators"][0]["rows"], state["operators"][0]["rows_exact"]) == (60, True)


def test_status_of_a_stream_whose_state_cannot_be_read_is_shown_all_the_same(scene: Scene) -> None:
    scene.run(scene.driver(), 3)
    written = stateful(scene.checkpoint, OF_SCENE)
    written.put("state/0/0/3.changelog", b"torn")
    answer = scene.command("status", "--json").json

    assert answer["spark_state"] is None
    assert "could not be read" in answer["notes"][0]


def test_the_console_shows_what_operators_keep(scene: Scene) -> None:
    scene.run(scene.driver(), 3)
    stateful(scene.checkpoint, OF_SCENE)
    answer = scene.command("top", "--once", "--json").json

    check("top", answer)
    (operator,) = answer["streams"][0]["snapshot"]["spark_state"]["operators"]
    assert (operator["rows"], operator["extent"]) == (40, 1)
