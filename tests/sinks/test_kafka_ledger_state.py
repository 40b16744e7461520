"""What epochal's own topic says, message by message: the newest of each key counts."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from epochal.participant import Attempt, Claim, Lineages, Refused
from epochal.sinks.kafka.commit.parts import planned
from epochal.sinks.kafka.layout import (
    RECENT,
    claims_key,
    digest_of,
    epoch_key,
    lanes_key,
    part_key,
    transactional_id,
)
from epochal.sinks.kafka.ledger_state import (
    LedgerState,
    Mark,
    PartMark,
    claims_to_json,
    key_of,
    lanes_from,
    lanes_to_json,
    mark_of,
)

OURS, THEIRS = "7a1f1c9e-1", "c0ffee00-2"
IDS = {"orders": "id-1"}


def mark(epoch: int, *, ids: dict[str, str] = IDS, start: str = "5a17") -> Mark:
    attempt = Attempt(OURS, epoch, 3, start=start)
    return mark_of(attempt, offsets=f"{epoch:064x}", rows=2, digest=None, topics=ids, ranges={"orders": {1: (7, 9)}})


def state(marks: Sequence[Mark], lineage: str = OURS) -> LedgerState:
    found = LedgerState()
    for number, one in enumerate(marks):
        found.apply(epoch_key("orders", lineage, one.epoch), one.to_json(), f"offset {number}")
    return found


def test_a_mark_is_read_as_it_was_written() -> None:
    (found,) = state([mark(4)]).marks("orders", OURS, IDS).values()

    assert found == mark(4)
    assert found.ranges == {"orders": {1: (7, 9)}}
    assert found.shown().is_attempt(Attempt(OURS, 4, 3, start="5a17"), f"{4:064x}")


def test_the_latest_epochs_are_kept_and_older_ones_are_compacted_away() -> None:
    found = state([mark(epoch) for epoch in range(RECENT + 3)])

    assert found.last("orders", OURS, IDS) == RECENT + 2
    assert sorted(found.marks("orders", OURS, IDS)) == list(range(3, RECENT + 3))


def test_marks_of_a_topic_that_was_created_again_do_not_count() -> None:
    found = state([mark(0), mark(1)])

    assert found.last("orders", OURS, {"orders": "id-2"}) == -1
    assert found.last("orders", OURS, IDS) == 1


def test_streams_and_targets_do_not_mix() -> None:
    found = state([mark(5)], THEIRS)
    memory = found.memory("orders", OURS, IDS, name="kafka:b:9092/orders", identity="x")

    assert (memory.last, memory.enrolled, memory.others) == (-1, False, {THEIRS: 5})
    assert found.memory("refunds", OURS, IDS, name="", identity="").others == {}


def test_claims_are_read_as_they_were_written() -> None:
    claim = Claim(lineage=OURS, generation=2, start="a", journal="/j", replaces=(THEIRS,), driver={"pid": 7}, decided=4)
    lineages = Lineages().with_claim(claim)
    found = LedgerState()
    found.apply(claims_key("orders"), claims_to_json(lineages), "")

    assert found.lineages("orders") == lineages
    assert found.lineages("orders").claims[OURS].driver == {"pid": 7}
    assert found.memory("orders", THEIRS, IDS, name="", identity="").adopted_by == OURS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["claims","orders"]', b"no json"),
        (b'["claims","orders"]', None),
        (b'["claims","orders"]', b'{"format":1}'),
        (b'["claims","orders"]', b"[" * 100_000),
        (b'["epoch","orders","a",0]', b'{"format":1,"epoch":0}'),
        (b'["epoch","orders","a",0]', mark(0).to_json().replace(b'"epoch":0', b'"epoch":"x"')),
        (b'["epoch","orders","a",0]', mark(0).to_json().replace(b'{"orders":"id-1"}', b"5")),
        (b'["epoch","orders","a",1e999]', mark(0).to_json()),
        (b'["lanes","orders","a"]', b'{"format":1,"lanes":1e999}'),
        (b'["lanes","orders","a"]', b'{"format":1,"lanes":1000000000000}'),
    ],
)
def test_a_record_that_another_program_has_replaced_is_refused_with_what_to_do(key: bytes, value: bytes | None) -> None:
    what = "removed" if value is None else "overwritten"
    with pytest.raises(Refused, match=f"offset 7: another program has {what} a record of epochal") as refused:
        LedgerState().apply(key, value, "topic '_epochal', offset 7")
    assert key.decode() in str(refused.value)
    assert "start the query with another ledger_topic=" in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [None, b"", b"orders", b"\xff", b"[]", b"[" * 100_000, b'["epoch","orders"]', b'["other",1]', b"[[1],2]", b"{}"],
)
@pytest.mark.parametrize("value", [None, b"{}", b"\xff"])
def test_a_message_under_a_key_that_is_not_ours_says_nothing(key: bytes | None, value: bytes | None) -> None:
    found = state([mark(4)])

    assert not found.apply(key, value, "")
    assert found == state([mark(4)])


def test_a_message_of_a_newer_epochal_is_refused_as_such() -> None:
    with pytest.raises(Refused, match="run the newer epochal"):
        LedgerState().apply(claims_key("orders"), json.dumps({"format": 2}).encode(), "")


def test_keys_name_what_they_are_about() -> None:
    assert key_of(epoch_key("a,b", OURS, RECENT + 4)) == ("epoch", ["a,b", OURS, 4])
    assert key_of(claims_key("a,b")) == ("claims", ["a,b"])


def test_each_stream_and_each_targets_claims_have_a_transactional_id_of_their_own() -> None:
    names = {transactional_id(target, lineage) for target in ("orders", "refunds") for lineage in (OURS, THEIRS, "")}

    assert len(names) == 6
    assert all(name.startswith("epochal-") for name in names)


def test_messages_that_differ_in_where_the_key_ends_have_other_digests() -> None:
    pairs = [(b"ab", b"c"), (b"a", b"bc"), (None, b"abc"), (b"", b"abc"), (b"abc", None), (b"abc", b"")]

    assert len({digest_of(key, value) for key, value in pairs}) == len(pairs)


# Epochs in parts.


def part(epoch: int, ids: dict[str, str] = IDS) -> PartMark:
    spans = {"orders": {0: (3, 5)}}
    return PartMark(epoch=epoch, generation=3, start="5a17", offsets="ab", rows=2, topics=ids, ranges=spans)


def test_the_mark_of_a_part_is_read_as_it_was_written_and_replaced_by_the_next_epochs() -> None:
    found = LedgerState()
    for epoch, lane, number in ((4, 0, 0), (4, 0, 1), (4, 1, 0), (5, 0, 0)):
        found.apply(part_key("orders", OURS, lane, number), part(epoch).to_json(), "")

    parts = found.parts["orders", OURS]
    assert {at: one.epoch for at, one in parts.items()} == {(0, 0): 5, (0, 1): 4, (1, 0): 4}
    assert parts[1, 0] == part(4)
    assert parts[1, 0].shown().is_attempt(Attempt(OURS, 4, 3, start="5a17"), "ab")


def test_parts_alone_are_no_epoch() -> None:
    found = LedgerState()
    found.apply(lanes_key("orders", OURS), lanes_to_json(8), "")
    found.apply(part_key("orders", OURS, 0, 0), part(0).to_json(), "")

    assert found.last("orders", OURS, IDS) == -1
    assert found.lanes["orders", OURS] == 8
    assert lanes_from(lanes_to_json(8)) == 8
    assert [lanes_from(other) for other in (None, b"[]", b'{"lanes":65}')] == [0, 0, 0]


def test_a_part_of_an_epoch_is_begun_and_for_other_streams_written() -> None:
    found = state([mark(3)])
    for epoch, ids in ((3, IDS), (4, IDS), (5, {"orders": "id-2"})):
        found.apply(part_key("orders", OURS, 0, epoch), part(epoch, ids).to_json(), "")
    own = found.memory("orders", OURS, IDS, name="", identity="")
    whole = state([mark(3)])
    whole.apply(part_key("orders", OURS, 0, 0), part(3).to_json(), "")

    assert (own.last, own.begun) == (3, 4)
    assert found.memory("orders", THEIRS, IDS, name="", identity="").others == {OURS: 4}
    assert whole.memory("orders", OURS, IDS, name="", identity="").begun == -1


def test_every_row_of_every_file_is_in_one_part_and_a_lane_counts_its_own() -> None:
    files = [(f"part-{number:05}", 100 * number, rows) for number, rows in enumerate((5, 1, 12, 0, 3))]
    parts = planned(files, lanes=2, most=4)

    assert {name: sum(one.rows for one in parts if one.file == name) for name, _, rows in files} == {
        name: rows for name, _, rows in files
    }
    assert max(one.rows for one in parts) == 4
    for lane in (0, 1):
        numbers = [one.number for one in parts if one.lane == lane]
        assert numbers == list(range(len(numbers)))
    assert {one.lane for one in parts if one.file == "part-00002"} == {0}, "a file is in one lane"
    assert planned([], lanes=8, most=4) == []
