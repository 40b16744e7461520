"""How benchmarks measure. That they run is seen by running them: they need Spark and minutes."""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import command, recovery, scale_model, scaling_plots, state_plots
from benchmarks.counting_store import HDFS, OBJECTS, CountingStore, Kind
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


RUNS = [
    recovery.Run(kind, 1_000_000, setting, writes=10_000, restore_s=1.3, cpu_s=cpu, wall_s=8.0, sizes_mb=[1.0, 2.0])
    for kind in recovery.PAPER
    for setting, cpu in (("off", 4.0), ("aggressive", 6.0))
]


def test_recoveries_are_set_beside_the_papers_by_ratios() -> None:
    headers, _, off, aggressive, *_ = recovery.text(RUNS).splitlines()
    cells = [
        dict(zip(headers.strip("| ").split(" | "), line.strip("| ").split(" | "), strict=True))
        for line in (off, aggressive)
    ]

    assert [row["x paper"] for row in cells] == ["0.50", "0.50"]
    assert [row["CPU s a million"] for row in cells] == ["4.0", "6.0"]
    assert [row["x off"] for row in cells] == ["1.00", "1.50"]
    assert [row["paper's x off"] for row in cells] == ["1.00", "2.44"]


def test_plots_of_recoveries_are_well_formed_and_name_every_setting_and_unit(tmp_path: Path) -> None:
    recovery.plots(RUNS, tmp_path)
    texts = {path.name: [*ElementTree.fromstring(path.read_text()).itertext()] for path in tmp_path.iterdir()}

    assert sorted(texts) == [f"recovery-{name}.svg" for name in ("flf", "ra", "size-flf", "size-ra")]
    assert {"off", "aggressive", "paper, off", "million updates", "seconds"} <= set(texts["recovery-flf.svg"])
    assert {"off", "aggressive", "million updates", "MB"} <= set(texts["recovery-size-ra.svg"])


def test_plots_of_sinks_state_are_well_formed_and_name_every_setting_and_unit(tmp_path: Path) -> None:
    runs = [
        {"kind": kind, "policy": policy, "updates": n, "restore_cpu_s": 1.0, "cpu_s": 2.0, "sizes_mb": [1.0, 2.0]}
        for kind in ("FLF", "RA")
        for policy in ("off", "default")
        for n in (1_000_000, 3_000_000)
    ]
    state_plots.draw({"restore": runs, "paper": {"FLF": {1_000_000: 2.6}, "RA": {1_000_000: 1.8}}}, tmp_path)
    texts = {path.name: {*ElementTree.fromstring(path.read_text()).itertext()} for path in tmp_path.iterdir()}

    assert sorted(texts) == [
        f"state-{name}-{kind}.svg" for name in ("cpu", "restore", "size") for kind in ("flf", "ra")
    ]
    assert all({"off", "default", "million updates"} <= found for found in texts.values())
    assert {"paper, off", "seconds"} <= texts["state-restore-ra.svg"]
    assert {"MB"} <= texts["state-size-flf.svg"]
    assert {"seconds"} <= texts["state-cpu-flf.svg"]


FILES, BUCKETS = 1200, 7


@pytest.mark.parametrize(("kind", "each"), [(HDFS, 1), (OBJECTS, 3)])
def test_a_modelled_epoch_renames_each_file_once_and_waits_as_its_side_by_side_requests_do(
    kind: Kind, each: int
) -> None:
    found = scale_model.one_epoch(kind, scale_model.Shape(FILES, BUCKETS))
    target = found.requests["target"]
    chunks = [1, 500, 500, 199]
    rounds = sum(-(-chunk // kind.at_once(chunk)) for chunk in chunks)

    assert sum(target.values()) - target.get("mkdirs", 0) == each * FILES
    assert target.get("mkdirs", 0) == (BUCKETS if kind is HDFS else 0)
    assert rounds * kind.seconds("rename") <= found.waiting_s["target"] <= rounds * kind.seconds("rename") + 0.1
    assert FILES * 50 < found.written["journal"] < FILES * 300
    assert 0 < found.stays_mb < found.peak_mb


def test_a_modelled_stream_leaves_what_a_real_one_does() -> None:
    store = CountingStore(HDFS)
    root = scale_model.ROOT
    stream = scale_model.Stream(store, f"{root}/stream", [f"{root}/a", f"{root}/b"])
    stream.run(scale_model.Shape(3), 2)
    stream.restart()
    stream.run(scale_model.Shape(5, 2))
    names = [entry.name for target in "ab" for entry in store.walk(f"{root}/{target}")]

    assert sum(name.startswith("bucket=") for name in names) == 2 * (3 + 3 + 5)
    assert sum("/manifest/" in name for name in names) == 2 * 3
    assert not any("/staged/" in name for name in names)


@pytest.mark.parametrize(
    ("act", "fault"),
    [
        (lambda store: store.rename("h://r/none", "h://r/new"), FileNotFoundError),
        (lambda store: store.rename("h://r/one", "h://r/two"), FileExistsError),
        (lambda store: store.read("h://r/none"), FileNotFoundError),
        (lambda store: store.move_folder("h://r/none", "h://r/new"), FileNotFoundError),
    ],
)
def test_a_store_that_only_counts_refuses_what_a_real_one_refuses(
    act: Callable[[CountingStore], object], fault: type[Exception]
) -> None:
    store = CountingStore(HDFS)
    store.create("h://r/one", b"1")
    store.create("h://r/two", b"2")

    with pytest.raises(fault):
        act(store)
    assert store.create("h://r/one", b"other") is False
    assert store.read("h://r/one") == b"1"


def test_plots_of_scaling_name_every_competitor_and_the_share(tmp_path: Path) -> None:
    seconds = {"plain foreachBatch": [1.0, 1.2], "epochal": [0.9, 1.1]}
    cpu = {"plain foreachBatch": [2.0, 2.0], "epochal": [2.2, 2.0]}
    ratios = {"plain foreachBatch": [1, 1], "epochal": [0.9, 0.92]}
    one = {"seconds_an_epoch": seconds, "ratios": ratios, "own_s": 0.02, "cpu_s_an_epoch": cpu}
    found = {"10": one, "1000": one}
    scaling_plots.draw("rows", found, tmp_path)
    (text,) = ([*ElementTree.fromstring(path.read_text()).itertext()] for path in tmp_path.iterdir())

    assert {"plain foreachBatch", "epochal", scaling_plots.OWN, "rows in an epoch", "10", "1e+03"} <= set(text)
    assert "| 1,000 | 1.100 | 1.000 | 0.020 | 0.91 (0.90-0.92) | 2.000 | 1.05 (1.00-1.10) |" in scaling_plots.table(
        "rows", found
    )
