"""What the driver's errors mean: to be tried again or not, in one line, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from epochal.sinks.cassandra.cluster.endpoint import PASSWORD, USER, Endpoint
from epochal.txn.errors import BadRows, Refused, StoreAway

# What TLS says, which the driver tells as the text of a plain OSError.
TRUST_FAULTS = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by ca_file, or not for this host",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS at this port: tls=False, or another port",
    "CERTIFICATE_REQUIRED": "the server wants a client's certificate: give cert_file and key_file",
}
ADVICE = {
    "Connection refused": "nobody listens there: is the server up, and is this the port of its clients (9042)?",
    "imed out": "it does not answer: is the server up, is a firewall between, does it want TLS (tls=True)?",
    "ConnectionShutdown": "it hangs up: does it want TLS (tls=True)?",
}


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
    import cassandra
    from cassandra.cluster import NoHostAvailable

    if isinstance(fault, NoHostAvailable):
        # A host's own error tells more than "no host"; the same one from each is told once.
        told = dict.fromkeys(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}" for error in _errors(fault))
        return "; ".join(told) or "no host answers"
    if isinstance(fault, cassandra.UnresolvableContactPoints):
        return "no such host"
    return f"{type(fault).__name__}: {str(fault).partition(chr(10))[0]}"


def advice(fault: BaseException, endpoint: Endpoint) -> str:
    """What to do about a cluster that cannot be connected to."""
    import cassandra

    if isinstance(fault, cassandra.UnresolvableContactPoints):
        return "check contact_points, or the name service of this machine"
    errors = [fault, *_errors(fault)]
    if any(isinstance(error, cassandra.AuthenticationFailed) for error in errors):
        if endpoint.withheld:
            return f"it wants a password, and its hosts are named by the journal alone. {endpoint.how_to_trust()}"
        if endpoint.user:
            return "check the user and the password"
        return f"it wants a user and a password: give Connection(user=, password=), or set {USER} and {PASSWORD}"
    told = " ".join(f"{type(error).__name__}: {error}" for error in errors)
    return next((text for sign, text in {**TRUST_FAULTS, **ADVICE}.items() if sign in told), "")


def _errors(fault: Any) -> list[BaseException]:
    found = getattr(fault, "errors", None)
    return list(found.values()) if isinstance(found, dict) else []


def _is_refusal(error: BaseException) -> bool:
    """Whether one of the two does not trust the other: waiting does not help."""
    import cassandra

    return isinstance(error, cassandra.AuthenticationFailed) or any(sign in str(error) for sign in TRUST_FAULTS)


def translated(fault: Exception, what: str, endpoint: Endpoint | None = None) -> Exception:
    """The fault as the protocol wants it: to be tried again, or to stop; with the endpoint also what to do."""
    todo = advice(fault, endpoint) if endpoint is not None else ""
    text = f"{what}: {brief(fault)}" + (f"; {todo}" if todo else "")
    return StoreAway(text) if is_away(fault) else Refused(text)


@contextmanager
def naming(sink: str, *, waits: bool = True) -> Iterator[None]:
    """Faults that pass say which sink it was; those to wait for too, unless the caller says so with the epoch."""
    try:
        yield
    except (Refused, BadRows, StoreAway) as fault:
        if str(fault).startswith("sink ") or (isinstance(fault, StoreAway) and not waits):
            raise
        raise type(fault)(f"sink {sink!r}: {fault}") from fault
