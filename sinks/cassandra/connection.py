"""How to reach a cluster: settings, and one session for each of them in a process.

Passwords come from the sink's options or the environment and go to the executors with the task;
they are in no description, handle, log or error.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from epochal.txn.errors import Refused, StoreAway
from epochal.txn.model import Json

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from cassandra.query import PreparedStatement

USER, PASSWORD = "EPOCHAL_CASSANDRA_USER", "EPOCHAL_CASSANDRA_PASSWORD"  # names of variables
CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the cluster is and how to speak to it."""

    contact_points: tuple[str, ...]
    port: int = 9042
    datacenter: str | None = None
    consistency: str = "LOCAL_QUORUM"
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    def with_secrets(self) -> Endpoint:
        """With user and password from the environment, where the options have none."""
        user, password = self.user or os.environ.get(USER), self.password or os.environ.get(PASSWORD)
        return replace(self, user=user, password=password)

    def describe(self) -> dict[str, Json]:
        """Everything but the secrets."""
        return {
            "contact_points": list(self.contact_points),
            "port": self.port,
            "datacenter": self.datacenter,
            "consistency": self.consistency,
            "tls": self.tls,
            "ca_file": self.ca_file,
            "cert_file": self.cert_file,
            "key_file": self.key_file,
        }


class Connection:
    """An open session, and the statements prepared in it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.session = _open(endpoint)
        self.known: set[str] = set()  # tables that are there, and are never dropped while this is open
        self._prepared: dict[str, PreparedStatement] = {}

    def prepared(self, text: str) -> PreparedStatement:
        """A statement, prepared once."""
        if text not in self._prepared:
            self._prepared[text] = self.session.prepare(text)
        return self._prepared[text]


_connections: dict[tuple[int, Endpoint], Connection] = {}
_lock = threading.Lock()


def connect(endpoint: Endpoint) -> Connection:
    """The connection of this process; made if there is none. StoreAway if the cluster does not answer."""
    full = endpoint.with_secrets()
    with _lock:
        key = (os.getpid(), full)  # a fork has its parent's dictionary, and none of its threads
        found = _connections.get(key)
        if found is None or found.session.is_shutdown:
            _connections[key] = found = Connection(full)
        return found


def forget(endpoint: Endpoint) -> None:
    """Close a connection; the next one is made anew."""
    with _lock:
        found = _connections.pop((os.getpid(), endpoint.with_secrets()), None)
    if found is not None:
        found.session.cluster.shutdown()


def is_away(fault: BaseException) -> bool:
    """Whether a later try of the same request may succeed. An error means "unknown", never "not written"."""
    import cassandra
    from cassandra import protocol
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException

    if isinstance(fault, NoHostAvailable):
        return not any(_is_refusal(error) for error in _errors(fault))
    if type(fault) is cassandra.DriverException:
        return True  # "metadata was not refreshed": nobody was there to ask
    refused = (cassandra.RequestValidationException, protocol.RequestValidationException, cassandra.FunctionFailure)
    if isinstance(fault, refused):
        return isinstance(fault, protocol.PreparedQueryNotFound)
    away = (
        cassandra.RequestExecutionException,
        cassandra.OperationTimedOut,
        cassandra.UnresolvableContactPoints,
        protocol.ErrorMessage,
        ConnectionException,
        OSError,
    )
    return isinstance(fault, away)


def brief(fault: BaseException) -> str:
    """What went wrong in one line, without what was sent."""
    from cassandra.cluster import NoHostAvailable

    if isinstance(fault, NoHostAvailable):
        # A host's own error tells more than "no host"; the same one from each is told once.
        told = dict.fromkeys(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}" for error in _errors(fault))
        return "; ".join(told) or "no host answers"
    return f"{type(fault).__name__}: {str(fault).partition(chr(10))[0]}"


def _errors(fault: Any) -> list[BaseException]:
    return list(fault.errors.values()) if isinstance(fault.errors, dict) else []


def _is_refusal(error: BaseException) -> bool:
    """Whether one of the two does not trust the other: waiting does not help."""
    import cassandra

    # The driver tells what TLS says as the text of a plain OSError.
    return isinstance(error, cassandra.AuthenticationFailed) or "CERTIFICATE_VERIFY_FAILED" in str(error)


def translated(fault: Exception, what: str) -> Exception:
    """The fault as the protocol wants it: to be tried again, or to stop."""
    if is_away(fault):
        return StoreAway(f"{what}: {brief(fault)}")
    return Refused(f"{what}: {brief(fault)}")


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

    from epochal.sinks.cassandra.batches import Handler

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
    places = ", ".join(endpoint.contact_points)
    try:
        session = cluster.connect()
    except Exception as fault:  # noqa: BLE001  # sorted by `translated` into what to try again and what not
        cluster.shutdown()
        raise translated(fault, f"Cassandra at {places}, port {endpoint.port}") from None
    session.client_protocol_handler = Handler
    session.use_client_timestamp = False  # every write carries the epoch's own
    return session


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=endpoint.ca_file)
    if endpoint.ca_file:
        context.check_hostname = False  # contact points are addresses; the CA is named by the user
    if endpoint.cert_file:
        context.load_cert_chain(endpoint.cert_file, endpoint.key_file)
    return context
