"""The error of a driver that was fenced says by whom, and what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epochal.txn.driver_facts import DriverFacts, Retirement
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Json
from epochal.txn.records import GenerationStarted
from epochal.txn.retirement import record_retirement, refuse_retired
from epochal.txn.start import Generation, superseded

STARTED = GenerationStarted(
    generation=1, query="q", base=0, start="a", driver=DriverFacts.from_json({"host": "spark-7", "pid": 11}), at="noon"
)
MOVED = Retirement(why="moved", by="ada@spark-7", at="2026-11-18T12:00:00Z", moved_to="/data/new/epochal")
OVER = Retirement(why="no more orders", by="ada@spark-7", at="2026-11-18T12:00:00Z")


@pytest.fixture
def fenced(tmp_path: Path) -> Generation:
    (tmp_path / "epochal").mkdir()
    journal = Journal(LocalFiles(sync=False), str(tmp_path / "epochal"))
    before = journal.read()
    assert journal.claim(STARTED)
    return Generation(journal, 1, STARTED, before, {}, {})


def error_of(generation: Generation) -> str:
    why = generation.why_superseded(generation.journal.read())
    assert why is not None
    return str(superseded(1, why))


def test_a_stream_that_has_moved_is_named_with_its_new_place(fenced: Generation) -> None:
    record_retirement(fenced.journal, STARTED, MOVED, DriverFacts())

    assert error_of(fenced) == (
        "generation 1 was superseded: the stream has moved to the journal /data/new/epochal (2026-11-18T12:00:00Z by "
        "ada@spark-7). This driver stops; start the query on the checkpoint there"
    )


def test_the_reason_of_a_retirement_is_named(fenced: Generation) -> None:
    record_retirement(fenced.journal, STARTED, OVER, DriverFacts())

    assert error_of(fenced).endswith("no more orders. This driver stops, and a start here is refused")


@pytest.mark.parametrize(
    ("driver", "who"),
    [
        ({"fence": True}, "has claimed generation 2"),
        ({"host": "spark-8", "pid": 12}, "pid 12 on spark-8, started noon"),
    ],
)
def test_a_driver_that_another_start_has_fenced_may_be_started_again(
    fenced: Generation, driver: dict[str, Json], who: str
) -> None:
    assert fenced.journal.claim(replace(STARTED, generation=2, start="b", driver=DriverFacts.from_json(driver)))

    assert error_of(fenced).endswith(f"{who}. This driver stops; start the query again if no other runs it")


@pytest.mark.parametrize("retirement", [MOVED, OVER])
def test_the_command_that_takes_it_back_has_the_path(fenced: Generation, retirement: Retirement) -> None:
    record_retirement(fenced.journal, STARTED, retirement, DriverFacts())
    checkpoint = Path(fenced.journal.path).parent

    with pytest.raises(Refused, match=f"`epochal retire {checkpoint} --undo`"):
        refuse_retired(fenced.journal.read().latest, "this query cannot start", fenced.journal)
