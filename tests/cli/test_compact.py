"""``epochal compact`` on local targets, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from epochal.cli import compact as command
from epochal.cli import main, streams
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.txn import failpoints
from tests.cli.scene import Answer
from tests.sinks.compacting import name_of, publish, rows_by_manifest, visible

FILES = LocalSinkFiles(sync=False)


class Command:
    """Runs the command on one target."""

    def __init__(self, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.target, self._capsys = target, capsys

    def __call__(self, *options: str) -> Answer:
        self._capsys.readouterr()
        code = main(["compact", str(self.target), *options])
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)


@pytest.fixture
def compact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "target", capsys)


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(path: str) -> None:
        raise AssertionError(f"Spark was started for {path}")

    for module in (streams, command):
        monkeypatch.setattr(module, "start_spark", start)


def fill(compact: Command, epochs: int = 3, ending: str = ".json") -> None:
    for epoch in range(epochs):
        parts = {f"day={day}/{name_of(epoch, day, ending)}": b"%d %d\n" % (day, epoch) for day in (1, 2)}
        publish(FILES, epoch, parts, target=str(compact.target))


def test_a_table_shows_what_became_of_each_bucket(compact: Command) -> None:
    fill(compact)

    answer = compact()

    assert answer.code == 0
    assert answer.out.splitlines() == [
        "BUCKET  BEFORE  AFTER     BYTES",
        "day=1        3      1  12 bytes",
        "day=2        3      1  12 bytes",
        "",
        "compaction 1: 6 files became 2 files",
    ]
    assert answer.err.splitlines() == [
        "joining 6 files to 2",
        "publishing 2 joined files",
        "removing 6 files that were replaced",
    ]
    assert len(visible(FILES, str(compact.target))) == 2


def test_json_is_all_that_is_printed(compact: Command) -> None:
    fill(compact)

    answer = compact("--json")

    assert answer.err == ""
    assert answer.json == {
        "target": str(compact.target),
        "dry_run": False,
        "compaction": 1,
        "buckets": [
            {"bucket": "day=1", "files_before": 3, "files_after": 1, "bytes_joined": 12},
            {"bucket": "day=2", "files_before": 3, "files_after": 1, "bytes_joined": 12},
        ],
        "unfinished": None,
        "finished": [],
        "given_up": [],
        "missing": [],
        "left_alone": [],
        "other_endings": {},
        "waiting": [],
    }


def test_a_dry_run_shows_the_same_and_changes_nothing(compact: Command) -> None:
    fill(compact)
    before = [*FILES.walk(str(compact.target))]

    answer = compact("--dry-run")

    assert "day=1        3      1  12 bytes" in answer.out
    assert answer.out.endswith("dry run: nothing was changed\n")
    assert [*FILES.walk(str(compact.target))] == before
    dry = compact("--dry-run", "--json").json
    assert dry["buckets"] == compact("--json").json["buckets"]


def test_nothing_to_join_is_reported(compact: Command) -> None:
    fill(compact, epochs=1)

    assert compact().out == "nothing to join\n"
    assert compact("--dry-run").out == "nothing to join\n"


def test_the_limit_is_a_size_as_people_write_it(compact: Command) -> None:
    fill(compact, epochs=4)

    assert [row["files_after"] for row in compact("--json", "--max-bytes", "8 B").json["buckets"]] == [2, 2]


def test_a_grace_is_reported_and_respected(compact: Command) -> None:
    fill(compact)

    answer = compact("--grace", "1h")

    assert "compaction 1: the files it replaced stay for 59 min; run this again after that" in answer.out
    assert len(visible(FILES, str(compact.target))) == 8
    assert len(rows_by_manifest(FILES, str(compact.target))) == 6
    (waiting,) = compact("--json").json["waiting"]
    assert waiting["compaction"] == 1


def test_what_another_has_started_is_finished_and_reported(compact: Command) -> None:
    fill(compact)
    failpoints.arm("after-compact-plan=raise")
    failed = compact()
    failpoints.arm("")
    looked = compact("--dry-run")

    answer = compact()

    assert failed.code == 1
    assert "compaction 1 is not finished: the next run finishes it first" in looked.out
    assert "finishing compaction 1, which another process has begun" in answer.err
    assert "finished what another process had started: compaction 1" in answer.out
    assert answer.out.endswith("nothing to join\n")
    assert len(visible(FILES, str(compact.target))) == 2


def test_what_is_missing_and_what_is_left_alone_is_named(compact: Command) -> None:
    fill(compact, epochs=13)
    for epoch in range(13):
        (compact.target / "day=1" / name_of(epoch, 1)).unlink()
    publish(FILES, 20, {name_of(20, 0, ".xml"): b"<a/>"}, target=str(compact.target))

    answer = compact()

    assert "listed by the manifest, but missing or changed:" in answer.out
    assert f"  day=1/{name_of(0, 1)}\n" in answer.out
    assert "  and 3 more" in answer.out
    assert "left alone: 1 file with the ending .xml" in answer.out


def test_csv_wants_to_know_of_headers(compact: Command) -> None:
    fill(compact, ending=".csv")

    refused = compact()
    answer = compact("--header", "no")

    assert refused.code == 2
    assert "--header yes or --header no" in refused.err
    assert answer.code == 0
    assert len(visible(FILES, str(compact.target))) == 2


def test_a_folder_that_is_no_target_is_refused(compact: Command) -> None:
    answer = compact()

    assert answer.code == 2
    assert "no manifest of epochal" in answer.err
    assert not compact.target.exists()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--max-bytes", "much"], "'much': a number of bytes above 0"),
        (["--max-bytes", "0"], "'0': a number of bytes above 0"),
        (["--grace", "soon"], "'soon': 0, or a time above 0"),
        (["--header", "maybe"], "'maybe': yes or no"),
    ],
)
def test_wrong_options_are_reported(options: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^64$"):
        main(["compact", "x", *options])
    assert fault in capsys.readouterr().err


def test_local_row_formats_do_not_load_spark(compact: Command) -> None:
    fill(compact)
    code = (
        "import sys; from epochal.cli import main; "
        f"main(['compact', {str(compact.target)!r}, '--json']); "
        "assert 'pyspark' not in sys.modules, 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["compaction"] == 1
