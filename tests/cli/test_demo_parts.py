"""The demonstration's own instruments: a zero in its table is worth something only if they find faults."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.cli import main
from epochal.cli.demo import orders
from epochal.cli.demo.count import count
from epochal.cli.demo.moments import LANDED, PLAN, PREPARED, UNSEEN, is_due, wanted
from epochal.cli.demo.places import Places
from epochal.cli.demo.process import Driver
from epochal.cli.demo.watch import Sight, Watch

IDLE = Sight(
    planned=4,
    committed=4,
    staging=False,
    prepared=False,
    done=4,
    plain_planned=6,
    plain_committed=6,
    plain_landed=False,
)
AT_START = replace(IDLE, committed=2, done=2, plain_committed=3)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def put(folder: Path, name: str, content: str = "") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def put_rows(folder: Path, name: str, numbers: Sequence[int]) -> None:
    rows = [{**orders.order(number), "amount": float(str(orders.order(number)["amount"]))} for number in numbers]
    put(folder, name, "".join(json.dumps(row) + "\n" for row in rows))


def test_orders_are_the_same_every_time_and_all_different() -> None:
    made = [orders.order(number) for number in range(100)]

    assert made == [orders.order(number) for number in range(100)]
    assert len({json.dumps(order) for order in made}) == 100


def test_source_has_one_file_an_epoch(tmp_path: Path) -> None:
    orders.write(tmp_path / "incoming", epochs=3, rows=5)

    files = sorted((tmp_path / "incoming").iterdir())
    assert [len(file.read_text().splitlines()) for file in files] == [5, 5, 5]


def test_count_of_a_whole_target_is_perfect(tmp_path: Path) -> None:
    put_rows(tmp_path, "region=asia/part-0.json", range(7))
    put_rows(tmp_path, "region=europe/part-0.json", range(7, 10))

    assert count(tmp_path, 10).perfect


@pytest.mark.parametrize(
    ("numbers", "fault", "value"),
    [([*range(10), 3, 3], "duplicates", 2), (range(1, 10), "missing", 1), (range(11), "wrong", 1)],
)
def test_count_finds_what_is_doubled_missing_or_foreign(
    tmp_path: Path, numbers: Sequence[int], fault: str, value: int
) -> None:
    put_rows(tmp_path, "part-0.json", numbers)

    found = count(tmp_path, 10)

    assert getattr(found, fault) == value
    assert not found.perfect


def test_count_finds_a_row_that_came_out_changed(tmp_path: Path) -> None:
    put(tmp_path, "part-0.json", json.dumps({**orders.order(0), "amount": 0.01}))

    found = count(tmp_path, 1)

    assert (found.wrong, found.missing) == (1, 1)


def test_count_passes_over_what_readers_pass_over(tmp_path: Path) -> None:
    put_rows(tmp_path, "_epochal/staged/x/part-0.json", range(10))
    put_rows(tmp_path, "_temporary/part-0.json", range(10))
    put_rows(tmp_path, ".part-0.json.crc", range(10))

    assert count(tmp_path, 10).found == 0


def test_rows_of_epochal_before_their_commit_are_seen_as_early(places: Places) -> None:
    watch = Watch(places)
    put(places.exact_checkpoint, "commits/0")
    put(places.by_day, "day=x/part-000000000000-00000-1f0c9a2e.json")
    watch.look()
    assert watch.early["by_day"] == set()

    put(places.by_day, "day=x/part-000000000001-00000-1f0c9a2e.json")
    watch.look()

    assert watch.early["by_day"] == {1}


def test_rows_of_the_plain_query_before_their_commit_are_seen_as_early(places: Places) -> None:
    watch = Watch(places)
    put(places.plain_checkpoint, "commits/0")
    put(places.plain, "region=asia/part-0.json")
    assert not watch.look().plain_landed

    put(places.plain, "region=asia/part-1.json")
    assert watch.look().plain_landed
    put(places.plain_checkpoint, "commits/1")

    assert not watch.look().plain_landed
    assert watch.early["plain"] == {1}


def test_what_a_dead_driver_left_does_not_count_as_landed(places: Places) -> None:
    watch = Watch(places)
    put(places.plain, "region=asia/part-0.json")
    watch.driver_started()

    assert not watch.look().plain_landed


def test_an_attempt_is_seen_from_staging_to_done(places: Places) -> None:
    watch = Watch(places)
    put(places.exact_checkpoint, "offsets/0")
    assert "planned" in watch.look().describe_exact()

    put(places.by_day, "_epochal/staged/lineage/000000000000.000002-5a17/data/x")
    assert watch.look().staging
    put(places.journal, "e000000000000.g000001.json")  # a dead driver's
    assert not watch.look().prepared
    put(places.journal, "e000000000000.g000002.json")
    assert watch.look().prepared
    put(places.exact_checkpoint, "commits/0")
    assert "not yet all visible" in watch.look().describe_exact()
    put(places.journal, "e000000000000.done.json")

    assert watch.look().describe_exact() == "between two epochs"


def test_no_kill_before_a_start_has_finished_an_epoch() -> None:
    prepared = replace(AT_START, prepared=True, planned=3)

    assert not is_due(PREPARED, prepared, AT_START, epochs=12)
    assert is_due(PREPARED, replace(prepared, committed=3, planned=4), AT_START, epochs=12)


def test_the_kill_after_the_append_waits_for_just_that() -> None:
    assert not is_due(LANDED, replace(IDLE, planned=5, prepared=True), AT_START, epochs=12)
    assert is_due(LANDED, replace(IDLE, plain_landed=True), AT_START, epochs=12)


def test_near_the_end_any_moment_in_an_epoch_will_do() -> None:
    late = replace(IDLE, committed=9, done=9, planned=10)

    assert is_due(UNSEEN, late, AT_START, epochs=12)
    assert not is_due(UNSEEN, late, AT_START, epochs=20)
    assert is_due(LANDED, replace(late, plain_committed=10), AT_START, epochs=12)


def test_the_first_kill_is_the_one_that_doubles_rows_of_the_plain_query() -> None:
    assert wanted(0) is LANDED
    assert [wanted(number) for number in range(len(PLAN), 2 * len(PLAN))] == list(PLAN)


@pytest.fixture
def sleeper(places: Places, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A process in place of the driver, with a child in its group as the JVM is one."""
    really = subprocess.Popen
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: really([sys.executable, "-c", program], **options))
    places.scratch.mkdir(parents=True)
    return Driver(places)


def test_a_driver_is_spared_when_the_moment_has_passed(sleeper: Driver) -> None:
    try:
        assert not sleeper.kill_if(lambda: False)
        assert sleeper.ended() is None
    finally:
        sleeper.kill()


def test_a_kill_takes_the_whole_group(sleeper: Driver) -> None:
    assert sleeper.kill_if(lambda: True)

    assert sleeper.ended() == -9


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "mine.txt", "precious")

    assert main(["demo", "--keep", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_a_driver_that_cannot_run_is_exit_code_1_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    really = subprocess.Popen
    program = [sys.executable, "-c", "import sys; sys.exit('no java here')"]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: really(program, **options))

    assert main(["demo", "--rows", "1"]) == 1
    assert "no java here" in capsys.readouterr().err


def test_a_driver_that_ends_before_all_kills_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    really = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: really([sys.executable, "-c", ""], **options))

    assert main(["demo", "--rows", "1", "--json"]) == 1
    assert "only 0 kills of 3" in json.loads(capsys.readouterr().out)["error"]["message"]
