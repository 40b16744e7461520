"""Metrics for Prometheus. Needs ``pip install 'epochal[metrics]'``.

``EpochWriter(metrics="prometheus://127.0.0.1:9464")`` serves them. A program that has an endpoint of its own adds them
to its registry instead::

    from epochal.metrics.prometheus import PrometheusMetrics

    metrics = PrometheusMetrics()  # in prometheus_client's default registry; one for all writers of the program
    writer = EpochWriter(..., observers=[metrics])
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, ClassVar

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from epochal.metrics.instruments import INSTRUMENTS, SECONDS, Fold, Instrument
from epochal.txn.errors import Refused
from epochal.txn.events import Event

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

log = logging.getLogger("epochal")


class PrometheusMetrics:
    """An observer that keeps the metrics of all streams of this process in a registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._fold = Fold()
        self._lock = threading.Lock()  # several streams may share it
        self._metrics = {instrument: _metric(instrument, registry) for instrument in INSTRUMENTS}

    def __repr__(self) -> str:
        return "epochal's metrics for Prometheus"

    def __call__(self, event: Event) -> None:
        with self._lock:
            for measured in self._fold.of(event):
                metric = self._metrics[measured.instrument].labels(*measured.labels)
                if isinstance(metric, Counter):
                    metric.inc(measured.value)
                elif isinstance(metric, Histogram):
                    metric.observe(measured.value)
                else:
                    metric.set(measured.value)


def _metric(instrument: Instrument, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, doc, labels = instrument.prometheus, instrument.doc, instrument.labels
    match instrument.kind:
        case "counter":
            return Counter(name, doc, labels, registry=registry)
        case "gauge":
            return Gauge(name, doc, labels, registry=registry)
        case "histogram":
            return Histogram(name, doc, labels, registry=registry, buckets=SECONDS)


class Endpoint:
    """An HTTP endpoint of this process. All writers with the same address share it; it lives as long as the process."""

    _all: ClassVar[dict[tuple[str, int], Endpoint]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, host: str, port: int) -> None:
        registry = CollectorRegistry()
        self.metrics = PrometheusMetrics(registry)
        try:
            self._server: WSGIServer = start_http_server(port, host, registry)[0]
        except OSError as fault:
            raise Refused(
                f"metrics cannot be served at {host}:{port}: {fault}. Nothing was written. Choose another port in "
                "metrics=, or 0 for any that is free"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"
        log.info("metrics are served at %s", self.url, extra={"url": self.url})

    @staticmethod
    def is_served(host: str, port: int) -> bool:
        """Whether this process has an endpoint at an address."""
        with Endpoint._guard:
            return (host, port) in Endpoint._all

    @staticmethod
    def at(host: str, port: int) -> Endpoint:
        """The endpoint at an address; started when it is first asked for."""
        with Endpoint._guard:
            if (host, port) not in Endpoint._all:
                Endpoint._all[host, port] = Endpoint(host, port)
            return Endpoint._all[host, port]
