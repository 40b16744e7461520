"""Commands with a journal on an object store: no Spark is needed to reach it, and no setting but its variables."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from epochal.cli import main
from epochal.testing.servers import S3Store
from epochal.testing.servers.store_server import StoreServer
from epochal.txn.files import LocalFiles
from integration_tests.objects.forks import DONE, KILLED
from integration_tests.objects.lives import Life, Lives, rows_of
from integration_tests.objects.remote import Remote


@pytest.fixture
def life(any_store: StoreServer, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    for name, value in any_store.environment.items():
        monkeypatch.setenv(name, value)
    return Life(bucket=any_store.url, place=folder, local=str(tmp_path), options=any_store.options)


def test_status_recover_log_and_gc_reach_the_journal(life: Life, capsys: pytest.CaptureFixture[str]) -> None:
    with Lives() as lives:
        ((ending, _),) = lives.run(replace(life, failpoint="before-decided", hit=2))
    assert ending == KILLED
    journal = life.journal.replace("s3://", "s3a://")  # both spellings are one
    LocalFiles().create(f"{life.checkpoint}/commits/1", b"v1\n{}")

    def answer(*command: str) -> dict[str, object]:
        capsys.readouterr()
        main([*command, "--journal", journal, "--json"])
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    before = answer("status", life.checkpoint)
    answer("recover", life.checkpoint)
    after = answer("status", life.checkpoint)
    answer("gc", life.checkpoint)
    assert main(["log", life.journal, "--json"]) == 0

    assert before["held"]
    assert not after["held"]
    shown = [name for name in LocalFiles().names(life.target("left")) if name[0] != "_"]
    assert [int(name[:12]) for name in shown] == [0, 1]
    assert rows_of(1) == []


def test_a_savepoint_has_the_journal_and_a_restore_puts_it_into_the_checkpoint(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lives() as lives:
        ((ending, said),) = lives.run(life)
    assert ending == DONE, said

    def answer(*command: str) -> dict[str, object]:
        capsys.readouterr()
        assert main([*command, "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    savepoint = str(answer("savepoint", life.checkpoint, f"{tmp_path}/backups", "--journal", life.journal)["savepoint"])
    answer("restore", savepoint, f"{tmp_path}/new")

    assert "held" in answer("status", f"{tmp_path}/new")
    records = set(LocalFiles().names(f"{tmp_path}/new/epochal"))
    assert {f"e{epoch:012d}.decided.json" for epoch in range(life.epochs)} <= records
    main(["status", life.checkpoint, "--journal", life.journal])
    assert "retired" in capsys.readouterr().out, "the original's journal says that the stream has moved"


@pytest.mark.usefixtures("s3")
def test_a_folder_of_an_object_store_that_holds_no_checkpoint_is_refused(
    life: Life, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", life.place]) == 2

    assert "there is no such folder, or it is empty" in capsys.readouterr().err


def test_every_command_names_a_bucket_that_is_missing(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lives() as lives:
        lives.run(life)
    missing, new, savepoints = "s3://there-is-none/x", str(tmp_path / "new"), str(tmp_path / "savepoints")
    assert main(["savepoint", life.checkpoint, savepoints, "--journal", life.journal, "--json"]) == 0
    savepoint = json.loads(capsys.readouterr().out)["savepoint"]

    for command in (
        ["restore", f"{missing}/one", new],
        ["restore", savepoint, missing, "--fork"],
        ["savepoint", life.checkpoint, missing, "--journal", life.journal],
        ["savepoints", missing],
        ["compact", missing, "--dry-run"],
        ["status", missing],
        ["status", life.checkpoint, "--journal", missing],
    ):
        assert main(command) == 2, command
        said = capsys.readouterr().err
        assert "Refused: " in said
        assert "no such bucket" in said


SETTINGS = """
[streams.orders]
checkpoint = "{place}/checkpoints/orders"
trigger = "available_now"
[streams.orders.source]
format = "json"
path = "{source}"
schema = "id BIGINT"
[streams.orders.sinks.archive]
type = "files"
path = "{place}/archive"
format = "json"
"""


@pytest.mark.spark
@pytest.mark.matrix
def test_a_settings_file_that_names_s3_needs_no_other_setting(s3: S3Store, life: Life, tmp_path: Path) -> None:
    source = tmp_path / "incoming"
    source.mkdir()
    (source / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    settings = tmp_path / "orders.toml"
    settings.write_text(SETTINGS.format(place=life.place, source=source))

    ended = subprocess.run(
        [sys.executable, "-m", "epochal.cli", "run", str(settings)], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr
    archive = Remote(s3, f"{life.place}/archive", tmp_path / "seen")
    text = b"".join(archive.read(key) for key in archive.objects() if key.startswith("part-"))
    assert [json.loads(line)["id"] for line in text.splitlines()] == [1, 2]
