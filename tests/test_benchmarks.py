"""How benchmarks measure. That they run is seen by running them: they need Spark and minutes."""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections import Counter

import pytest

from benchmarks import command
from benchmarks.measure import median_interval
from benchmarks.observing import ALL, OFF, Spent, compared
from benchmarks.weaving import Turn, orders


def test_the_interval_of_a_median_holds_the_true_one_in_95_of_100_cases() -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(3000):
        found = median_interval([chance.lognormvariate(0, 1) for _ in range(30)])  # its median is 1
        held += found.low <= 1 <= found.high

    assert 0.945 < held / 3000 < 0.97  # by the binomial distribution it is 0.957


def test_the_interval_of_few_values_is_all_of_them() -> None:
    assert [(i.low, i.high) for i in map(median_interval, ([1.0], [2.0, 1.0], [1.0, 3.0, 2.0]))] == [
        (1.0, 1.0),
        (1.0, 2.0),
        (1.0, 3.0),
    ]


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_every_run_is_in_every_place_equally_often(names: tuple[str, ...]) -> None:
    taken = list(itertools.islice(orders(names), 60))

    assert {Counter(order[place] for order in taken)[name] for place in range(len(names)) for name in names} == {
        60 // len(names)
    }


def test_a_cost_that_is_smaller_than_the_noise_of_the_machine_is_found_by_pairs() -> None:
    chance = random.Random(2)
    rounds = []
    for _ in range(40):
        walls: dict[str, list[Turn]] = {OFF: [], ALL: []}
        for _ in range(21):
            slow = chance.uniform(0.5, 2.0)  # what else the machine does: the same for both
            for name, cost in ((OFF, 1.0), (ALL, 1.02)):
                wall = slow * cost * chance.uniform(0.97, 1.03)
                walls[name].append(Turn(wall, wall))
        rounds.append({name: Spent(turns) for name, turns in walls.items()})
    found = compared(ALL, rounds, 20)

    assert found.wall.low <= 1.02 <= found.wall.high
    assert found.wall.high - found.wall.low < 0.01


@pytest.mark.parametrize("text", ["20", "x", "20x", "0x5", "3x-1", "3y4"])
def test_a_wrong_size_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parser("files", None).parse_args([f"--size={text}"])

    assert "--size" in capsys.readouterr().err


def test_a_size_replaces_that_of_every_shape_that_is_wanted() -> None:
    shapes = {"small": (20, 50_000), "large": (3, 2_000_000)}
    parser = command.parser("files", None, only=shapes)

    assert command.sizes(parser.parse_args([]), shapes) == shapes
    assert command.sizes(parser.parse_args(["--only", "large", "--size", "2x1,000"]), shapes) == {"large": (2, 1000)}


@pytest.mark.parametrize("as_json", [True, False])
def test_results_are_printed_once_as_json_or_one_by_one_as_text(
    *, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with command.results(argparse.Namespace(json=as_json)) as results:
        results.add("small", {"ratio": 1.0}, "a table")
        early = capsys.readouterr().out
    late = capsys.readouterr().out

    assert (json.loads(late) == {"small": {"ratio": 1.0}}) if as_json else (early, late) == ("\na table\n\n", "")
