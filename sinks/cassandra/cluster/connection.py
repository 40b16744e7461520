"""Open sessions: one in a process for each endpoint."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from epochal.sinks.cassandra.cluster.endpoint import Endpoint
from epochal.sinks.cassandra.cluster.faults import translated
from epochal.txn.errors import EpochalError, Refused

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from cassandra.query import PreparedStatement

CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 20.0


class ClusterSession:
    """An open session, and the statements prepared in it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.session = _open(endpoint)
        self.known: set[str] = set()  # tables that are there, and are never dropped while this is open
        self.facts: dict[str, Any] = {}  # what the server was asked once
        self._prepared: dict[str, PreparedStatement] = {}

    def prepared(self, text: str) -> PreparedStatement:
        """A statement, prepared once."""
        if text not in self._prepared:
            self._prepared[text] = self.session.prepare(text)
        return self._prepared[text]

    def clock(self) -> Callable[[], float]:
        """The server's clock, in seconds since 1970: asked once, then counted on. Nobody's wall clock matters."""
        (milliseconds,) = self.session.execute("SELECT toUnixTimestamp(now()) FROM system.local").one()
        told, since = milliseconds / 1000, time.monotonic()
        return lambda: told + time.monotonic() - since


_connections: dict[tuple[int, Endpoint], ClusterSession] = {}
_lock = threading.Lock()


def connect(endpoint: Endpoint) -> ClusterSession:
    """The connection of this process; made if there is none. StoreAway if the cluster does not answer."""
    full = endpoint.with_secrets()
    with _lock:
        key = (os.getpid(), full)  # a fork has its parent's dictionary, and none of its threads
        found = _connections.get(key)
        if found is None or found.session.is_shutdown:
            _connections[key] = found = ClusterSession(full)
        return found


def forget(endpoint: Endpoint) -> None:
    """Close a connection; the next one is made anew."""
    with _lock:
        found = _connections.pop((os.getpid(), endpoint.with_secrets()), None)
    if found is not None:
        found.session.cluster.shutdown()


def _open(endpoint: Endpoint) -> Session:
    from cassandra import ConsistencyLevel
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import (
        DCAwareRoundRobinPolicy,
        ExponentialReconnectionPolicy,
        FallthroughRetryPolicy,
        RoundRobinPolicy,
        TokenAwarePolicy,
    )
    from cassandra.query import tuple_factory

    from epochal.sinks.cassandra.cluster.batches import Handler

    logging.getLogger("cassandra").setLevel(logging.ERROR)  # what matters is raised, and logged with its epoch
    level = endpoint.consistency
    plain = DCAwareRoundRobinPolicy(endpoint.datacenter) if endpoint.datacenter else RoundRobinPolicy()
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(plain),
        retry_policy=FallthroughRetryPolicy(),  # whoever sends decides: it knows what may be sent again
        consistency_level=getattr(ConsistencyLevel, level),
        serial_consistency_level=(
            ConsistencyLevel.LOCAL_SERIAL if level.startswith("LOCAL") else ConsistencyLevel.SERIAL
        ),
        request_timeout=REQUEST_TIMEOUT,
        row_factory=tuple_factory,
    )
    auth = PlainTextAuthProvider(endpoint.user, endpoint.password) if endpoint.user else None
    cluster = None
    try:
        cluster = Cluster(
            list(endpoint.contact_points),
            port=endpoint.port,
            auth_provider=auth,
            ssl_context=_tls(endpoint) if endpoint.tls else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            # Without it small writes wait 40 ms for each other's acknowledgements.
            sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            reconnection_policy=ExponentialReconnectionPolicy(0.2, 5.0),
            connect_timeout=CONNECT_TIMEOUT,
            control_connection_timeout=CONNECT_TIMEOUT,
        )
        session = cluster.connect()
    except EpochalError:
        raise
    except Exception as fault:  # noqa: BLE001  # sorted by `translated` into what to try again and what not
        if cluster is not None:
            cluster.shutdown()
        raise translated(fault, endpoint.place, endpoint) from None
    session.client_protocol_handler = Handler
    session.use_client_timestamp = False  # every write carries the epoch's own
    return session


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        if endpoint.ca_file:
            context.check_hostname = False  # contact points are addresses; the CA is named by the user
        if endpoint.cert_file:
            context.load_cert_chain(endpoint.cert_file, endpoint.key_file)
    except (OSError, ValueError) as fault:
        names = ", ".join(filter(None, (endpoint.ca_file, endpoint.cert_file, endpoint.key_file)))
        raise Refused(f"{endpoint.place}: {names}: {fault}; check ca_file, cert_file and key_file") from None
    return context
