"""What the commands print with --json fits the published schemas, and every key of it is described there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest

from epochal.cli import arguments, main, schema
from epochal.cli.console.model import Phase
from epochal.cli.exit_codes import MEANINGS
from epochal.cli.verdict import Standing
from epochal.sinks.storage.sink_files import LocalSinkFiles
from epochal.testing import DirectoryParticipant
from epochal.txn.audit import AuditVerdict
from epochal.txn.errors import CommitFailed
from epochal.txn.live import LiveState
from epochal.txn.liveness import Liveness
from epochal.txn.plan import Removal
from epochal.txn.resolution import Resolution
from epochal.txn.states import State
from tests.cli.scene import Scene, dying, elsewhere, going_away
from tests.sinks.compacting import name_of, publish


def strict(part: Any) -> Any:
    """The schema, but a key that it does not describe is an error."""
    if isinstance(part, list):
        return [strict(one) for one in part]
    if not isinstance(part, dict):
        return part
    changed = {key: strict(value) for key, value in part.items()}
    return {**changed, "additionalProperties": False} if "properties" in part else changed


def check(name: str, answer: Any) -> None:
    jsonschema.validate(answer, strict(json.loads(schema.text_of(name))))


@pytest.mark.parametrize("name", schema.names())
def test_each_schema_is_one_and_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    printed = json.loads(capsys.readouterr().out)

    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed["$schema"].endswith("2020-12/schema")


def test_the_help_names_every_schema() -> None:
    assert schema.names() == sorted(arguments.SCHEMAS)


def of(name: str, *path: str) -> set[Any]:
    """The values that a schema allows somewhere."""
    part = json.loads(schema.text_of(name))["properties"]
    for step in path:
        part = part[step]
    return set(part["enum"])


def test_schemas_list_the_values_that_the_code_has() -> None:
    item = ("items", "properties")

    assert of("status", "state") == {standing.value for standing in Standing}
    assert of("status", "driver", "properties", "liveness") == {liveness.value for liveness in Liveness}
    states = {state.value for state in LiveState} | {None}
    assert of("status", "driver", "properties", "state") == states
    assert of("status", "leftovers", *item, "state") == {state.value for state in State}
    assert of("gc", "kept", *item, "rule") == {removal.value for removal in Removal}
    assert (
        of("audit", "verdict") == of("audit", "sinks", *item, "verdict") == {verdict.value for verdict in AuditVerdict}
    )
    snapshot = ("streams", *item, "snapshot", "properties")
    assert of("top", *snapshot, "headline", "properties", "standing") == {standing.value for standing in Standing}
    assert of("top", *snapshot, "driver", "properties", "liveness") == {liveness.value for liveness in Liveness}
    assert of("top", *snapshot, "epochs", *item, "phase") == {phase.value for phase in Phase}
    assert of("resolve", "resolution") == {resolution.value for resolution in Resolution}
    assert of("error", "error", "properties", "exit_code") < set(MEANINGS)
    assert of("status", "exit_code") < set(MEANINGS)


def nothing_yet(scene: Scene) -> None:
    scene.driver()


def settled(scene: Scene) -> None:
    scene.run(scene.driver(), 3)


def in_doubt(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)
    scene.prepare(driver, 1)


def held(scene: Scene) -> None:
    right = scene.target("right")
    driver = scene.driver(scene.target("left"), right)
    scene.decide(driver, 0)
    with going_away(right), pytest.raises(CommitFailed):
        driver.settle()


def staging_and_dead(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)


def of_another_machine(scene: Scene) -> None:
    with elsewhere():
        scene.run(scene.driver(), 1)


def emptied(scene: Scene) -> None:
    settled(scene)
    for file in (scene.root / "directory").glob("0*"):
        file.unlink()


def fenced(scene: Scene) -> None:
    staging_and_dead(scene)
    scene.command("gc", "--yes", "--fence")


def retired(scene: Scene) -> None:
    staging_and_dead(scene)
    scene.command("retire", "--why", "moved")


SCENES: list[Callable[[Scene], None]] = [
    nothing_yet,
    settled,
    in_doubt,
    held,
    staging_and_dead,
    of_another_machine,
    emptied,
    fenced,
    retired,
]


@pytest.mark.parametrize("made", SCENES)
def test_status_fits_its_schema_in_every_state(scene: Scene, made: Callable[[Scene], None]) -> None:
    made(scene)

    answer = scene.command("status", "--json")

    check("status", answer.json)
    assert answer.json["exit_code"] == answer.code


@pytest.mark.parametrize("made", SCENES)
@pytest.mark.parametrize(
    "command", [["gc"], ["gc", "--fence"], ["gc", "--yes"], ["audit"], ["audit", "--fast"], ["recover"]]
)
def test_the_answers_of_other_commands_fit_their_schemas(
    scene: Scene, made: Callable[[Scene], None], command: list[str]
) -> None:
    made(scene)

    answer = scene.command(*command, "--json")

    check("error" if "error" in answer.json else command[0], answer.json)


@pytest.mark.parametrize("made", SCENES)
def test_top_fits_its_schema_in_every_state(scene: Scene, made: Callable[[Scene], None]) -> None:
    made(scene)

    answer = scene.command("top", str(scene.root / "nowhere"), "--once", "--json")

    assert answer.code == 2  # there is no such checkpoint as the second one
    check("top", answer.json)


@pytest.mark.parametrize(("made", "options"), [(held, ["--commit", "0"]), (staging_and_dead, ["--abort", "1"])])
def test_resolve_fits_its_schema(scene: Scene, made: Callable[[Scene], None], options: list[str]) -> None:
    made(scene)

    answer = scene.command("resolve", *options, "--json")

    assert answer.code == 0
    check("resolve", answer.json)


def test_retire_fits_its_schema(scene: Scene) -> None:
    staging_and_dead(scene)

    for options in (["--why", "moved"], ["--why", "again"], ["--undo"], ["--undo"]):
        check("retire", scene.command("retire", *options, "--json").json)


def test_roll_and_compact_fit_their_schemas(scene: Scene) -> None:
    settled(scene)
    target = scene.root / "files"
    for epoch in range(3):
        publish(LocalSinkFiles(sync=False), epoch, {name_of(epoch): b"1\n"}, target=str(target))

    check("roll", scene.command("roll", "--json").json)
    check("compact", scene.epochal("compact", str(target), "--json", "--dry-run").json)
    check("compact", scene.epochal("compact", str(target), "--json").json)


@pytest.mark.parametrize("command", ["status", "audit", "recover", "roll", "gc"])
def test_errors_fit_their_schema(scene: Scene, command: str) -> None:
    check("error", scene.epochal(command, str(scene.root / "nowhere"), "--json").json)


def test_errors_of_stores_and_of_usage_fit_their_schema(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    held(scene)
    with going_away(DirectoryParticipant):
        away = scene.command("recover", "--timeout", "0", "--json")
    with patch("epochal.cli.status.read_status", side_effect=KeyboardInterrupt):
        interrupted = scene.command("status", "--json")
    with pytest.raises(SystemExit):
        main(["status", "--json"])
    usage = json.loads(capsys.readouterr().out)

    for answer, code in ((away.json, 1), (interrupted.json, 130), (usage, 64)):
        check("error", answer)
        assert answer["error"]["exit_code"] == code


def test_savepoints_and_restores_fit_their_schemas(scene: Scene) -> None:
    with dying():
        scene.run(scene.driver(), 2)
    backups = str(scene.root / "backups")
    savepoint = scene.command("savepoint", backups, "--json").json
    listed = scene.epochal("savepoints", backups, "--json").json
    with dying():
        scene.run(scene.driver(), 3)
    fork = scene.epochal("restore", savepoint["savepoint"], str(scene.root / "fork"), "--fork", "--json").json
    moved = scene.epochal("restore", savepoint["savepoint"], str(scene.root / "moved"), "--json").json
    removed = scene.epochal("savepoints", backups, "--remove", savepoint["name"], "--json").json

    check("savepoint", savepoint)
    check("savepoints", listed)
    check("savepoints", removed)
    check("restore", fork)
    check("restore", moved)
    check("status", scene.command("status", "--json").json)
    check("retire", scene.command("retire", "--why", "over", "--json").json)
    for place, said in (("fork", "forked from"), ("moved", "restored from")):
        status = scene.epochal("status", str(scene.root / place), "--json").json
        check("status", status)
        assert said in status["summary"]
    assert moved["ahead"] == {"directory": 2}
    assert removed["swept"] > 0


def test_new_sink_fits_its_schema(scene: Scene) -> None:
    folder = scene.root / "mine"

    answer = scene.epochal("new-sink", "my-queue", "--folder", str(folder), "--json").json
    again = scene.epochal("new-sink", "my-queue", "--folder", str(folder), "--json").json

    check("new-sink", answer)
    check("error", again)
    assert answer["folder"] == str(folder)
    assert sorted(answer["files"]) == sorted(path.name for path in folder.iterdir())
