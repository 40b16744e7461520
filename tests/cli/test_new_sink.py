"""The package that `epochal new-sink` writes. That it passes the contract: integration_tests/sqlite/test_package.py."""

from __future__ import annotations

import ast
import importlib
import keyword
import sys
import tomllib
from pathlib import Path
from unittest.mock import patch

import pytest
from hatchling.builders.wheel import WheelBuilder

from epochal.cli import new_sink
from epochal.sinks.config import kinds
from tests.cli.scene import Scene

EXAMPLE = Path(__file__).parents[2] / "examples" / "sqlite-sink"


@pytest.fixture(autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the commands run."""
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


def test_the_example_is_what_it_writes_for_the_name_sqlite(scene: Scene, here: Path) -> None:
    assert scene.epochal("new-sink", "sqlite").code == 0

    assert texts(here / "epochal-sqlite") == texts(EXAMPLE)


@pytest.mark.parametrize(
    ("name", "module", "sink"),
    [("queue", "queue", "QueueSink"), ("my-queue2", "my_queue2", "MyQueue2Sink"), ("a_b-c", "a_b_c", "ABCSink")],
)
def test_its_module_and_its_entry_point_are_those_of_the_name(
    scene: Scene, here: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, sink: str
) -> None:
    assert scene.epochal("new-sink", name).code == 0
    folder = here / f"epochal-{name}"

    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == f"epochal-{name}"
    assert project["entry-points"][kinds.GROUP] == {name: f"epochal_{module}:{sink}"}
    monkeypatch.syspath_prepend(str(folder))
    made = getattr(importlib.import_module(f"epochal_{module}"), sink)(str(here / "a.db"), table="orders")
    monkeypatch.delitem(sys.modules, f"epochal_{module}")
    assert (made.kind, made.name) == (name, name)
    assert made.target == f"{name}:{here / 'a.db'}#orders"
    assert type(made).from_description(made.describe()).target == made.target
    (wheel,) = WheelBuilder(str(folder)).build(directory=str(here), versions=["standard"])
    assert Path(wheel).name == f"epochal_{module}-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize("name", ["store", "participant", "connect", "wrong", "sink", "sqlite3", "spark"])
def test_no_name_collides_with_one_that_the_files_use_themselves(scene: Scene, here: Path, name: str) -> None:
    assert scene.epochal("new-sink", name).code == 0

    def defined(file: Path) -> list[str]:
        found = []
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.append(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found += [alias.asname or alias.name for alias in node.names]
        return found

    for file in (here / f"epochal-{name}").glob("*.py"):
        names = defined(file)
        assert len({*names}) == len(names)


def test_nothing_of_the_example_s_name_is_left_but_the_standard_library_s(scene: Scene, here: Path) -> None:
    assert scene.epochal("new-sink", "queue").code == 0

    words, before = " ".join(texts(here / "epochal-queue").values()), " ".join(texts(EXAMPLE).values())
    for of_the_standard_library in ("sqlite3", "sqlite_errorname"):
        assert words.count(of_the_standard_library) == before.count(of_the_standard_library) > 0
        words = words.replace(of_the_standard_library, "")
    assert "sqlite" not in words
    assert "Sqlite" not in words


@pytest.mark.parametrize(
    "name", ["", "Queue", "2queue", "my queue", "my--queue", "queue-", "_queue", "grün", "../queue", "q" * 41, "a\n"]
)
def test_what_is_no_name_is_refused_and_nothing_is_written(scene: Scene, here: Path, name: str) -> None:
    answer = scene.epochal("new-sink", "--folder", "new", "--", name)

    assert answer.code == 2
    assert "lower-case letters and digits" in answer.err
    assert [*here.iterdir()] == []


@pytest.mark.parametrize("name", ["class", "lambda"])
def test_a_word_of_python_is_refused(scene: Scene, here: Path, name: str) -> None:
    assert keyword.iskeyword(name)

    answer = scene.epochal("new-sink", name)

    assert answer.code == 2
    assert "a word of Python's own" in answer.err
    assert [*here.iterdir()] == []


@pytest.mark.parametrize("name", ["kafka", "postgres", "directory", "my_queue"])
def test_the_name_of_a_kind_that_is_there_is_refused_however_it_is_spelled(scene: Scene, here: Path, name: str) -> None:
    with patch.object(kinds, "kinds", return_value=["directory", "kafka", "my-queue", "postgres"]):
        answer = scene.epochal("new-sink", name)

    assert answer.code == 2
    assert f"there is a kind of sinks '{name.replace('_', '-')}' already" in answer.err
    assert [*here.iterdir()] == []


def test_all_faults_of_name_and_folder_are_in_one_message(scene: Scene, here: Path) -> None:
    (here / "there").mkdir()

    for name, folder, faults in (
        ("Queue", "there", ("lower-case", "there: is there already")),
        ("files", "nowhere/new", ("there is a kind of sinks 'files'", "there is no folder")),
        ("class", "", ("a word of Python's own", "'': is there already")),
    ):
        answer = scene.epochal("new-sink", name, "--folder", folder)
        assert answer.code == 2
        assert [fault for fault in ("2 faults", *faults) if fault not in answer.err] == []
    assert [path.name for path in here.iterdir()] == ["there"]


@pytest.mark.parametrize("what", ["folder", "file", "link that leads nowhere"])
def test_a_folder_that_is_there_is_left_as_it_is(scene: Scene, here: Path, what: str) -> None:
    place = here / "epochal-queue"
    if what == "folder":
        place.mkdir()
    elif what == "file":
        place.write_text("mine")
    else:
        place.symlink_to(here / "nowhere")

    answer = scene.epochal("new-sink", "queue")

    assert answer.code == 2
    assert "epochal-queue: is there already; name a new folder by --folder" in answer.err
    assert [*here.rglob("*")] == [place]
    assert what != "file" or place.read_text() == "mine"


def test_a_disk_that_is_full_leaves_no_half_of_a_package(scene: Scene, here: Path) -> None:
    write = Path.write_text

    def full(path: Path, text: str, encoding: str) -> int:
        if path.name == "pyproject.toml":
            raise OSError(28, "No space left on device", str(path))
        return write(path, text, encoding)

    with patch.object(Path, "write_text", full):
        answer = scene.epochal("new-sink", "queue")

    assert answer.code == 1
    assert "No space left on device" in answer.err
    assert [*here.iterdir()] == []


def test_it_says_what_to_do_next_with_paths_that_a_shell_takes(scene: Scene, here: Path) -> None:
    short = scene.epochal("new-sink", "queue").out
    long = scene.epochal("new-sink", "queue", "--folder", str(here / "my sinks")).out

    assert "pip install -e ./epochal-queue pytest" in short
    assert f"pytest '{here / 'my sinks'}'" in long
    for file in new_sink.FILES:
        assert f"  {new_sink.renamed(file, 'queue')}\n" in short
