"""Streams with a past: many starts, journals that were closed, generations whose records are gone."""

from __future__ import annotations

from epochal.txn.model import Description
from epochal.txn.records import GenerationStarted
from epochal.txn.recovery import SinkPlace, Sinks
from epochal.txn.view import fold
from tests.cli.scene import QUERY, ROWS, Scene


def reincarnated(scene: Scene) -> None:
    """A stream whose checkpoint was rewound, and whose user chose to write it anew."""
    scene.run(scene.driver(), 2)
    (scene.checkpoint / "commits" / "1").unlink()
    scene.driver(new="1f0c9a2e@1")


def test_status_is_about_the_journal_in_use(scene: Scene) -> None:
    reincarnated(scene)

    found = scene.command("status", "--json").json

    assert (found["lineage"], found["incarnation"]) == (f"{QUERY}~2", 2)
    assert found["journal"]["path"].endswith("epochal~2")
    assert found["base"] == 1


def test_recover_finishes_epochs_of_the_journal_in_use(scene: Scene) -> None:
    reincarnated(scene)
    scene.decide(scene.driver(), 1)

    assert scene.command("recover").code == 0
    assert scene.target().epochs() == [0, 1, 1]  # once as each stream: that was the choice


def test_gc_finds_leftovers_of_a_journal_that_was_closed(scene: Scene) -> None:
    target = scene.target()
    old = scene.driver(target)
    scene.run(old, 2)
    (scene.checkpoint / "commits" / "1").unlink()
    scene.driver(target, new="1f0c9a2e@1")
    scene.stage(old, target, 2)

    found = scene.command("gc", "--yes", "--json").json

    assert [(left["epoch"], left["generation"]) for left in found["removed"]] == [(2, 1)]
    assert target.leftovers(QUERY) == []


def test_many_starts_and_a_folded_journal_are_shown_and_collected(scene: Scene) -> None:
    target = scene.target()
    for _ in range(10):
        first = scene.driver(target)
    scene.run(first, 60)
    scene.decide(first, 60)

    found = scene.command("status", "--json").json
    assert found["journal"]["folded_through"] > 0
    assert found["held"] == [{"epoch": 60, "generation": None, "sinks": {"directory": "waiting"}}]

    assert scene.command("recover").code == 0
    assert target.rows()[-3:] == list(ROWS)


def generation(number: int, **sinks: dict[str, str]) -> GenerationStarted:
    return GenerationStarted(number, QUERY, 0, sinks={name: Description(text) for name, text in sinks.items()})


def test_an_attempt_belongs_where_its_own_generation_staged_it() -> None:
    view = fold(
        [
            generation(1, orders={"type": "files", "target": "/old"}),
            generation(2, orders={"type": "files", "target": "/new"}),
        ]
    )
    sinks = Sinks(view, build=lambda description: None)  # type: ignore[arg-type, return-value]

    assert sinks.of(1, "orders") == [SinkPlace("orders", "files", "/old")]
    assert sinks.of(2, "orders") == [SinkPlace("orders", "files", "/new")]
    assert sinks.current() == {"orders": SinkPlace("orders", "files", "/new")}


def test_an_attempt_of_a_forgotten_generation_may_be_wherever_the_sink_was() -> None:
    view = fold(
        [
            *(generation(number, orders={"type": "files", "target": "/old"}) for number in range(2, 9)),
            generation(9, orders={"type": "files", "target": "/new"}),
        ]
    )
    sinks = Sinks(view, build=lambda description: None)  # type: ignore[arg-type, return-value]

    assert [place.target for place in sinks.of(1, "orders")] == ["/new", "/old"]
    assert sinks.of(2, "elsewhere") == []


def test_the_newest_description_of_a_place_is_used() -> None:
    asked: list[object] = []
    view = fold(
        [
            generation(1, orders={"type": "files", "target": "/a", "host": "before"}),
            generation(2, orders={"type": "files", "target": "/a", "host": "after"}),
        ]
    )
    sinks = Sinks(view, build=asked.append)  # type: ignore[arg-type]

    sinks.at(sinks.of(1, "orders")[0])

    assert asked == [{"type": "files", "target": "/a", "host": "after"}]
