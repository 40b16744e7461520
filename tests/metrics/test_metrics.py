"""Metrics through their public faces: the HTTP endpoint that Prometheus scrapes, and OpenTelemetry's own reader."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from epochal.metrics import fault_of, observer_of, why_not_served
from epochal.metrics.instruments import INSTRUMENTS, SECONDS
from epochal.metrics.opentelemetry import OpenTelemetryMetrics
from epochal.metrics.prometheus import Endpoint, PrometheusMetrics
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import Refused
from epochal.txn.events import (
    EpochCommitted,
    Event,
    Observer,
    Observers,
    RecoveryMeasured,
    StreamEnded,
    StreamRefused,
    StreamStarted,
)
from epochal.txn.model import Outcome
from epochal.txn.settler import Backoff, Settler
from tests.txn.keeping import Keeping
from tests.txn.stream import Rows, Stream
from tests.txn.test_events import NOW, Fragile, Watched

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


class Scraped:
    """A stream that is served at a port of its own."""

    def __init__(self, observer: Observer) -> None:
        self.watched = Watched()
        self.observer = observer

    def coordinator(self, *sinks: Any, **options: Any) -> Coordinator[Rows]:
        made = self.watched.coordinator(*sinks, begins=False, **options)
        made.reporter.observers = Observers([self.observer], stream="orders", clock=lambda: NOW)
        made.begin()
        return made


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint("127.0.0.1", 0)
    yield made
    made._server.shutdown()
    made._server.server_close()


@pytest.fixture
def scraped(endpoint: Endpoint) -> Scraped:
    return Scraped(endpoint.metrics)


def scrape(endpoint: Endpoint) -> dict[str, float]:
    """What Prometheus would read, by name and labels."""
    with urllib.request.urlopen(endpoint.url, timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_an_epoch_is_counted_and_measured(scraped: Scraped, endpoint: Endpoint) -> None:
    coordinator = scraped.coordinator(scraped.watched.stream.sink("lake"))
    scraped.watched.run(coordinator, 0, rows=3)
    scraped.watched.run(coordinator, 1, rows=4)

    seen = scrape(endpoint)
    lake = "{sink=lake,stream=orders}"
    assert seen[f"epochal_rows_total{lake}"] == 7
    assert seen[f"epochal_epochs_total{lake}"] == 2
    assert seen[f"epochal_committed_bytes_total{lake}"] > 0
    assert seen[f"epochal_visibility_lag_seconds_count{lake}"] == 2
    assert seen[f"epochal_visibility_lag_seconds_sum{lake}"] == pytest.approx(0.5)
    assert seen["epochal_visibility_lag_seconds_bucket{le=0.25,sink=lake,stream=orders}"] == 2
    assert seen["epochal_settle_duration_seconds_count{stream=orders}"] == 2
    assert seen[f"epochal_stage_duration_seconds_count{lake}"] == 2
    assert seen[f"epochal_commit_duration_seconds_count{lake}"] == 2
    assert seen[f"epochal_last_visible_epoch{lake}"] == 1
    assert seen[f"epochal_last_visible_timestamp_seconds{lake}"] == NOW
    assert seen[f"epochal_epochs_pending{lake}"] == 0
    assert seen["epochal_epochs_in_doubt{stream=orders}"] == 0
    assert seen[f"epochal_staged_bytes{lake}"] == 0
    assert seen["epochal_generation{stream=orders}"] == 1
    assert seen["epochal_running{stream=orders}"] == 1


def test_an_epoch_is_in_doubt_then_pending_then_visible(scraped: Scraped, endpoint: Endpoint) -> None:
    stream = scraped.watched.stream
    good, bad = stream.sink("files"), Fragile(stream, "lake")
    coordinator = scraped.coordinator(good, bad)
    stream.plan(0)
    coordinator.run(0, [1, 2])

    seen = scrape(endpoint)
    assert seen["epochal_epochs_in_doubt{stream=orders}"] == 1
    assert seen["epochal_staged_bytes{sink=files,stream=orders}"] > 0
    assert seen["epochal_epochs_pending{sink=lake,stream=orders}"] == 0

    scraped.watched.commit(0)
    bad.faults["commit"] = [ConnectionError("no route to host")]
    settler = Settler(coordinator, backoff=Backoff(first=0.001))
    assert settler._try() is not None

    seen = scrape(endpoint)
    assert seen["epochal_epochs_in_doubt{stream=orders}"] == 0
    assert seen["epochal_epochs_pending{sink=lake,stream=orders}"] == 1
    assert seen["epochal_epochs_pending{sink=files,stream=orders}"] == 0
    assert seen["epochal_held{sink=lake,stream=orders}"] == 1
    assert seen["epochal_held{sink=files,stream=orders}"] == 0
    assert seen["epochal_retries_total{sink=lake,stream=orders}"] == 1
    assert seen["epochal_staged_bytes{sink=files,stream=orders}"] == 0

    settler.settle(timeout=10)

    seen = scrape(endpoint)
    assert seen["epochal_epochs_pending{sink=lake,stream=orders}"] == 0
    assert seen["epochal_held{sink=lake,stream=orders}"] == 0
    assert seen["epochal_rows_total{sink=files,stream=orders}"] == 2  # once, though its commit was repeated


def test_epochs_that_spark_has_passed_are_pending_though_an_earlier_one_is_held(
    scraped: Scraped, endpoint: Endpoint
) -> None:
    stream = scraped.watched.stream
    lake = Fragile(stream, "lake")
    coordinator = scraped.coordinator(lake)
    lake.faults["commit"] = [ConnectionError("no route to host")] * 100
    settler = Settler(coordinator, max_pending=5, backoff=Backoff(first=0.001))
    for epoch in range(3):
        stream.plan(epoch)
        settler.run(epoch, [epoch])
        scraped.watched.commit(epoch)

    seen = scrape(endpoint)
    assert seen["epochal_epochs_pending{sink=lake,stream=orders}"] == 2
    assert seen["epochal_epochs_in_doubt{stream=orders}"] == 1


def test_losers_rolls_open_parts_refusals_and_the_end_are_counted(scraped: Scraped, endpoint: Endpoint) -> None:
    stream = scraped.watched.stream
    old = scraped.coordinator(Keeping("lake", name="lake", files=stream.files))
    stream.plan(0)
    old.run(0, [1])
    new = scraped.coordinator(Keeping("lake", name="lake", files=stream.files))
    assert scrape(endpoint)["epochal_epochs_in_doubt{stream=orders}"] == 1
    new.run(0, [1])
    scraped.watched.commit(0)
    new.settle()
    lake = "{sink=lake,stream=orders}"
    opened = scrape(endpoint)
    new.roll(every=True)
    with pytest.raises(Exception, match="superseded"):
        Settler(old).run(1, [1])
    new.reporter.ended(new.lineage, settled=True)

    seen = scrape(endpoint)
    assert (opened[f"epochal_open_parts{lake}"], seen[f"epochal_open_parts{lake}"]) == (1, 0)
    assert seen[f"epochal_aborted_attempts_total{lake}"] == 1
    assert seen[f"epochal_rolls_total{lake}"] == 1
    assert seen["epochal_refusals_total{error=FencedOut,stream=orders}"] == 1
    assert seen["epochal_running{stream=orders}"] == 0
    assert seen["epochal_generation{stream=orders}"] == 2


def test_a_recovery_objective_is_measured(scraped: Scraped, endpoint: Endpoint) -> None:
    for extent, rows in ((3, None), (4, 50)):
        measured = RecoveryMeasured(
            lineage="1f0c",
            stream="orders",
            at=0.0,
            epoch=7,
            seconds=12.5,
            objective=10.0,
            extent=extent,
            rows=rows,
            bytes=900,
            turned=False,
        )
        scraped.observer(measured)

    seen = scrape(endpoint)
    names = ("recovery_seconds", "recovery_objective_seconds", "state_extent", "state_rows", "state_bytes")
    assert [seen[f"epochal_{name}{{stream=orders}}"] for name in names] == [12.5, 10.0, 4, 50, 900]


def test_names_follow_the_conventions_of_prometheus() -> None:
    for one in INSTRUMENTS:
        assert re.fullmatch(r"epochal(_[a-z]+)+", one.prometheus)
        assert one.prometheus.endswith("_total") == (one.kind == "counter"), one
        assert ("_seconds" in one.prometheus) == (one.unit == "s"), one
        assert ("_bytes" in one.prometheus) == (one.unit == "By"), one


def test_names_follow_the_conventions_of_opentelemetry() -> None:
    for one in INSTRUMENTS:
        assert re.fullmatch(r"epochal(\.[a-z_]+)+", one.otel)
        assert not one.otel.endswith(("_total", ".total", "seconds", "bytes")), one
        assert re.fullmatch(r"s|By|1|\{[a-z]+\}", one.unit), one


def test_opentelemetry_gets_the_same() -> None:
    reader = InMemoryMetricReader()
    scraped = Scraped(OpenTelemetryMetrics(MeterProvider([reader])))
    scraped.watched.run(scraped.coordinator(scraped.watched.stream.sink("lake")), 0, rows=3)

    found = _points(reader)
    attributes = {"epochal.stream": "orders", "epochal.sink": "lake"}
    assert [(dict(p.attributes), p.value) for p in found["epochal.rows"]] == [(attributes, 3)]
    (lag,) = found["epochal.visibility.lag"]
    assert (dict(lag.attributes), lag.count, tuple(lag.explicit_bounds)) == (attributes, 1, SECONDS)
    assert [p.value for p in found["epochal.epochs.in_doubt"]] == [0]
    assert {p.attributes["epochal.sink"]: p.value for p in found["epochal.held"]} == {"lake": 0, "journal": 0}
    assert [p.value for p in found["epochal.running"]] == [1]


def test_opentelemetry_has_every_instrument_with_its_unit() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observer = OpenTelemetryMetrics(provider)
    for one in INSTRUMENTS:
        instrument: Any = observer._instruments[one]
        call = {"counter": "add", "gauge": "set", "histogram": "record"}[one.kind]
        getattr(instrument, call)(1)

    data = reader.get_metrics_data()
    assert data is not None
    metrics = [m for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
    assert {(m.name, m.unit, m.description) for m in metrics} == {(i.otel, i.unit, i.doc) for i in INSTRUMENTS}


def _points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [m for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
    return {m.name: list(m.data.data_points) for m in metrics}


def test_the_dashboard_queries_only_what_there_is_and_all_of_it() -> None:
    dashboard = json.loads((files("epochal.metrics") / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [v["query"]["query"] for v in dashboard["templating"]["list"] if isinstance(v["query"], dict)]
    queried = {name for query in queries for name in re.findall(r"epochal_[a-z_]+", query)}

    exposed = {f"{one.prometheus}_bucket" if one.kind == "histogram" else one.prometheus for one in INSTRUMENTS}
    assert queried == exposed


def test_each_query_of_the_dashboard_uses_labels_that_its_metric_has() -> None:
    dashboard = json.loads((files("epochal.metrics") / "grafana.json").read_text())
    labels = {one.prometheus: {*one.labels, "le"} for one in INSTRUMENTS}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            for name, given in re.findall(r"(epochal_[a-z_]+?)(?:_bucket)?\{([^}]*)\}", target["expr"]):
                used = set(re.findall(r"(\w+)=~?", given))
                assert used <= labels[name], (panel["title"], name, used)
            (by,) = re.findall(r"by \(([^)]*)\)", target["expr"])[:1] or [""]
            names = re.findall(r"epochal_[a-z_]+", target["expr"])
            known = labels[names[0].removesuffix("_bucket")]
            assert set(filter(None, by.split(", "))) <= known, (panel["title"], by)


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads((files("epochal.metrics") / "grafana.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("target", ["prometheus", "prometheus://0.0.0.0:9464", "prometheus://[::1]:0", "opentelemetry"])
def test_right_targets(target: str) -> None:
    assert fault_of(target) is None


@pytest.mark.parametrize(
    "target",
    [
        "",
        9464,
        "statsd",
        "http://host:1",
        "opentelemetry://host",
        "prometheus:",
        "prometheus://",
        "prometheus://host:port",
        "prometheus://host:99999",
        "prometheus://host:1/metrics",
        "prometheus://user@host:1",
    ],
)
def test_wrong_targets(target: object) -> None:
    assert "must be 'prometheus'" in str(fault_of(target))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.metrics.find_spec", lambda name: None)

    assert fault_of("prometheus") == "needs a package that is not installed: pip install 'epochal[metrics]'"
    assert fault_of("opentelemetry") == "needs a package that is not installed: pip install 'epochal[otel]'"


def test_writers_with_one_address_share_an_endpoint_and_one_that_is_taken_is_refused(endpoint: Endpoint) -> None:
    port = endpoint._server.server_port

    with pytest.raises(Refused, match=f"127.0.0.1:{port}: .* Choose another port"):
        observer_of(f"prometheus://127.0.0.1:{port}")
    one = observer_of("prometheus://127.0.0.1:0")
    assert observer_of("prometheus://127.0.0.1:0") is one


def test_two_streams_share_one_registry() -> None:
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for name in ("orders", "clicks"):
        stream = Stream(query=name)
        coordinator = stream.coordinator()
        coordinator.reporter.observers = Observers([metrics], stream=name)
        coordinator.begin()
        stream.run(coordinator, 0)

    for name in ("orders", "clicks"):
        assert registry.get_sample_value("epochal_rows_total", {"stream": name, "sink": "sink"}) == 1


def test_the_events_module_is_all_that_an_observer_needs() -> None:
    import epochal.events

    kinds = {kind.__name__ for kind in Event.__subclasses__()}
    assert kinds <= set(epochal.events.__all__)
    assert all(hasattr(epochal.events, name) for name in epochal.events.__all__)


def started(lineage: str, stream: str = "orders") -> StreamStarted:
    return StreamStarted(lineage=lineage, stream=stream, at=NOW, generation=1, sinks=("lake",))


def committed(lineage: str, rows: int, stream: str = "orders") -> EpochCommitted:
    return EpochCommitted(
        lineage=lineage,
        stream=stream,
        at=NOW,
        epoch=0,
        generation=1,
        sink="lake",
        outcome=Outcome.COMMITTED,
        rows=rows,
        bytes=None,
        seconds=0.1,
        lag=None,
    )


ONE, OTHER = "1f0c9a2e-0000-4000-8000-000000000000", "7c8d2a4e-0000-4000-8000-000000000000"


def test_two_streams_of_one_name_that_run_at_once_have_series_of_their_own(endpoint: Endpoint) -> None:
    for event in (started(ONE), started(OTHER), committed(ONE, 3), committed(OTHER, 40)):
        endpoint.metrics(event)
    endpoint.metrics(StreamEnded(lineage=ONE, stream="orders", at=NOW, settled=True))
    endpoint.metrics(committed(OTHER, 2))
    found = scrape(endpoint)

    assert found["epochal_rows_total{sink=lake,stream=orders}"] == 3
    assert found["epochal_rows_total{sink=lake,stream=orders-7c8d2a4e}"] == 42
    assert found["epochal_running{stream=orders}"] == 0
    assert found["epochal_running{stream=orders-7c8d2a4e}"] == 1


def test_a_stream_that_goes_on_as_a_new_one_keeps_its_label(endpoint: Endpoint) -> None:
    endpoint.metrics(started(ONE))
    endpoint.metrics(StreamEnded(lineage=ONE, stream="orders", at=NOW, settled=True))
    endpoint.metrics(started(OTHER))
    endpoint.metrics(committed(OTHER, 2))

    assert scrape(endpoint)["epochal_rows_total{sink=lake,stream=orders}"] == 2


def test_a_start_that_was_refused_without_a_checkpoint_counts_for_its_name(endpoint: Endpoint) -> None:
    endpoint.metrics(started(ONE))
    endpoint.metrics(StreamRefused(lineage="", stream="orders", at=NOW, epoch=None, error="Refused", reason="no"))

    assert scrape(endpoint)["epochal_refusals_total{error=Refused,stream=orders}"] == 1


def test_an_address_that_another_program_uses_is_said_without_listening_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = why_not_served(f"prometheus://127.0.0.1:{port}")

    assert taken is not None
    assert "in use" in taken
    assert why_not_served(f"prometheus://127.0.0.1:{port}") is None  # twice: the look has not kept it
    assert why_not_served(f"prometheus://127.0.0.1:{port}") is None
    assert why_not_served("prometheus://127.0.0.1:0") is None
    assert why_not_served("opentelemetry") is None


def test_an_address_that_this_process_serves_already_is_free_for_its_other_streams() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    target = f"prometheus://127.0.0.1:{port}"
    observer_of(target)

    assert why_not_served(target) is None


def test_an_address_of_another_machine_is_said() -> None:
    assert why_not_served("prometheus://192.0.2.1:9464") is not None
