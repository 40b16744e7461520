from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema
import pytest

from epochal import DeltaSink, RollingFileSink
from epochal.cli import schema
from epochal.sinks.delta.table.native import NativeTable
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.standby.notices import Notices
from epochal.testing import DirectoryParticipant
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import CommitFailed
from epochal.txn.files import TEMPORARY, LocalFiles
from epochal.txn.live import Live, LiveHeld, LiveRefusal, LiveState, encode, live_beside, name_of
from epochal.txn.model import Json
from tests.cli.scene import QUERY, ROWS, Scene, dying, elsewhere, going_away


def test_a_settled_stream_is_reported_in_full(scene: Scene) -> None:
    scene.run(scene.driver(), 3)

    found = scene.command("status", "--json").json

    assert found["query"] == found["lineage"] == QUERY
    assert (found["base"], found["committed"], found["done"], found["settled"]) == (0, 2, 2, True)
    assert found["generation"]["number"] == 1
    assert found["generation"]["epochal"] == "0.0.0"
    assert found["commit"] == "checkpoint"
    (sink,) = found["sinks"]
    assert (sink["name"], sink["type"], sink["last"], sink["current"]) == ("directory", "directory", 2, True)
    assert sink["target"] == str(scene.root / "directory")
    assert found["in_doubt"] == found["held"] == found["leftovers"] == []
    assert found["journal"]["records"] == 1 + 3 * 3
    assert found["refusal"] is None


def test_epochs_that_nothing_could_prove_to_come_back_the_same_are_named(scene: Scene) -> None:
    (scene.checkpoint / "offsets").mkdir()
    (scene.checkpoint / "offsets" / "0").write_text("v1\n{}\n5")  # a socket's offset
    scene.run(scene.driver(), 2)

    found = scene.command("status", "--json").json["unprovable"]
    answer = scene.command("status")

    assert [epoch["epoch"] for epoch in found] == [0]
    assert "epoch 0: its source keeps no log of what it read. If the checkpoint is restored" in answer.out


def test_the_table_names_every_fact_of_the_json(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 2)
    scene.prepare(driver, 2)

    answer = scene.command("status")

    assert answer.code == 0
    for fact in (QUERY, str(scene.checkpoint), "directory", "in doubt", "leftovers", "prepared", "keep"):
        assert fact in answer.out
    assert "\033" not in answer.out


def test_an_in_doubt_epoch_is_listed_for_each_generation_that_prepared_it(scene: Scene) -> None:
    scene.prepare(scene.driver(), 0)
    scene.prepare(scene.driver(), 0)

    found = scene.command("status", "--json").json

    assert [(p["epoch"], p["generation"], p["rows"]) for p in found["in_doubt"]] == [
        (0, 1, {"directory": len(ROWS)}),
        (0, 2, {"directory": len(ROWS)}),
    ]
    assert [(left["generation"], left["state"], left["rule"]) for left in found["leftovers"]] == [
        (2, "prepared", "keep"),  # what it took the place of is gone
    ]
    assert found["settled"]


def test_a_held_epoch_is_reported_sink_by_sink(scene: Scene) -> None:
    right = scene.target("right")
    driver = scene.driver(scene.target("left"), right)
    scene.decide(driver, 0)
    with going_away(right), pytest.raises(CommitFailed):
        driver.settle()

    found = scene.command("status", "--json").json

    assert found["held"] == [{"epoch": 0, "generation": 1, "sinks": {"left": "visible", "right": "waiting"}}]
    assert not found["settled"]
    (left,) = found["leftovers"]
    assert (left["sink"], left["state"], left["rule"]) == ("right", "decided", "keep")
    assert "epochal recover" in left["why"]
    assert "epochal recover" in scene.command("status").out


def test_a_sealed_attempt_is_not_in_doubt(scene: Scene) -> None:
    target = scene.target()
    scene.stage(scene.driver(target), target, 0)
    scene.driver(target)

    found = scene.command("status", "--json").json

    assert found["in_doubt"] == []
    assert found["generation"]["number"] == 2


def test_a_sink_of_an_older_generation_is_shown_as_former(scene: Scene) -> None:
    scene.run(scene.driver(scene.target("old")), 1)
    scene.driver(scene.target("new"))

    found = scene.command("status", "--json").json

    assert [(sink["name"], sink["current"], sink["last"]) for sink in found["sinks"]] == [
        ("new", True, None),
        ("old", False, 0),
    ]
    assert "old (former)" in scene.command("status").out


def test_a_journal_kept_elsewhere_is_found_by_its_option(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    elsewhere = scene.root / "elsewhere"
    (scene.checkpoint / "epochal").rename(elsewhere)

    assert scene.command("status").code == 2
    assert str(elsewhere) in scene.command("status", "--journal", str(elsewhere)).out


def test_what_a_start_would_refuse_is_reported(scene: Scene) -> None:
    scene.run(scene.driver(), 2)
    for file in (scene.root / "directory").glob("0*"):
        file.unlink()

    answer = scene.command("status")

    assert answer.code == 2
    assert "a start would be refused" in answer.out
    assert "the target was emptied" in answer.out


def test_status_writes_nothing(scene: Scene) -> None:
    target = scene.target()
    driver = scene.driver(target)
    scene.run(driver, 1)
    scene.decide(driver, 1)
    (scene.checkpoint / "epochal" / f"{TEMPORARY}x").write_bytes(b"half")
    before = scene.disk()

    found = scene.command("status", "--json").json

    assert scene.disk() == before
    assert found["journal"]["temporary"] == 1


class Unheard(DirectoryParticipant):
    def describe(self, rows: Any = None) -> dict[str, Json]:
        return {**super().describe(rows), "type": "unheard-of"}


def test_an_unknown_kind_of_sink_does_not_hide_the_rest(scene: Scene) -> None:
    scene.run(scene.driver(scene.target(), Unheard(str(scene.root / "unheard"), name="unheard")), 1)

    found = scene.command("status", "--json").json

    errors = {sink["name"]: sink["error"] for sink in found["sinks"]}
    assert errors["directory"] is None
    assert "no participant of type 'unheard-of' is installed" in errors["unheard"]


def test_local_paths_load_no_spark(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    program = (
        "import sys; from epochal.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code or any(name.split('.')[0] == 'pyspark' for name in sys.modules))"
    )

    for command in ("status", "recover", "gc"):
        subprocess.run(
            [sys.executable, "-c", program, command, str(scene.checkpoint)],
            check=True,
            capture_output=True,
            cwd=Path(__file__).parents[2],
        )


def first_line(scene: Scene) -> str:
    return scene.command("status").out.splitlines()[0]


def test_the_first_line_says_that_the_driver_is_alive(scene: Scene) -> None:
    scene.run(scene.driver(), 3)

    assert first_line(scene) == (
        f"running: epoch 2 is visible everywhere; the driver (pid {os.getpid()} on {platform.node()}) is alive"
    )
    assert scene.command("status").code == 0


def test_an_epoch_that_a_dead_driver_was_staging_is_said_to_be_replayed(scene: Scene) -> None:
    target = scene.target()
    with dying():
        driver = scene.driver(target)
    scene.run(driver, 1)
    scene.stage(driver, target, 1)

    answer = scene.command("status", "--json")

    assert answer.code == answer.json["exit_code"] == 5
    assert (answer.json["state"], answer.json["driver"]["liveness"]) == ("dead", "dead")
    assert answer.json["under_way"] == {"epoch": 1, "staging": True}
    assert "epoch 1 was being staged; the next start replays it. Start the query again" in first_line(scene)


def test_a_reader_that_closes_the_pipe_does_not_change_the_exit_code(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "epochal.cli", "status", str(scene.checkpoint)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)

    assert (done.returncode, done.stderr) == (5, b"")


def test_a_dead_driver_with_an_epoch_to_finish_names_the_one_command(scene: Scene) -> None:
    with dying():
        driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)
    journal = str(scene.checkpoint / "epochal")

    answer = scene.command("status", "--json", "--journal", journal)

    assert answer.code == 5
    assert answer.json["summary"].endswith("epoch 1 is checkpointed but not visible in 'directory'")
    assert answer.json["command"] == f"epochal recover {scene.checkpoint} --journal {journal}"
    assert first_line(scene).endswith(f"Run `epochal recover {scene.checkpoint}`")


def write_live(scene: Scene, **facts: Any) -> None:
    """What the driver of the newest generation says about itself."""
    journal = scene.journal
    latest = journal.read().latest
    assert latest is not None
    base = Live(
        lineage=QUERY,
        generation=latest.generation,
        start=latest.start,
        journal=journal.place,
        process=latest.driver.process,
        at=time.time(),
    )
    folder = Path(live_beside(journal.path))
    folder.mkdir(exist_ok=True)
    (folder / name_of(latest.generation, 1)).write_bytes(encode(replace(base, **facts)))


def test_a_held_stream_says_which_store_since_when_and_why(scene: Scene) -> None:
    driver = scene.driver()
    scene.decide(driver, 0)
    write_live(
        scene,
        state=LiveState.HELD,
        held=LiveHeld(
            sink="directory", step="commit", reason="ConnectionError: no route", since=time.time() - 400, epoch=0
        ),
    )

    answer = scene.command("status", "--json")

    assert answer.code == 4
    assert first_line(scene).startswith(
        "HELD: sink 'directory' has not shown epoch 0 for 6 min: ConnectionError: no route. Start the store; "
    )
    assert answer.json["driver"]["held"]["step"] == "commit"


def test_a_driver_on_another_host_is_judged_by_its_heartbeat(scene: Scene) -> None:
    with elsewhere():
        scene.run(scene.driver(), 1)
    assert scene.command("status", "--json").json["driver"]["liveness"] == "unknown"

    write_live(scene)
    alive = scene.command("status", "--json")
    write_live(scene, at=time.time() - 100)
    silent = scene.command("status", "--json")

    assert (alive.code, alive.json["driver"]["liveness"]) == (0, "alive")
    assert (silent.code, silent.json["driver"]["liveness"]) == (5, "silent")
    said = r"pid 1 on elsewhere: heartbeat 1\d\d s old by this machine's clock; clocks may differ"
    assert re.search(said, first_line(scene))


def test_a_query_that_ended_by_an_error_is_not_well(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    refused = LiveRefusal(error="BadRows", reason="column 'id' is missing", at=time.time(), epoch=1)
    write_live(scene, state=LiveState.ENDED, settled=True, refused=refused)

    answer = scene.command("status", "--json")

    assert (answer.code, answer.json["state"]) == (2, "failed")
    assert first_line(scene) == "STOPPED by BadRows: column 'id' is missing. Epoch 0 is visible everywhere"


def test_a_driver_that_has_ended_is_said_to_have_ended_once(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    write_live(scene, state=LiveState.ENDED, settled=True)
    shown = scene.command("status").out

    assert ": ended, heartbeat" in shown or ": ended, last heard" in shown
    assert "ended, ended" not in shown


def test_a_live_file_that_cannot_be_read_is_noted_and_stops_nothing(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    write_live(scene)
    (file,) = (scene.checkpoint / "epochal-live").iterdir()
    file.write_bytes(b"{")

    answer = scene.command("status", "--json")

    assert answer.code == 0
    assert "was ignored" in answer.json["notes"][0]
    assert "note: " in scene.command("status").out


def test_live_files_do_not_disturb_other_commands(scene: Scene) -> None:
    driver = scene.driver()
    scene.run(driver, 1)
    scene.decide(driver, 1)
    write_live(scene)

    for command in (["recover"], ["gc", "--yes", "--fence"], ["audit"], ["roll"]):
        assert scene.command(*command).code == 0
    scene.run(scene.driver(), 3)
    assert scene.target().epochs() == [0, 1, 2]


def test_a_sink_that_cannot_be_built_here_is_named_and_is_no_refusal(scene: Scene) -> None:
    scene.run(scene.driver(scene.target(), Unheard(str(scene.root / "unheard"), name="unheard")), 1)

    status = scene.command("status", "--json")
    audit = scene.command("audit", "--json")
    collected = scene.command("gc", "--json")

    assert (status.code, status.json["state"], status.json["refusal"]) == (1, "running", None)
    assert "sink 'unheard' was not checked" in status.json["summary"]
    assert {sink["name"]: sink["available"] for sink in status.json["sinks"]} == {"directory": True, "unheard": False}
    assert audit.code == 1
    assert {sink["name"]: bool(sink["error"]) for sink in audit.json["sinks"]} == {"directory": False, "unheard": True}
    assert collected.code == 1
    assert [away["sink"] for away in collected.json["away"]] == ["unheard"]


def test_status_of_files_and_delta_loads_neither_spark_nor_arrow(scene: Scene) -> None:
    """Loading them would take longer than all the rest: the command is to answer within half a second."""
    lake = scene.root / "lake"
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    NativeTable(str(lake)).create(schema, [], {})
    sinks: list[Any] = [RollingFileSink(str(scene.root / "files"), format="json"), DeltaSink(str(lake))]
    Coordinator(
        journals=lambda _: scene.journal,
        checkpoint=SparkCheckpoint(LocalFiles(sync=False), str(scene.checkpoint)),
        participants=sinks,
    ).begin()
    program = (
        "import sys, json; from epochal.cli import main; code = main(sys.argv[1:]); "
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "status", str(scene.checkpoint)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )

    code, loaded = json.loads(done.stderr)
    heavy = {"pyspark", "pyarrow", "pandas", "numpy", "cassandra", "hdfs", "requests", "rich"}
    assert code == 0, done.stdout
    assert {name.split(".")[0] for name in loaded} & heavy == set()
    assert len(loaded) < 420, len(loaded)  # about 330 when this was written


HOSTILE = "no route\x1b]0;owned\x07\x1b[2J to host\r\u202e\x9b31m"
ESCAPED = r"no route\x1b]0;owned\x07\x1b[2J to host\r\u202e\x9b31m"


class OfAStore(Exception):
    """What a driver of a store may raise."""


def test_control_characters_in_what_a_store_says_do_not_reach_the_terminal(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.run(scene.driver(), 1)
    reason = LiveHeld(sink="directory", step="commit", reason=HOSTILE, since=1.0, epoch=1)
    write_live(scene, state=LiveState.HELD, held=reason)
    monkeypatch.setattr(DirectoryParticipant, "open", Mock(side_effect=OfAStore(HOSTILE)))
    monkeypatch.setattr(DirectoryParticipant, "leftovers", Mock(side_effect=OfAStore(HOSTILE)))
    answers = [
        scene.command("status"),
        scene.command("gc"),
        scene.command("audit", "--fast"),
        scene.command("report", "-o", str(scene.root / "report.html")),
        scene.command("top", "--once"),
    ]

    for answer in answers:
        assert not set("\x1b\x07\r\u202e\x9b") & set(answer.out + answer.err)
    assert ESCAPED in answers[0].out
    assert ESCAPED in answers[1].out


def test_control_characters_in_an_error_do_not_reach_the_terminal(scene: Scene) -> None:
    answer = scene.epochal("status", f"{scene.root}/{HOSTILE}")

    assert answer.code == 2
    assert ESCAPED in answer.err
    assert "\x1b" not in answer.err


def test_standbys_that_wait_are_shown(scene: Scene) -> None:
    scene.run(scene.driver(), 1)
    files, journal = LocalFiles(), str(scene.checkpoint / "epochal")
    cold, warm = (Notices(lambda: (files, journal), lease=lease) for lease in (10.0, 20.0))
    cold.renew(ready=False)
    warm.renew(ready=True)

    shown = scene.command("status").out
    answer = scene.command("status", "--json").json
    jsonschema.validate(answer, json.loads(schema.text_of("status")))
    found = answer["standbys"]
    cold.remove()
    warm.remove()
    after = scene.command("status", "--json").json["standbys"]

    here = f"pid {os.getpid()} on {platform.node()}"
    assert f"standby           {here}: warms up, last heard of " in shown
    assert f"standby           {here}: waits, last heard of " in shown
    assert [(one["pid"], one["ready"], one["lease_seconds"]) for one in found] == [
        (os.getpid(), False, 10.0),
        (os.getpid(), True, 20.0),
    ]
    assert after == []
