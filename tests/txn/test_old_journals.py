"""Journals of old versions say today what they said then (`old_journals/make.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.records import Prepared, Snapshot, decode, encode
from epochal.txn.state.store import number_of_segment
from epochal.txn.view import View, handles
from tests.txn.memory import MemoryFiles

EXPECTED = ".expected"  # instead of .json: it is no record
JOURNALS = sorted(path for path in Path(__file__).parent.glob("old_journals/v*/*") if path.is_dir())
KINDS = {"generation", "prepared", "seal", "decided", "done", "roll", "rolled", "snapshot", "state"}


def facts(view: View) -> dict[str, Any]:
    """What a journal says, as plain JSON: the only place here that knows how a view is built."""
    assert view.latest is not None
    names = {name for started in view.generations.values() for name in started.sinks}
    return {
        "generation": view.generation,
        "lineage": view.lineage,
        "base": view.base,
        "closed": view.latest.closed,
        "starts": {str(number): started.start for number, started in view.generations.items()},
        "sinks": {name: dict(sink.settings) for name, sink in view.latest.sinks.items()},
        "floor": view.floor,
        "done_through": view.done_through,
        "done": sorted(view.done),
        "waiting": view.waiting(),
        "left_in_doubt": sorted(view.undecidable),
        "winners": {str(epoch): generation for epoch, generation in view.decided.items()},
        "attempts": {
            f"{epoch}.{generation}": _staged(record) if isinstance(record, Prepared) else {"sealed_by": record.by}
            for epoch, records in view.attempts.items()
            for generation, record in records.items()
        },
        "rolls": [
            {
                "generation": roll.generation,
                "number": roll.number,
                "after": roll.after,
                "handles": {name: handle.to_json() for name, handle in handles(roll).items()},
            }
            for roll in view.recorded_rolls()
        ],
        "to_carry_out": [[roll.generation, roll.number] for roll in view.pending_rolls()],
        "next_rolls": {str(number): view.next_roll(number) for number in view.generations},
        "kept": {name: dict(view.sink_state(name)) for name in sorted(names)},
        "kept_through_floor": {name: dict(view.sink_state(name, through=view.floor)) for name in sorted(names)},
        "totals": view.totals(through=view.done_through).to_json(),
    }


def _staged(record: Prepared) -> dict[str, Any]:
    return {
        "offsets": record.offsets,
        "rolls": record.rolls,
        "handles": {name: handle.to_json() for name, handle in handles(record).items()},
        "rows": {name: staged.rows for name, staged in record.sinks.items()},
        "digests": {name: staged.digest for name, staged in record.sinks.items()},
        "changes": {name: dict(staged.changes) for name, staged in record.sinks.items()},
    }


@pytest.mark.parametrize("folder", JOURNALS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_journal_of_an_old_version_says_what_it_said(folder: Path) -> None:
    view = Journal(LocalFiles(), str(folder)).read()

    assert facts(view) == json.loads(folder.with_suffix(EXPECTED).read_text())


@pytest.mark.parametrize("folder", JOURNALS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_what_sinks_hold_open_is_carried_over_when_an_old_journal_is_folded(folder: Path) -> None:
    files = MemoryFiles()
    files.content = {f"journal/{path.name}": path.read_bytes() for path in folder.iterdir()}
    journal = Journal(files, "journal")
    journal.compact(journal.read(), retain=0, slack=0)
    view = Journal(files, "journal").read()
    expected = json.loads(folder.with_suffix(EXPECTED).read_text())

    assert {name: view.sink_state(name) for name in expected["kept"]} == expected["kept"]
    assert not any(record.kept for record in journal.records if isinstance(record, Snapshot) and record.state)
    assert (view.done_through, view.waiting()) == (expected["done_through"], expected["waiting"])


@pytest.mark.parametrize("folder", JOURNALS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_records_of_an_old_version_are_spelled_as_they_were(folder: Path) -> None:
    for path in folder.iterdir():
        if number_of_segment(path.name) is not None:
            continue
        data = path.read_bytes()

        assert encode(decode(str(path), path.name, data)) == data


def test_the_journals_have_records_of_every_kind() -> None:
    records = [json.loads(path.read_bytes())["record"] for folder in JOURNALS for path in folder.glob("*.json")]

    assert {record["kind"] for record in records} == KINDS
    assert any(record.get("closed") for record in records)
    assert any(record.get("kept") and record.get("totals") for record in records)
