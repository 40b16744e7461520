"""Metrics of streams, from events: for Prometheus and for OpenTelemetry, each behind an extra.

The value of ``metrics=``, of `EpochWriter` and of ``spark.epochal.<stream>.metrics``:

===================================  ==================================================================
value                                meaning
===================================  ==================================================================
``prometheus``                       an HTTP endpoint at 127.0.0.1:9464
``prometheus://HOST:PORT``           the same at this address; port 0 is any that is free
``opentelemetry``                    the global meter provider of the program
===================================  ==================================================================
"""

from __future__ import annotations

import errno
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from epochal.txn.events import Observer

HOST, PORT = "127.0.0.1", 9464
EXTRAS = {"prometheus": ("prometheus_client", "metrics"), "opentelemetry": ("opentelemetry.metrics", "otel")}
EXPECTED = "'prometheus', 'prometheus://127.0.0.1:9464' or 'opentelemetry'"


def fault_of(target: object) -> str | None:
    """What is wrong with a value of ``metrics=``; None if it can be used here.

    >>> fault_of("prometheus://0.0.0.0:9464"), fault_of("statsd")
    (None, "must be 'prometheus', 'prometheus://127.0.0.1:9464' or 'opentelemetry'")
    """
    if not isinstance(target, str) or _parsed(target) is None:
        return f"must be {EXPECTED}"
    module, extra = EXTRAS[target.partition(":")[0]]
    try:
        missing = find_spec(module) is None
    except ModuleNotFoundError:  # a parent package
        missing = True
    return f"needs a package that is not installed: pip install 'epochal[{extra}]'" if missing else None


def observer_of(target: str) -> Observer:
    """The observer of a value of ``metrics=``; starts its endpoint if it has one. Refused if that cannot listen."""
    address = _parsed(target)
    assert address is not None  # it was checked
    if target == "opentelemetry":
        from epochal.metrics import opentelemetry

        return opentelemetry.shared()
    from epochal.metrics.prometheus import Endpoint

    return Endpoint.at(*address).metrics


def why_not_served(target: str) -> str | None:
    """Why the endpoint of a value of ``metrics=`` could not listen now; None if it could, or if there is none.

    The address is bound for an instant and never listened at, so nobody can connect meanwhile.
    """
    address = _parsed(target)
    if target == "opentelemetry" or address is None or not address[1]:
        return None
    from epochal.metrics.prometheus import Endpoint

    if Endpoint.is_served(*address):
        return None
    host, port = address
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            trial.bind(place)
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            return (
                f"port {port} of {host} is in use, perhaps by the driver of another stream. "
                f"`ss -ltnp 'sport = :{port}'` shows by whom. Choose another port, or 0 for any that is free"
            )
        return f"metrics cannot be served at {host}:{port}: {fault.strerror}. Choose an address of this machine"
    return None


def _parsed(target: str) -> tuple[str, int] | None:
    """The address of an endpoint, the usual one for targets without; None if the target is none."""
    if target in EXTRAS:
        return HOST, PORT
    try:
        parts = urlsplit(target)
        port = PORT if parts.port is None else parts.port
    except ValueError:
        return None
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None)
    return (parts.hostname, port) if parts.scheme == "prometheus" and parts.hostname and bare else None
