"""The client's errors in one line each: whether to try again, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from epochal.participant import BadRows, Refused, SinkUnavailable, StoreAway
from epochal.sinks.kafka.cluster.endpoint import Endpoint

# Waiting does not help; by the name of the error.
REFUSALS = {
    "_AUTHENTICATION": "check user, password and sasl",
    "SASL_AUTHENTICATION_FAILED": "check user, password and sasl",
    "UNSUPPORTED_SASL_MECHANISM": "check sasl: the brokers have not enabled this mechanism",
    "_SSL": "check tls, ca_file, cert_file and key_file, and that this is the port for TLS",
    "TOPIC_AUTHORIZATION_FAILED": "allow this user to Describe, DescribeConfigs and Write the topic, and "
    "to Read epochal's own",
    "CLUSTER_AUTHORIZATION_FAILED": "allow this user to write idempotently (IdempotentWrite on the cluster)",
    "GROUP_AUTHORIZATION_FAILED": "allow this user to read the group 'epochal'",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow this user to describe and write transactional ids that begin with "
    "'epochal-'",
    "INVALID_TRANSACTION_TIMEOUT": "set a shorter transaction_timeout, or a longer transaction.max.timeout.ms of the "
    "brokers",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, as it was",
    "_UNKNOWN_TOPIC": "create the topic, as it was",
    "_UNKNOWN_PARTITION": "create the topic with as many partitions as it had",
    "MSG_SIZE_TOO_LARGE": "set max.message.bytes of the topic to what it was",
    "RECORD_LIST_TOO_LARGE": "set max.message.bytes of the topic to what it was",
    "INVALID_TIMESTAMP": "set message.timestamp.after.max.ms and message.timestamp.before.max.ms of the topic to what "
    "they were",
    "INVALID_RECORD": "set cleanup.policy of the topic to what it was",
    "TOPIC_EXCEPTION": "this is no name of a topic",
    "POLICY_VIOLATION": "a policy of the brokers forbids it",
    "INVALID_REPLICATION_FACTOR": "create the topic beforehand",
    "UNSUPPORTED_VERSION": "the brokers are too old for it",
    "UNSUPPORTED_COMPRESSION_TYPE": "set another compression",
}
# The client learns why it has no connection apart from the call that waits for one.
OF_CONNECTIONS = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")
SILENT = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_DESTROY", "REQUEST_TIMED_OUT")


def translated(
    fault: BaseException | KafkaError, what: str, endpoint: Endpoint, last: KafkaError | None = None
) -> Exception:
    """The error as the coordinator expects it: StoreAway to try again, Refused to stop.

    `last` is what the client has reported last of its connections.
    """
    error = error_of(fault)
    if error is None:
        return StoreAway(f"{what}: {type(fault).__name__}: {fault}")
    if last is not None and error.name() in SILENT and last.name() in OF_CONNECTIONS:
        error = last
    text = f"{what}: {brief(error)}"
    advice = REFUSALS.get(error.name())
    if advice is None:
        return StoreAway(f"{text} ({endpoint.place})" if error.name() in SILENT else text)
    kind = SinkUnavailable if endpoint.from_journal and error.name() in OF_CONNECTIONS else Refused
    return kind(f"{text}; {advice}")


def error_of(fault: BaseException | KafkaError) -> KafkaError | None:
    """The client's own description of a fault, if it is one of the client's."""
    if isinstance(fault, KafkaException):
        found = fault.args[0] if fault.args else None
        return found if isinstance(found, KafkaError) else None
    return fault if isinstance(fault, KafkaError) else None


def brief(error: KafkaError) -> str:
    """The error in a line."""
    text = (error.str() or "").partition("\n")[0].strip()
    return f"{error.name()}: {text}" if text else error.name()


@contextmanager
def naming(sink: str, *, waits: bool = True) -> Iterator[None]:
    """Put the sink's name before errors that pass; before StoreAway only if it `waits`, else the caller names it."""
    try:
        yield
    except (Refused, BadRows, StoreAway) as fault:
        if str(fault).startswith("sink ") or (isinstance(fault, StoreAway) and not waits):
            raise
        named = type(fault)(f"sink {sink!r}: {fault}")
        if isinstance(fault, Refused) and isinstance(named, Refused):
            named.offers = fault.offers
        raise named from fault
