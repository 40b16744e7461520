"""What commands print: on any terminal, and with nothing in it that controls one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal.testing import DirectoryParticipant
from epochal.txn.driver_facts import Retirement
from tests.cli.scene import Scene, Scenery

ROOT = Path(__file__).parents[2]
HOSTILE = "gone\x1b[2J\x1b]0;title\x07\r\u202e\x9b31m"
RAW = set("\x1b\x07\r\u202e\x9b")

COMMANDS = [
    ["status", "{checkpoint}"],
    ["status", "{checkpoint}", "--json"],
    ["status", "{nowhere}"],
    ["log", "{checkpoint}"],
    ["top", "--once", "{checkpoint}", "{nowhere}"],
    ["report", "-o", "-", "{checkpoint}", "{nowhere}"],
    ["report", "-o", "{folder}/größe.html", "{checkpoint}"],
    ["audit", "--fast", "{checkpoint}"],
    ["recover", "{checkpoint}"],
    ["resolve", "{checkpoint}", "--abort", "9"],
    ["roll", "{checkpoint}"],
    ["gc", "{checkpoint}"],
    ["compact", "{folder}", "--dry-run"],
    ["check", "{folder}/größe.toml"],
    ["run", "{folder}/größe.toml"],
    ["schema", "status"],
    ["retire", "{checkpoint}", "--why", "größer…"],
    ["nö"],
    ["--help"],
    ["run", "--help"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_prints_where_only_ascii_can_be_printed(tmp_path: Path, command: list[str]) -> None:
    folder = tmp_path / "größe…"
    folder.mkdir()
    (folder / "größe.toml").write_text('[streams.orders]\nsql = "größe…"\n', encoding="utf-8")
    scene = Scenery(folder)
    scene.run(scene.driver(), 3)
    places = {"checkpoint": scene.checkpoint, "nowhere": folder / "nö", "folder": folder}
    done = subprocess.run(
        [sys.executable, "-m", "epochal.cli", *(part.format(**places) for part in command)],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )

    assert b"Traceback" not in done.stderr
    assert b"UnicodeEncodeError" not in done.stdout + done.stderr
    assert done.stdout or done.stderr
    if command[:3] != ["report", "-o", "-"]:  # an HTML page is UTF-8, as it says
        assert (done.stdout + done.stderr).isascii()


def test_an_error_of_a_store_controls_no_terminal(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    with patch.object(DirectoryParticipant, "open", side_effect=OSError(HOSTILE)):
        answers = [
            scene.command(*command)
            for command in (
                ("status",),
                ("status", "--json"),
                ("status", "-v"),
                ("top", "--once"),
                ("top", "--once", "--json"),
                ("report", "-o", "-"),
                ("audit", "--fast"),
                ("gc",),
                ("recover", "--timeout", "0"),
            )
        ]

    for answer in answers:
        assert "gone" in answer.out + answer.err or answer.code == 0
        assert not RAW & set(answer.out + answer.err)


def test_an_error_that_has_lines_does_not_hide_the_first_line_of_status(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    with patch.object(DirectoryParticipant, "open", side_effect=OSError("one\ntwo\nthree")):
        lines = scene.command("status").out.splitlines()

    assert lines[0].endswith("cannot be reached from here: one two three")
    assert lines[1] == ""


def test_a_trace_controls_no_terminal(scene: Scene) -> None:
    answer = scene.epochal("-v", "status", f"{scene.root}/{HOSTILE}")

    assert "Traceback" in answer.err
    assert not RAW & set(answer.out + answer.err)


@pytest.mark.parametrize("why", ["one\ntwo", "a\x1b[2J", "a\rb", "a\tb", "\u202eback"])
def test_a_reason_with_control_characters_is_refused(
    scene: Scene, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.run(scene.driver(), 1)
    with pytest.raises(SystemExit) as ended:
        scene.command("retire", "--why", why)

    assert ended.value.code == 64
    assert "in one line, without control characters" in capsys.readouterr().err


def test_a_reason_that_was_recorded_all_the_same_is_shown_in_one_line() -> None:
    told = str(Retirement(why=f"one\n{HOSTILE}", by="root\x1b@vm", at="2026"))

    assert not (RAW | {"\n"}) & set(told)
