"""Who made a start: read into types, and written back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.txn.driver_facts import (
    DriverFacts,
    Fork,
    Rescaling,
    Restoration,
    Retirement,
    StateDigest,
    this_command,
)
from epochal.txn.model import Json, canonical
from epochal.txn.partitions import Repartitioned
from epochal.txn.process import Process, this_process
from epochal.txn.records import GenerationStarted, decode, encode

# As releases before this type wrote them.
DRIVER: dict[str, Json] = {
    "host": "spark-7",
    "pid": 4711,
    "epochal": "0.1.0",
    "started": 1.5,
    "ticks": 90,
    "machine": "boot pid:[1]",
}
RETIRED: dict[str, Json] = {"why": "no more orders", "by": "ada@spark-7", "at": "2026-11-18T12:00:00Z"}
RESTORED: dict[str, Json] = {"savepoint": "1f0c-7", "epoch": 7, "through": 9}
FORKED: dict[str, Json] = {"savepoint": "1f0c-7", "epoch": 7, "of": "1f0c"}
RESCALING: dict[str, Json] = {
    "epoch": 8,
    "from": 4,
    "to": 2,
    "savepoint": "/s/1f0c-7",
    "by": "ada@spark-7",
    "at": "2026-11-18T12:00:00Z",
    "state": [{"operator": 0, "name": "dedupe", "store": "default", "rows": 3, "digest": "ab"}],
}
PROCESS = Process(host="spark-7", pid=4711, started=1.5, ticks=90, machine="boot pid:[1]")
RESCALE = Rescaling(
    epoch=8,
    partitions=Repartitioned(4, 2),
    savepoint="/s/1f0c-7",
    by="ada@spark-7",
    at="2026-11-18T12:00:00Z",
    state=(StateDigest(0, "dedupe", "default", 3, "ab"),),
)

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
_OBJECTS = st.dictionaries(
    st.sampled_from(["why", "by", "at", "moved_to", "savepoint", "epoch", "through", "of", "from", "to", "state", "x"]),
    _SCALARS,
    max_size=5,
)
KEYS = [*DRIVER, "fence", "retired", "restored", "forked", "rescaling", "new"]


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ({}, DriverFacts()),
        (DRIVER, DriverFacts(process=PROCESS, version="0.1.0")),
        ({"host": "spark-7"}, DriverFacts(process=Process(host="spark-7"))),  # written before pids were
        ({"fence": True}, DriverFacts(by_command=True)),
        (
            {"fence": True, "retired": RETIRED},
            DriverFacts(
                by_command=True,
                retired=Retirement(why="no more orders", by="ada@spark-7", at="2026-11-18T12:00:00Z"),
            ),
        ),
        ({"restored": RESTORED}, DriverFacts(restored=Restoration(savepoint="1f0c-7", epoch=7, through=9))),
        ({"forked": FORKED}, DriverFacts(forked=Fork(savepoint="1f0c-7", epoch=7, of="1f0c"))),
        ({"rescaling": RESCALING}, DriverFacts(rescaling=RESCALE)),
        ({"rescaling": {"withdrawn": True}}, DriverFacts(rescale_given_up=True)),
    ],
)
def test_what_older_versions_wrote_is_read_and_written_as_it_was(value: dict[str, Json], facts: DriverFacts) -> None:
    assert DriverFacts.from_json(value) == facts
    assert facts.to_json() == value


@given(st.dictionaries(st.sampled_from(KEYS), _SCALARS | _OBJECTS, max_size=6))
def test_whatever_a_record_holds_is_written_back_byte_for_byte(value: dict[str, Json]) -> None:
    record = GenerationStarted(3, "1f0c", 0, driver=DriverFacts.from_json(value))
    data = encode(record)

    assert canonical(DriverFacts.from_json(value).to_json()) == canonical(value)
    assert encode(decode("g000003.json", "g000003.json", data)) == data


def test_a_value_that_cannot_be_read_is_taken_for_missing() -> None:
    facts = DriverFacts.from_json({"host": 5, "pid": "x", "retired": "yes", "restored": {"epoch": "7"}})

    assert (facts.process, facts.retired, facts.restored) == (Process(), None, None)


def test_a_rescale_that_cannot_be_read_ends_the_one_before_it() -> None:
    facts = DriverFacts.from_json({"rescaling": {"epoch": 8}})

    assert facts.rescaling is None
    assert facts.concerns_rescale


def test_a_command_names_its_process_and_stops_the_driver() -> None:
    facts = this_command("0.1.0")

    assert (facts.process, facts.version, facts.by_command) == (this_process(), "0.1.0", True)
    assert DriverFacts.from_json(facts.to_json()) == facts
