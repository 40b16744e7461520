"""``epochal roll``, and what ``epochal status`` tells of parts that are open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from epochal.sinks.config import kinds
from epochal.txn.errors import FencedOut
from epochal.txn.model import Attempt, Json
from tests.cli.scene import QUERY, ROWS, Scene, going_away
from tests.txn.keeping import Keeping


@pytest.fixture(autouse=True)
def _known_to_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.BUILT_IN, "keeping", "tests.txn.keeping:Keeping")


def keeping(scene: Scene, name: str = "sink") -> Keeping:
    return Keeping(str(scene.root / name), name=name)


def test_status_shows_what_is_open(scene: Scene) -> None:
    scene.run(scene.driver(keeping(scene)), 2)

    (part,) = scene.command("status", "--json").json["open"]
    assert (part["sink"], part["pieces"]) == ("sink", 2)
    assert "open: committed rows that nobody can read before their part rolls" in scene.command("status").out


def test_status_does_not_call_visible_what_waits_in_open_parts(scene: Scene) -> None:
    scene.run(scene.driver(keeping(scene)), 2)

    found = scene.command("status", "--json").json
    said = scene.command("status").out.splitlines()[0]
    (stream,) = scene.command("top", "--once", "--json").json["streams"]

    waiting = {"parts": 1, "rows": None, "bytes": 0, "sinks": ["sink"]}
    assert found["unpublished"] == stream["snapshot"]["unpublished"] == waiting
    assert "epoch 1 is settled everywhere, but rows wait in 1 open part of 'sink' and cannot be read yet" in said
    assert "visible everywhere" not in said
    assert "visible everywhere" not in scene.command("top", "--once").out
    assert "visible everywhere" not in scene.command("report", "--output", "-").out
    assert scene.command("roll").code == 0
    assert scene.command("status", "--json").json["unpublished"] is None
    assert "epoch 1 is visible everywhere" in scene.command("status").out.splitlines()[0]


class NotHere(Keeping):
    """A sink whose package is not installed where the command runs."""

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "type": "not-here"}


def test_a_sink_that_cannot_be_built_here_does_not_hide_what_others_have_open(scene: Scene) -> None:
    scene.run(scene.driver(keeping(scene), NotHere(str(scene.root / "other"), name="other")), 2)

    status = scene.command("status", "--json")
    said = scene.command("status").out.splitlines()[0]

    assert [part["sink"] for part in status.json["open"]] == ["sink"]
    assert (status.json["unpublished"]["sinks"], status.json["uncounted"]) == (["sink"], ["other"])
    assert "epoch 1 is settled everywhere, but rows wait in 1 open part of 'sink' and cannot be read yet" in said
    assert "whether more wait in 'other' was not checked" in said
    assert status.code == 1


@pytest.mark.parametrize("still_there", [True, False])
def test_status_does_not_call_visible_what_may_wait_in_a_sink_that_cannot_be_built_here(
    scene: Scene, still_there: bool
) -> None:
    other = NotHere(str(scene.root / "other"), name="other")
    scene.run(scene.driver(scene.target(), other), 2)
    if not still_there:
        scene.driver(scene.target())  # the newest start has another sink only

    status = scene.command("status", "--json")
    said = scene.command("status").out.splitlines()[0]

    (stream,) = scene.command("top", "--once", "--json").json["streams"]
    assert (status.json["unpublished"], status.json["uncounted"]) == (None, ["other"])
    assert stream["snapshot"]["uncounted"] == ["other"]
    assert "epoch 1 is settled everywhere; whether rows wait in open parts of 'other' was not checked" in said
    assert "visible everywhere" not in said
    assert status.code == 1


def test_status_shows_what_a_recovery_would_read_and_how_long_it_takes(scene: Scene) -> None:
    driver = scene.driver(keeping(scene))
    scene.run(driver, 50)  # some are folded into a segment, the rest is in records
    answer = scene.command("status", "--json").json["sink_state"]
    text = scene.command("status").out

    assert (answer["entries"], answer["segments"], answer["replay"]) == (51, 1, 30)  # the target is set by each epoch
    assert answer["extent"] == 30
    assert 0 < answer["predicted_seconds"] < 5
    assert answer["restored_seconds"] > 0
    assert "sinks' state" in text
    assert "51 entries in 1 segment" in text
    assert "extent 30 epochs, replay 30" in text
    assert "predicted recovery" in text


def test_status_says_nothing_of_state_where_there_is_none(scene: Scene) -> None:
    scene.run(scene.driver(scene.target("other")), 2)

    assert scene.command("status", "--json").json["sink_state"] is None
    assert "sinks' state" not in scene.command("status").out


def test_status_shows_what_is_open_in_a_sink_that_was_removed(scene: Scene) -> None:
    scene.run(scene.driver(keeping(scene)), 1)
    scene.driver(scene.target("other"))

    assert [part["sink"] for part in scene.command("status", "--json").json["open"]] == ["sink"]


def test_roll_publishes_what_is_open_and_stops_a_driver_that_runs(scene: Scene) -> None:
    sink = keeping(scene)
    driver = scene.driver(sink)
    scene.run(driver, 2)

    answer = scene.command("roll", "--json")

    assert answer.code == 0
    assert answer.json["fenced_by"] == 2
    assert [(part["sink"], part["pieces"]) for part in answer.json["published"]] == [("sink", 2)]
    assert sink.rows() == [*ROWS, *ROWS]
    assert sink.lying_open() == []
    assert scene.command("status", "--json").json["open"] == []
    with pytest.raises(FencedOut):
        scene.prepare(driver, 2)


def test_roll_settles_what_is_decided_first(scene: Scene) -> None:
    sink = keeping(scene)
    scene.decide(scene.driver(sink), 0)

    assert scene.command("roll").code == 0
    assert sink.rows() == [*ROWS]


def test_nothing_open_is_nothing_to_roll_and_disturbs_nobody(scene: Scene) -> None:
    driver = scene.driver(keeping(scene))

    answer = scene.command("roll")

    assert (answer.code, answer.out) == (0, "nothing is open\n")
    scene.prepare(driver, 0)


def test_roll_is_refused_while_an_epoch_is_in_doubt_and_the_driver_goes_on(scene: Scene) -> None:
    sink = keeping(scene)
    driver = scene.driver(sink)
    scene.run(driver, 1)
    scene.prepare(driver, 1)

    answer = scene.command("roll")

    assert answer.code == 2
    assert "epoch 1 is not decided" in answer.err
    assert sink.rows() == []
    assert scene.journal.read().generation == 1


def test_roll_publishes_what_a_sink_that_was_removed_left_open_and_the_query_goes_on_without_it(scene: Scene) -> None:
    sink, other = keeping(scene), scene.target("other")
    scene.run(scene.driver(sink), 1)
    scene.driver(other)

    answer = scene.command("roll")
    scene.run(scene.driver(other), 2)

    assert answer.code == 0
    assert sink.rows() == [*ROWS]
    assert other.rows() == [*ROWS]


def test_a_roll_that_its_store_did_not_take_is_finished_by_recover(scene: Scene) -> None:
    sink = keeping(scene)
    scene.run(scene.driver(sink), 1)
    with going_away(Keeping):
        held = scene.command("roll", "--timeout", "0")
    before = sink.rows()

    assert held.code != 0
    assert before == []
    assert scene.command("recover").code == 0
    assert sink.rows() == [*ROWS]


def test_gc_keeps_a_roll_that_is_recorded_and_removes_one_that_is_not(scene: Scene) -> None:
    sink = keeping(scene)
    driver = scene.driver(sink)
    scene.run(driver, 1)
    with going_away(Keeping):
        scene.command("roll", "--timeout", "0")
    stray = Attempt(QUERY, 0, driver.generation, 1)
    sink._create(stray, "part", {}, [])

    answer = scene.command("gc", "--yes", "--json").json

    assert [left["generation"] for left in answer["removed"]] == [driver.generation]
    assert sink.leftovers(QUERY) == [Attempt(QUERY, 0, 2, 1)]
    assert scene.command("recover").code == 0
    assert sink.rows() == [*ROWS]
