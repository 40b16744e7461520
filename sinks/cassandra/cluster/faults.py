"""The driver's errors in one line each: whether to try again, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from epochal.sinks.cassandra.cluster.endpoint import PASSWORD, USER, Endpoint
from epochal.txn.errors import BadRows, Refused, SinkUnavailable, StoreAway

# Errors of TLS, which the driver reports as the text of a plain OSError.
TRUST_FAULTS = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by ca_file, or not for this host",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS at this port: tls=False, or another port",
    "CERTIFICATE_REQUIRED": "the server requires a client certificate: give cert_file and key_file",
}
ADVICE = {
    "Connection refused": "nothing listens there: is the server up, and is this its client port (9042)?",
    "imed out": "it does not answer: is the server up, is a firewall between, does it require TLS (tls=True)?",
    "ConnectionShutdown": "it closes the connection: does it require TLS (tls=True)?",
}


def is_away(fault: BaseException) -> bool:
    """Whether the same request may succeed later. An error means "unknown", never "not written"."""
    import cassandra
    from cassandra import protocol
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException

    if isinstance(fault, NoHostAvailable):
        return not any(_is_refusal(error) for error in _errors(fault))
    if _is_metadata_not_refreshed(fault):
        return True
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
    """The error in one line, without the data that was sent."""
    import cassandra
    from cassandra.cluster import NoHostAvailable

    if isinstance(fault, NoHostAvailable):
        # A host's own error says more than "no host". Hosts with the same error share one line.
        texts = dict.fromkeys(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}" for error in _errors(fault))
        return "; ".join(texts) or "no host answers"
    if isinstance(fault, cassandra.UnresolvableContactPoints):
        return "no such host"
    if _is_metadata_not_refreshed(fault):
        return "no server answers"  # the driver says only that it has logged why
    return f"{type(fault).__name__}: {str(fault).partition(chr(10))[0]}"


def _is_metadata_not_refreshed(fault: BaseException) -> bool:
    """Whether no server has answered a question about a table. The driver has no class of its own for it."""
    import cassandra

    return type(fault) is cassandra.DriverException


def advice(fault: BaseException, endpoint: Endpoint) -> str:
    """What to do about a cluster that cannot be connected to."""
    import cassandra

    if isinstance(fault, cassandra.UnresolvableContactPoints):
        return "check contact_points, or the name service of this machine"
    errors = [fault, *_errors(fault)]
    if any(isinstance(error, cassandra.AuthenticationFailed) for error in errors):
        if endpoint.withheld:
            return f"it requires a password, and only the journal names its hosts. {endpoint.how_to_trust()}"
        if endpoint.user:
            return "check the user and the password"
        return f"it requires a user and a password: give Connection(user=, password=), or set {USER} and {PASSWORD}"
    texts = " ".join(f"{type(error).__name__}: {error}" for error in errors)
    return next((text for sign, text in {**TRUST_FAULTS, **ADVICE}.items() if sign in texts), "")


def _errors(fault: Any) -> list[BaseException]:
    found = getattr(fault, "errors", None)
    return list(found.values()) if isinstance(found, dict) else []


def _is_refusal(error: BaseException) -> bool:
    """Whether the client or the server does not trust the other: waiting does not help."""
    import cassandra

    return isinstance(error, cassandra.AuthenticationFailed) or any(sign in str(error) for sign in TRUST_FAULTS)


def translated(fault: Exception, what: str, endpoint: Endpoint | None = None) -> Exception:
    """The error as the coordinator expects it: StoreAway to try again, Refused to stop; advice needs the endpoint."""
    hint = advice(fault, endpoint) if endpoint is not None else ""
    text = f"{what}: {brief(fault)}" + (f"; {hint}" if hint else "")
    if is_away(fault):
        return StoreAway(text)
    # A driver has its own settings: what stops a command that knows only the journal need not stop a start.
    return SinkUnavailable(text) if endpoint is not None and endpoint.from_journal else Refused(text)


@contextmanager
def naming(sink: str, *, waits: bool = True) -> Iterator[None]:
    """Put the sink's name before errors that pass; before StoreAway only if it `waits`, else the caller names it."""
    try:
        yield
    except (Refused, BadRows, StoreAway) as fault:
        if str(fault).startswith("sink ") or (isinstance(fault, StoreAway) and not waits):
            raise
        raise type(fault)(f"sink {sink!r}: {fault}") from fault
