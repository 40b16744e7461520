"""``epochal top``, one frame at a time."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from epochal.cli.console import top
from epochal.cli.console.watch import Reader, Reading
from tests.cli.console import gallery
from tests.cli.scene import Scene

ROOT = Path(__file__).parents[3]


def test_a_frame_shows_every_stream_and_one_that_cannot_be_read_hides_no_other(scene: Scene) -> None:
    streams = [gallery.held(scene.root), scene.root / "nowhere", *gallery.dead(scene.root, "sessions")]

    answer = scene.epochal("top", "--once", *map(str, streams))

    assert answer.code == 2  # as `epochal status` of the one that cannot be read
    for fact in (
        "HELD: sink 'ledger' has not shown epoch 12",
        "NoHostAvailable",
        "there is no such folder",
        "stopped and settled",
        "day=2026-11-18/country=DE",
        "\u25a0" * 9,
    ):
        assert fact in " ".join(answer.out.split())
    assert "\033" not in answer.out


def test_a_frame_for_machines_is_one_line_of_json(scene: Scene) -> None:
    answer = scene.epochal("top", "--once", "--json", str(gallery.running(scene.root)), str(scene.root / "nowhere"))

    assert answer.code == 2
    assert answer.out.count("\n") == 1
    first, second = answer.json["streams"]
    assert (first["snapshot"]["headline"]["standing"], first["error"]) == ("running", None)
    assert second["snapshot"] is None
    assert "there is no such folder" in second["error"]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_one_frame_of_a_checkpoint_that_is_not_there_has_the_exit_code_of_status(scene: Scene, more: list[str]) -> None:
    nowhere = str(scene.root / "nowhere")

    assert scene.epochal("top", "--once", nowhere, *more).code == scene.epochal("status", nowhere, *more).code == 2
    scene.run(scene.driver(), 1)
    assert scene.epochal("top", "--once", str(scene.checkpoint), *more).code == 0


def test_a_narrow_terminal_shows_the_newest_epochs(tmp_path: Path) -> None:
    shot = Reader(str(gallery.held(tmp_path)), None)()
    reading = Reading(checkpoint="payments", snapshot=shot)

    shown = render(reading, width=60)

    (ledger,) = [text for text in shown.splitlines() if text.startswith("ledger")]
    assert ledger.rstrip().endswith("\u25a0" * 7 + "H")


def test_what_is_known_stays_on_display_when_a_stream_can_no_longer_be_read(tmp_path: Path) -> None:
    shot = Reader(str(gallery.running(tmp_path)), None)()

    shown = render(Reading(checkpoint="orders", snapshot=shot, error="gone"), width=100)

    assert "gone" in shown
    assert "as of" in shown
    assert "serving" in shown


def test_a_control_character_in_a_name_does_not_reach_the_terminal() -> None:
    assert "\x1b" not in render(Reading(checkpoint="a\x1b]0;title\x07b", error="c\x1b[2Jd"), width=100)


def render(reading: Reading, *, width: int) -> str:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width).print(top.frame([reading], time.time(), width=width))
    return out.getvalue()


def test_without_rich_it_says_what_to_install(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    scene.run(scene.driver(), 1)

    answer = scene.command("top", "--once")

    assert answer.code == 2
    assert "pip install 'epochal[top]'" in answer.err
    assert scene.command("top", "--once", "--json").json["streams"][0]["error"] is None


def test_a_journal_can_be_named_for_one_stream_only(scene: Scene) -> None:
    answer = scene.epochal("top", "one", "two", "--journal", "elsewhere", "--once")

    assert answer.code == 2
    assert "give one CHECKPOINT with it" in answer.err


def test_on_a_terminal_it_refreshes_until_q_is_pressed(scene: Scene) -> None:
    scene.run(scene.driver(), 3)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "epochal.cli", "top", str(scene.checkpoint)]
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    try:
        seen = read_until(ours, b"visible everywhere", times=2)  # two frames
        os.write(ours, b"q")

        assert child.wait(30) == 0
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert b"directory" in seen


def read_until(terminal: int, wanted: bytes, *, times: int) -> bytes:
    seen, deadline = b"", time.monotonic() + 60
    while seen.count(wanted) < times:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"waited in vain: {seen!r}"
        seen += os.read(terminal, 65536)
    return seen
