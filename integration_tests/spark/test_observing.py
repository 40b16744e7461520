"""What an operator sees of a real stream: log lines, events, metrics, and our part of Spark's progress."""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from epochal import DeltaSink, EpochWriter, RollingFileSink
from epochal.events import EpochCommitted, Event, StreamEnded
from integration_tests.spark.queries import Meddled, archive, stream, to_checkpoint
from integration_tests.spark.world import ROWS, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from epochal.txn.model import Attempt, Handle

pytestmark = pytest.mark.spark

COMMITTED = re.compile(
    r"epoch (\d+) committed to (lake|archive): (\d+) rows, [\d.]+ (?:kB|bytes), (\d+\.\d\d) s after Spark's checkpoint"
)


def test_a_stream_is_observed_as_documented(
    spark: SparkSession, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="epochal")
    world.feed(3)
    seen: list[Event] = []
    writer = EpochWriter(
        DeltaSink(str(world.table), name="lake"),
        RollingFileSink(str(world.first), format="json", name="archive"),
        observers=[seen.append],
        metrics="prometheus://127.0.0.1:0",
    )
    query = writer.start(to_checkpoint(stream(spark, world), world).queryName("orders"))
    query.awaitTermination()

    started, *lines, ended = [line for line in caplog.messages if not line.startswith("metrics are served")]
    assert started == "stream orders started: generation 1, sinks lake, archive"
    told = [COMMITTED.fullmatch(line) for line in lines]
    assert all(told), lines
    assert [(m[1], m[2], m[3]) for m in told if m] == [
        (str(epoch), sink, str(ROWS)) for epoch in range(3) for sink in ("archive", "lake")
    ]
    assert ended == "stream orders ended: every epoch that Spark has checkpointed is visible"

    shown = [event for event in seen if isinstance(event, EpochCommitted)]
    assert all(event.lag is not None and 0 <= event.lag < 60 for event in shown)
    sizes = {sink: sum(event.bytes or 0 for event in shown if event.sink == sink) for sink in ("lake", "archive")}
    assert sizes["archive"] == sum(file.stat().st_size for file in world.first.glob("*.json"))
    assert sizes["lake"] == sum(file.stat().st_size for file in world.table.glob("*.parquet"))
    assert isinstance(seen[-1], StreamEnded)

    samples = _scraped(caplog)
    for sink in ("lake", "archive"):
        assert samples[f"epochal_rows_total{{orders,{sink}}}"] == 3 * ROWS
        assert samples[f"epochal_visibility_lag_seconds_count{{orders,{sink}}}"] == 3
        assert samples[f"epochal_last_visible_epoch{{orders,{sink}}}"] == 2
    assert samples["epochal_running{orders}"] == 0

    last = query.lastProgress
    assert last is not None
    lake = last["epochal"]["sinks"]["lake"]
    assert (lake["visible"], lake["rows"], lake["lastVisibleEpoch"], lake["held"]) == (True, ROWS, 2, False)
    assert lake["lagSeconds"] >= 0
    assert (last.batchId, last["batchId"], last.numInputRows) == (2, 2, ROWS)
    assert json.loads(last.json)["epochal"] == last["epochal"]
    assert [p["epochal"]["sinks"]["archive"]["visible"] for p in query.recentProgress] == [True] * 3


def test_progress_says_which_sink_holds_a_stream_and_why(
    spark: SparkSession, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    progress: list[object] = []

    def down(attempt: Attempt, handle: Handle) -> None:
        if len(progress) < 3:
            last = query.lastProgress
            progress.append(None if last is None else last["epochal"])
            raise ConnectionRefusedError("the store is down")

    world.feed(1)
    writer = EpochWriter(Meddled(archive(world, name="archive"), down))
    query = writer.start(to_checkpoint(stream(spark, world), world))
    query.awaitTermination()

    why = "ConnectionRefusedError: the store is down"
    held, resumed = caplog.messages
    name = world.root.name
    assert held == f"stream {name} held: epoch 0 cannot be committed to archive: {why}"
    assert re.fullmatch(f"stream {name} resumed: archive answers again after [0-9.]+ s", resumed)
    assert isinstance(progress[-1], dict)
    assert (progress[-1]["held"]["sink"], progress[-1]["held"]["reason"]) == ("archive", why)
    assert progress[-1]["sinks"]["archive"]["held"]
    last = query.lastProgress
    assert last is not None
    assert last["epochal"]["held"] is None


def _scraped(caplog: pytest.LogCaptureFixture) -> dict[str, float]:
    """What the endpoint that the log names serves, by metric and labels: the stream first."""
    (url,) = [vars(record)["url"] for record in caplog.records if "url" in vars(record)]
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            f"{sample.name}{{{','.join(v for k, v in sorted(sample.labels.items(), reverse=True) if k != 'le')}}}": (
                sample.value
            )
            for family in families
            for sample in family.samples
        }
