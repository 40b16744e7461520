from __future__ import annotations

import pytest

from integration_tests.kill_matrix.cases import Point, parse, rows_of


@pytest.mark.parametrize(
    "text",
    [
        "checkpoint/2/fresh",
        "checkpoint/2/fresh/after-stage@2,before-seal@1",
        "eager/1/aged/change@17",
        "eager/1/short/after-write@1/hold:after-prepared@1,before-done@1",
        "checkpoint/1/long/race:17/broken:no-fence",
    ],
)
def test_a_case_is_spelled_as_it_is_parsed(text: str) -> None:
    assert str(parse(text)) == text


def test_a_case_is_parsed_into_its_points() -> None:
    case = parse("eager/1/short/after-write@1/hold:after-prepared@2,before-done@1")

    assert case.kills == (Point("after-write", 1),)
    assert case.holds == (Point("after-prepared", 2), Point("before-done", 1))


@pytest.mark.parametrize("text", ["lazy/1/fresh", "eager/3/fresh", "eager/1/old", "eager/1/fresh/hurt:me@1"])
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a case begins with|is no part of a case"):
        parse(text)


def test_rows_say_what_they_are_and_one_epoch_is_empty() -> None:
    rows = [row for epoch in range(4) for row in rows_of(epoch)]

    assert rows_of(1) == []
    assert len({str(row) for row in rows}) == len(rows) == 7
