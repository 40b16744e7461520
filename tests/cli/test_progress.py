from __future__ import annotations

import io
import time

import pytest

from epochal.cli import progress
from epochal.cli.progress import Display, line
from tests.cli.scene import Scene


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def until_drawn(terminal: io.StringIO, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in terminal.getvalue():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_line_shows_the_innermost_task_with_sparks_tasks_and_is_removed_at_the_end() -> None:
    terminal = Terminal()
    display = Display(terminal, tasks=lambda: (3, 12))

    with display.task("auditing") as say:
        until_drawn(terminal, "auditing [#####---------------] 3 of 12 tasks")
        say("lake: counting rows")
        until_drawn(terminal, "lake: counting rows")
        with display.task("starting Spark"):
            until_drawn(terminal, "starting Spark")

    assert terminal.getvalue().endswith("\r\033[K")


def test_spark_that_does_not_answer_does_not_stop_the_line() -> None:
    def fails() -> tuple[int, int]:
        raise ConnectionError("the JVM is gone")

    terminal = Terminal()
    with Display(terminal, tasks=fails).task("auditing"):
        until_drawn(terminal, "auditing, 0 s")


def test_what_is_quick_shows_nothing() -> None:
    terminal = Terminal()
    with Display(terminal).task("looking"):
        pass

    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_without_a_terminal_nothing_is_shown_of_what_is_soon_done(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.shown(stream), progress.task("auditing") as say:
        say("lake")
        progress.clear()

    assert stream is None or stream.getvalue() == ""


def test_without_a_terminal_what_takes_long_says_so_in_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LATE", 0.0)
    monkeypatch.setattr(progress, "AGAIN", 0.01)
    stream = io.StringIO()
    display = Display(stream, tasks=lambda: (3, 12), clock=iter(range(1_000_000)).__next__)

    with display.task("auditing\x1b[2J") as say:
        until_drawn(stream, r"epochal: auditing\x1b[2J [#####---------------] 3 of 12 tasks, 1 s" + "\n")
        say("lake: counting rows")
        until_drawn(stream, "epochal: lake: counting rows")
        display.clear()

    assert "\r" not in stream.getvalue()
    assert stream.getvalue().endswith("s\n")


def test_a_long_line_is_cut_to_the_width_of_the_terminal() -> None:
    assert len(line("x" * 500, 1, None, width=60)) == 59
    assert line("x", 1, (0, 0)) == "| x, 1 s"


def test_commands_answer_the_same_with_a_terminal(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)

    answers = [scene.command(*command) for command in (["recover"], ["audit"], ["status"], ["roll"])]

    assert [answer.code for answer in answers] == [0, 0, 0, 0]
    assert "epoch 1  directory  committed" in answers[0].out
    assert terminal.getvalue() == "" or terminal.getvalue().endswith("\r\033[K")
