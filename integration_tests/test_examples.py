"""The examples, run as their readers would, but in one Spark. Those that need servers: in the servers' folders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import epochal
from integration_tests.examples import EXAMPLES, printed_by, run_example, settings_restored
from integration_tests.operators import reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("_one_session"), pytest.mark.timeout(900)]


@pytest.fixture
def _one_session(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with settings_restored(spark):
        yield


def test_orders_are_archived_once_read_by_manifest_and_written_again_by_settings(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    first = run_example("quickstart.py", folder)
    more = [{"order_id": n, "customer": "c", "amount": "1.00", "day": "2026-11-19"} for n in range(10)]
    (folder / "incoming" / "19.json").write_text("".join(json.dumps(order) + "\n" for order in more))

    assert (first, run_example("quickstart.py", folder)) == (["300 orders in 3 epochs"], ["310 orders in 4 epochs"])
    lines = [line for file in (folder / "archive").glob("day=*/*.json") for line in file.read_text().splitlines()]
    assert len({json.loads(line)["order_id"] for line in lines}) == len(lines) == 310
    assert run_example("exactly_once_reader.py", folder / "archive") == [
        "epoch 0: 100 orders in 1 files",
        "epoch 1: 100 orders in 1 files",
        "epoch 2: 100 orders in 1 files",
        "epoch 3: 10 orders in 1 files",
        "read 310 orders; the manifest promised 310",
    ]
    assert run_example("from_conf.py", folder) == ["conf-archive: 310 orders", "conf-by-customer: 310 orders"]


def test_changes_merged_into_delta_leave_each_order_as_it_was_last(tmp_path: Path) -> None:
    assert run_example("change_feed_to_upserts.py", tmp_path) == ["placed: 40 orders", "shipped: 50 orders"]
    assert sum(epoch.rows for epoch in epochal.published(str(tmp_path / "archive-of-changes"))) == 160


def test_windows_that_grow_over_epochs_are_counted_once(tmp_path: Path) -> None:
    said = run_example("windowed_counts.py", tmp_path)

    visits = [json.loads(line) for file in (tmp_path / "visits").iterdir() for line in file.read_text().splitlines()]
    counted = Counter((window(visit["at"]), visit["page"]) for visit in visits)
    assert said == [f"{start} {page}: {count} visits" for (start, page), count in sorted(counted.items())]
    assert len(visits) == 180
    assert len({visit["at"][:15] for visit in visits}) < len(counted) < 180


def test_an_alert_is_printed_for_each_stolen_card_and_the_totals_of_all(tmp_path: Path) -> None:
    said = run_example("fraud.py", tmp_path)

    scored = reference.scored(reference.rows_in(tmp_path / "incoming"))
    last = {row.card: f"card {row.card}: {row.n} payments, {row.spent / 100:.2f} spent" for row in scored}
    alerts = [f"card {row.card}, payment {row.id} of {row.cents / 100:.2f}" for row in scored if row.alert]
    assert [line.split(": ", 1)[1] for line in said[: len(alerts)]] == alerts != []
    assert said[len(alerts) :] == [last[card] for card in sorted(last)]


def test_components_and_degrees_are_those_of_all_edges(tmp_path: Path) -> None:
    said = run_example("graph.py", tmp_path)

    degrees: dict[tuple[str, int], list[int]] = {}
    for (graph, _), (component, degree) in reference.vertices(reference.rows_in(tmp_path / "incoming")).items():
        degrees.setdefault((graph, component), []).append(degree)
    assert said == [
        f"{graph}: component {component} of {len(all_)} vertices, greatest degree {max(all_)}"
        for (graph, component), all_ in sorted(degrees.items())
    ]


def window(at: str) -> str:
    time = datetime.fromisoformat(at)
    return f"{time - timedelta(minutes=time.minute % 10):%H:%M}"


def test_the_notebook_repairs_what_failed_and_is_stored_without_outputs() -> None:
    notebook = json.loads((EXAMPLES / "exactly_once.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "__main__"}

    def run() -> None:
        for cell in cells:
            exec("".join(cell["source"]), names)

    said = printed_by(run)

    assert [(cell["outputs"], cell["execution_count"]) for cell in cells] == [([], None)] * len(cells)
    assert said == [
        "[(100, 100), (100, 100)]",
        "the query failed",
        "[(100, 100), (100, 100)]",
        "[(200, 200), (200, 200)]",
        "epoch 0: 100 orders",
        "epoch 1: 100 orders",
    ]
