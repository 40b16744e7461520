"""Metrics for OpenTelemetry. Needs ``pip install 'epochal[otel]'``, and an SDK that the program sets up.

``EpochWriter(metrics="opentelemetry")`` uses the global meter provider; `OpenTelemetryMetrics` takes another one::

    from epochal.metrics.opentelemetry import OpenTelemetryMetrics

    writer = EpochWriter(..., observers=[OpenTelemetryMetrics(meter_provider)])
"""

from __future__ import annotations

import threading
from functools import cache

from opentelemetry.metrics import Counter, Histogram, MeterProvider, get_meter_provider
from opentelemetry.metrics import _Gauge as Gauge

from epochal._version import __version__
from epochal.metrics.instruments import INSTRUMENTS, SECONDS, Fold, Instrument
from epochal.txn.events import Event

ATTRIBUTES = {"stream": "epochal.stream", "sink": "epochal.sink", "error": "error.type"}  # label -> attribute


class OpenTelemetryMetrics:
    """An observer that records the metrics of all streams of this process."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = (provider or get_meter_provider()).get_meter("epochal", __version__)
        self._fold = Fold()
        self._lock = threading.Lock()  # several streams may share it
        self._instruments = {instrument: self._made(instrument) for instrument in INSTRUMENTS}

    def __repr__(self) -> str:
        return "epochal's metrics for OpenTelemetry"

    def __call__(self, event: Event) -> None:
        with self._lock:
            for measured in self._fold.of(event):
                names = (ATTRIBUTES[label] for label in measured.instrument.labels)
                attributes = dict(zip(names, measured.labels, strict=True))
                instrument = self._instruments[measured.instrument]
                if isinstance(instrument, Counter):
                    instrument.add(measured.value, attributes)
                elif isinstance(instrument, Histogram):
                    instrument.record(measured.value, attributes)
                else:
                    instrument.set(measured.value, attributes)

    def _made(self, instrument: Instrument) -> Counter | Histogram | Gauge:
        name, unit, doc = instrument.otel, instrument.unit, instrument.doc
        match instrument.kind:
            case "counter":
                return self._meter.create_counter(name, unit, doc)
            case "gauge":
                return self._meter.create_gauge(name, unit, doc)
            case "histogram":
                return self._meter.create_histogram(name, unit, doc, explicit_bucket_boundaries_advisory=SECONDS)


@cache
def shared() -> OpenTelemetryMetrics:
    """The metrics of all writers of this process, by the global meter provider."""
    return OpenTelemetryMetrics()
