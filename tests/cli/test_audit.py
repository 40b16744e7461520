"""``epochal audit`` on streams in any state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from epochal.cli import audit
from epochal.cli.exit_codes import DIFFERS
from epochal.sinks.config import kinds
from epochal.testing import DirectoryParticipant
from epochal.txn.audit import Scope, StoreReport
from tests.cli.auditable import Auditable
from tests.cli.scene import QUERY, ROWS, Scene


@pytest.fixture(autouse=True)
def _known_to_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.BUILT_IN, "auditable", "tests.cli.auditable:Auditable")


def auditable(scene: Scene, name: str = "sink") -> Auditable:
    return Auditable(str(scene.root / name), name=name)


def published(scene: Scene, epoch: int, name: str = "sink") -> Path:
    return scene.root / name / f"{epoch:012d}.000001.{QUERY}"


def test_a_stream_that_is_exact_is_reported_as_exact(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 3)

    answer = scene.command("audit")

    assert answer.code == 0
    assert answer.out.splitlines()[1].split() == ["sink", "3", "9", "9", "equal", "exact"]
    assert "exact: every row up to epoch 2 is there once" in answer.out


def test_the_same_for_machines(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 2)

    answer = scene.command("audit", "--json").json

    assert (answer["verdict"], answer["through"], answer["in_doubt"], answer["held"]) == ("exact", 1, [], [])
    (sink,) = answer["sinks"]
    assert sink["rows"] == {"expected": 6, "found": 6}
    assert sink["digest"]["expected"] == sink["digest"]["found"]
    assert sink["differences"] == sink["not_provable"] == sink["notes"] == []


def test_an_epoch_that_is_there_twice_is_named_and_the_exit_code_is_3(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 2)
    shutil.copy(published(scene, 1), scene.root / "sink" / f"{1:012d}.000007.{QUERY}")

    answer = scene.command("audit")

    assert answer.code == DIFFERS == 3
    assert "sink: epoch 1: 3 rows were staged and 6 are there" in answer.out
    assert scene.command("audit", "--json").json["sinks"][0]["differences"][0]["epoch"] == 1


def test_a_row_that_was_changed_is_found_by_its_digest(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 2)
    file = published(scene, 0)
    file.write_text(file.read_text().replace('"b"', '"x"'))

    answer = scene.command("audit")

    assert answer.code == 3
    assert "sink: epoch 0: 3 rows are there, but not those that were staged" in answer.out


def test_an_epoch_that_is_gone_is_named(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 2)
    published(scene, 1).unlink()

    answer = scene.command("audit")

    assert answer.code == 3
    assert "sink: epoch 1: is done, but the store does not have it" in answer.out


def test_many_differences_are_not_all_shown_to_people(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 30)
    for epoch in range(30):
        published(scene, epoch).unlink()

    assert f"and {30 - audit.SHOWN} more (--json lists all)" in scene.command("audit").out
    assert len(scene.command("audit", "--json").json["sinks"][0]["differences"]) == 30


def test_a_sink_without_an_audit_is_not_provable_and_no_fault(scene: Scene) -> None:
    scene.run(scene.driver(), 2)

    answer = scene.command("audit")

    assert answer.code == 0
    assert "directory: the sink has no audit" in answer.out
    assert "nothing differs up to epoch 1, but not everything could be proven" in answer.out


def test_what_is_in_doubt_or_held_is_reported_and_what_is_done_is_audited(scene: Scene) -> None:
    driver = scene.driver(auditable(scene))
    scene.run(driver, 2)
    scene.decide(driver, 2)
    held = scene.command("audit", "--json").json
    scene.command("recover")
    scene.prepare(scene.driver(auditable(scene)), 3)

    doubt = scene.command("audit")

    assert (held["verdict"], held["held"], held["through"]) == ("exact", [2], 1)
    assert doubt.code == 0
    assert "epoch 3 in doubt until the query runs again, so not audited" in doubt.out


def test_nothing_is_changed_by_looking(scene: Scene) -> None:
    driver = scene.driver(auditable(scene))
    scene.run(driver, 2)
    scene.decide(driver, 2)
    before = scene.disk()

    scene.command("audit")

    assert scene.disk() == before


def test_what_the_journal_has_folded_away_is_still_proven(scene: Scene) -> None:
    driver = scene.driver(auditable(scene))
    scene.run(driver, 60)
    assert scene.journal.read().floor > 0
    clean = scene.command("audit", "--json")
    published(scene, 0).write_text(published(scene, 0).read_text().replace('"b"', '"x"'))

    assert (clean.code, clean.json["sinks"][0]["rows"]) == (0, {"expected": 180, "found": 180})
    assert clean.json["sinks"][0]["digest"]["compared"] == "equal"
    answer = scene.command("audit")
    assert answer.code == 3
    assert "epochs 0 to" in answer.out


def test_a_place_that_the_sink_has_left_is_audited_too(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 2)
    scene.run(scene.driver(Auditable(str(scene.root / "elsewhere"), name="sink")), 5)

    sinks = scene.command("audit", "--json").json["sinks"]
    assert [(sink["current"], sink["epochs"], sink["verdict"]) for sink in sinks] == [
        (True, 3, "exact"),
        (False, 2, "exact"),
    ]


def test_without_reading_rows_a_stream_is_consistent_and_the_answer_says_what_was_not_read(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 1)

    answer = scene.command("audit", "--fast")

    assert answer.code == 0
    assert "sink: rows were not read" in answer.out
    assert "consistent: every epoch up to epoch 0 is there once, by names, lengths and logs" in answer.out
    assert scene.command("audit", "--fast", "--json").json["verdict"] == "consistent"
    assert scene.command("audit", "--json").json["verdict"] == "exact"


def test_without_reading_rows_a_missing_epoch_still_differs(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 2)
    published(scene, 1).unlink()

    assert scene.command("audit", "--fast", "--json").json["verdict"] == "differs"


def test_a_participant_without_an_audit_is_not_provable_and_no_traceback(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.run(scene.driver(), 2)
    monkeypatch.setattr(DirectoryParticipant, "audits", None, raising=False)

    answer = scene.command("audit", "--json")

    assert (answer.code, answer.json["verdict"]) == (0, "not provable")
    assert "the sink has no audit" in answer.json["sinks"][0]["not_provable"][0]


def test_a_store_that_cannot_be_read_does_not_hide_the_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.run(scene.driver(auditable(scene, "left"), auditable(scene, "right")), 2)
    really = Auditable.audit

    def away(self: Auditable, scope: Scope) -> StoreReport:
        if self.name == "left":
            raise RuntimeError("no host answers")  # the error of a store's driver, of whichever class
        return really(self, scope)

    monkeypatch.setattr(Auditable, "audit", away)
    answer = scene.command("audit", "--json")

    assert answer.code == 1
    assert [(sink["name"], sink["verdict"], sink["error"]) for sink in answer.json["sinks"]] == [
        ("left", "not provable", "no host answers"),
        ("right", "exact", None),
    ]


def test_a_stream_that_goes_on_meanwhile_is_looked_at_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = scene.driver(auditable(scene))
    scene.run(driver, 1)
    epochs = iter(range(2, 9))
    look = Auditable.audit

    def while_it_runs(self: Auditable, scope: Scope) -> StoreReport:
        found = look(self, scope)
        scene.run(driver, next(epochs))
        return StoreReport(epochs_present=found.epochs_present, total=None, unproven=("looked too early",))

    monkeypatch.setattr(Auditable, "audit", while_it_runs)

    answer = scene.command("audit", "--json").json

    assert answer["sinks"][0]["not_provable"] == ["the stream wrote more while it was audited; stop it, or audit again"]
    assert next(epochs) == 2 + audit.TRIES


def test_a_stream_that_has_not_begun_is_exact(scene: Scene) -> None:
    scene.driver(auditable(scene))

    answer = scene.command("audit")

    assert answer.code == 0
    assert "of a stream that has no epoch yet" in answer.out


def test_rows_that_were_given_are_those_that_are_counted(scene: Scene) -> None:
    scene.run(scene.driver(auditable(scene)), 1)

    assert scene.command("audit", "--json").json["sinks"][0]["rows"]["found"] == len(ROWS)
