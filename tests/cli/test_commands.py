from __future__ import annotations

import io
import json
import os
import shutil
import tomllib
from pathlib import Path
from unittest.mock import patch

import pytest

from epochal import CassandraSink, KafkaSink, PostgresSink
from epochal._version import __version__
from epochal.cli import main, streams, text
from epochal.sinks.config import kinds
from epochal.testing import DirectoryParticipant
from epochal.txn.files import LocalFiles
from epochal.txn.model import Json
from tests.cli.scene import Scene

ON_STREAMS = ("status", "recover", "gc")


@pytest.mark.parametrize("command", ON_STREAMS)
def test_a_folder_that_is_not_there_is_one_line_and_exit_code_2(scene: Scene, command: str) -> None:
    answer = scene.epochal(command, str(scene.root / "nowhere"))

    assert answer.code == 2
    assert answer.err.startswith("epochal: Refused: ")
    assert "there is no such folder" in answer.err
    assert answer.err.count("\n") == 1
    assert not (scene.root / "nowhere").exists()


@pytest.mark.parametrize("command", ON_STREAMS)
def test_a_folder_that_is_no_checkpoint_is_refused(scene: Scene, command: str) -> None:
    foreign = scene.root / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("hello")

    answer = scene.epochal(command, str(foreign))

    assert answer.code == 2
    assert "is not the checkpoint of a streaming query" in answer.err
    assert [path.name for path in foreign.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("command", ON_STREAMS)
def test_a_checkpoint_that_epochal_never_wrote_is_refused(scene: Scene, command: str) -> None:
    answer = scene.command(command)

    assert answer.code == 2
    assert "epochal has not run on this checkpoint" in answer.err


@pytest.mark.parametrize("command", ON_STREAMS)
def test_a_torn_record_is_named(scene: Scene, command: str) -> None:
    scene.run(scene.driver(), 1)
    torn = scene.checkpoint / "epochal" / "e000000000000.done.json"
    torn.write_bytes(torn.read_bytes()[:20])

    answer = scene.command(command)

    assert answer.code == 2
    assert str(torn) in answer.err
    assert "torn" in answer.err


@pytest.mark.parametrize("command", ON_STREAMS)
def test_a_foreign_file_in_the_journal_is_named(scene: Scene, command: str) -> None:
    scene.run(scene.driver(), 1)
    (scene.checkpoint / "epochal" / "readme.md").write_text("hello")

    answer = scene.command(command)

    assert answer.code == 2
    assert "readme.md" in answer.err


@pytest.mark.parametrize("command", ON_STREAMS)
def test_another_checkpoints_journal_is_refused(
    scene: Scene, command: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path_factory.mktemp("other")
    scene.decide(scene.driver(), 0)
    shutil.copytree(scene.checkpoint, other / "checkpoint")
    metadata = other / "checkpoint" / "metadata"
    metadata.write_text('{"id": "another"}')

    answer = scene.epochal(command, str(other / "checkpoint"))

    assert answer.code == 2
    assert "the checkpoint belongs to another" in answer.err
    assert scene.target().rows() == []


def test_verbose_shows_the_trace_and_may_stand_on_either_side(scene: Scene) -> None:
    nowhere = str(scene.root / "nowhere")

    assert "Traceback" not in scene.epochal("status", nowhere).err
    assert "Traceback" in scene.epochal("-v", "status", nowhere).err
    assert "Traceback" in scene.epochal("status", "-v", nowhere).err


def test_version_and_help_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"epochal {__version__}\n"

    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "examples:" in shown
    for command in (*ON_STREAMS, "compact", "demo"):
        assert f"epochal {command}" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["status"],
        ["unknown"],
        ["recover", "x", "--timeout", "soon"],
        ["demo", "--kills", "2"],
        ["gc", "x", "--no"],
        ["compact"],
        ["ui", "x", "--port", "65536"],
        ["serve", "kafka", "--port", "0"],
        ["serve", "s3", "--port", "9" * 5000],
    ],
)
def test_wrong_usage_has_an_exit_code_of_its_own(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^64$"):
        main(arguments)
    assert "usage: epochal" in capsys.readouterr().err


@pytest.mark.parametrize("command", ON_STREAMS)
def test_a_hadoop_uri_starts_spark_and_a_local_path_does_not(
    scene: Scene, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.run(scene.driver(), 1)
    started: list[str] = []
    monkeypatch.setattr(streams, "start_spark", started.append)

    assert scene.command(command).code == 0
    assert started == []
    answer = scene.epochal(command, "hdfs://nowhere/checkpoint")
    assert started == ["hdfs://nowhere/checkpoint"]
    assert answer.code == 2  # the stand-in started nothing
    assert "start a SparkSession" in answer.err


def test_a_sink_on_hadoop_starts_spark_only_when_it_is_needed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    target = scene.target()
    description = {**target.describe(), "target": "hdfs://nowhere/orders"}
    monkeypatch.setattr(target, "describe", lambda _rows: description)
    scene.run(scene.driver(target), 1)
    started: list[str] = []
    monkeypatch.setattr(streams, "start_spark", started.append)

    scene.command("recover")  # nothing waits, so no sink is asked

    assert started == []


def test_an_entry_point_comes_before_what_is_built_in(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(DirectoryParticipant):
        def __init__(self, path: str, *, name: str) -> None:
            super().__init__("elsewhere", name=name)

    class Point:
        def load(self) -> object:
            return Elsewhere

    asked: list[tuple[str, str]] = []

    def points(*, group: str, name: str) -> list[Point]:
        asked.append((group, name))
        return [Point()]

    monkeypatch.setattr(kinds, "entry_points", points)

    built = streams.build({"type": "directory", "name": "orders", "target": "here"})

    assert asked == [("epochal.sinks", "directory")]
    assert built.describe()["target"] == "elsewhere"


def test_every_kind_that_this_package_registers_is_built_in() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    assert project["entry-points"][kinds.GROUP] == kinds.BUILT_IN


@pytest.mark.parametrize("kind", sorted(kinds.BUILT_IN))
def test_what_is_built_in_needs_no_installation(kind: str, monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    monkeypatch.setattr(kinds, "entry_points", lambda **_: [])
    of_each: dict[str, dict[str, Json]] = {
        "files": {"format": "json"},
        "delta": {"mode": "append", "keys": []},
        "kafka": KafkaSink("orders", bootstrap_servers=["127.0.0.1"], key="id").describe(),
        "postgres": PostgresSink("shop.orders").describe(),
        "cassandra": CassandraSink("shop.orders", staging=str(scene.root / "staged")).describe(),
    }
    target = str(scene.root / "orders")

    built = streams.build({"type": kind, "target": target, **of_each.get(kind, {}), "name": "orders"})

    assert built.name == "orders"


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_and_no_color_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()

    assert text.paint("settled", "green", terminal) == "\033[32msettled\033[0m"  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert text.paint("settled", "green", terminal) == "settled"  # type: ignore[arg-type]


def test_on_a_terminal_only_our_own_styles_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    painted = text.paint("held\x1b[2J", "red", terminal)
    text.show(f"{painted}: \x1b[8mhidden", terminal)

    assert terminal.getvalue() == "\033[31mheld\\x1b[2J\033[0m: \\x1b[8mhidden\n"


@pytest.mark.parametrize("command", ["status", "audit", "recover", "roll", "gc"])
def test_errors_are_json_where_json_was_asked_for(scene: Scene, command: str) -> None:
    answer = scene.epochal(command, str(scene.root / "nowhere"), "--json")

    assert answer.code == 2
    assert answer.json["error"]["type"] == "Refused"
    assert "there is no such folder" in answer.json["error"]["message"]
    assert answer.json["error"]["exit_code"] == 2
    assert answer.err == ""


def test_wrong_usage_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recover", "--json", "--timeout", "soon", "checkpoints/orders"])
    told = json.loads(capsys.readouterr().out)

    assert ended.value.code == told["error"]["exit_code"] == 64
    assert "a number of seconds" in told["error"]["message"]


@pytest.mark.parametrize(("part", "advice"), [("checkpoint", "checkpointLocation"), ("epochal", "--journal")])
def test_a_folder_that_may_not_be_read_is_reported_with_what_to_do(scene: Scene, part: str, advice: str) -> None:
    scene.run(scene.driver(), 1)

    def names(files: LocalFiles, path: str) -> tuple[str, ...]:
        if path.endswith(part):
            raise PermissionError(13, "Permission denied", path)
        return tuple(sorted(os.listdir(path)))

    with patch.object(LocalFiles, "names", names):
        answer = scene.command("status")

    assert answer.code == 2
    assert "Permission denied" in answer.err
    assert advice in answer.err
    assert "as a user who may read it" in answer.err


@pytest.mark.parametrize("command", ["status", "audit", "recover", "roll", "gc", "compact", "demo", "serve"])
def test_help_keeps_the_names_as_they_are(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())

    assert [name for name in (" spark ", " spark's ", "ctrl-c", "csv ") if name in told] == []


@pytest.mark.parametrize(
    ("arguments", "usage", "message"),
    [
        ("restore a b --forked", "restore", "unrecognized arguments: --forked; did you mean '--fork'?"),
        ("run a.toml --standbye", "run", "unrecognized arguments: --standbye; did you mean '--standby'?"),
        ("state a --core 4", "state", "unrecognized arguments: --core 4; did you mean '--cores'?"),
        ("state a --core=4", "state", "unrecognized arguments: --core=4; did you mean '--cores'?"),
        ("serve hdfs --datanode 2", "serve hdfs", "unrecognized arguments: --datanode 2; did you mean '--datanodes'?"),
        ("status a b", "status", "unrecognized arguments: b\n"),
    ],
)
def test_a_misspelt_or_abbreviated_option_gets_the_usage_of_its_command_and_the_nearest_name(
    capsys: pytest.CaptureFixture[str], arguments: str, usage: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    err = capsys.readouterr().err
    with pytest.raises(SystemExit) as as_json:
        main([*arguments.split(), "--json"])

    assert ended.value.code == as_json.value.code == 64
    assert err.startswith(f"usage: epochal {usage} ")
    assert message in err
