"""The options of a Kafka sink: each is declared once, here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from epochal.participant import Faults, Option, Participant, SinkName, SinkOptions, declared, parse_duration, parse_size
from epochal.sinks.kafka.cluster.endpoint import Endpoint
from epochal.sinks.kafka.layout import MARKS, MOST_LANES, spelled

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
USUAL_LANES = 8
_SERVER = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^\s:,/@\[\]]+)(:\d{1,5})?")


def names_in(text: str) -> tuple[str, ...]:
    """A setting's names, with commas between them."""
    return tuple(name.strip() for name in text.split(","))


def check_topics(faults: Faults, option: str, value: Any) -> tuple[str, ...]:
    """One name of a topic, or several."""
    names = (value,) if isinstance(value, str) else value
    good = isinstance(names, Sequence) and bool(names)
    found = tuple(names) if good else ()
    for name in found if good else [value]:
        right = isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name.strip(".") != ""
        faults.check(right, f"{option}={name!r}: a topic has letters, digits, '.', '_' and '-', 249 at most")
        kafkas_own = isinstance(name, str) and name.startswith("__")
        faults.check(not kafkas_own, f"{option}={name!r}: topics that begin with '__' are Kafka's own")
    faults.check(len(set(found)) == len(found), f"{option}={list(found)!r}: names a topic twice")
    return found


def check_servers(faults: Faults, option: str, value: Any) -> tuple[str, ...]:
    """Brokers as host:port."""
    found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()
    good = bool(found) and all(isinstance(one, str) and _SERVER.fullmatch(one) for one in found)
    what = option if "@" in str(value) else f"{option}={value!r}"  # what stands before it may be a password
    faults.check(good, f"{what}: a list of host:port, such as ['broker1:9092']")
    return found


def check_time(faults: Faults, option: str, value: Any) -> Any:
    """A time, as a number of seconds or as a text."""
    found = faults.parsed(option, value, parse_duration)
    faults.check(found is None or 1 <= found <= 86_400, f"{option}={value!r}: from 1 second to a day")
    return value


def check_size(faults: Faults, option: str, value: Any) -> Any:
    """A number of bytes, as one or as a text."""
    faults.parsed(option, value, parse_size)
    return value


def check_lanes(faults: Faults, option: str, value: Any) -> Any:
    """How many transactional ids are used at once."""
    good = value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_LANES)
    faults.check(good, f"{option}={value!r}: a whole number from 1 to {MOST_LANES}")
    return value


def check_sink(faults: Faults, option: str, value: Any) -> Any:
    """Another sink."""
    faults.check(hasattr(value, "stage"), f"{option}={value!r}: a sink, or None")
    return value


@declared
@dataclass(frozen=True, eq=False, repr=False)
class KafkaOptions(SinkOptions):
    """How rows become messages, and where they go."""

    kind: ClassVar[str] = "kafka"

    topic: Annotated[
        str | Sequence[str],
        Option(
            "the topic, or those that `topic_by` chooses from; they must exist",
            check=check_topics,
            parse=names_in,
            shown_type="name or list of names",
            journal=True,
        ),
    ]
    _: KW_ONLY
    bootstrap_servers: Annotated[
        Sequence[str],
        Option(
            "brokers to begin with, as `host:port`; the others are found by them",
            check=check_servers,
            parse=names_in,
            shown_type="list of `host:port`",
            journal=True,
        ),
    ]
    name: SinkName = "kafka"
    topic_by: Annotated[
        str | None, Option("the name of the topic that a row goes to", expects="a SQL expression", journal=True)
    ] = None
    key: Annotated[str | None, Option("the message's key, text or binary", expects="a SQL expression")] = None
    value: Annotated[
        str | None,
        Option(
            "the message's value, text or binary",
            expects="a SQL expression",
            shown_default="a JSON object of the columns",
        ),
    ] = None
    drop: Annotated[
        Sequence[str], Option("columns that are there for the other expressions only, and not in the JSON object")
    ] = ()
    headers: Annotated[
        str | None,
        Option("the message's headers, `array<struct<key string, value binary>>`", expects="a SQL expression"),
    ] = None
    partition: Annotated[
        str | None,
        Option(
            "the partition's number", expects="a SQL expression", shown_default="by the key, as Kafka's own clients"
        ),
    ] = None
    timestamp: Annotated[
        str | None,
        Option("the message's time, a timestamp", expects="a SQL expression", shown_default="when it is sent"),
    ] = None
    epoch_headers: Annotated[bool, Option("give each message its stream and epoch as headers")] = False
    digest: Annotated[
        bool,
        Option(
            "digest each epoch's messages while they are staged, for "
            "[`epochal audit`](operations.md#audit-is-every-row-there-exactly-once)"
        ),
    ] = False
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        Option("of batches of messages", journal=True),
    ] = "none"
    transactions: Annotated[
        Literal["one", "parts"],
        Option("of an epoch: one, or many that executors send at once, see [below](#epochs-in-parts)"),
    ] = "one"
    lanes: Annotated[
        int | None,
        Option(
            'with `transactions="parts"`: how many transactions are open at once',
            expects="a whole number from 1 to 64",
            check=check_lanes,
            parse=int,
            shown_default="8",
        ),
    ] = None
    transaction_timeout: Annotated[
        int | float | str,
        Option(
            "how long an epoch's transaction may take, see [below](#how-large-an-epoch-may-be)",
            check=check_time,
            parse=str,
            shown_type="time",
            journal=True,
        ),
    ] = "5 min"
    send_rate: Annotated[
        int | str,
        Option(
            "bytes a second that the brokers surely take; a larger epoch than this allows is refused",
            check=check_size,
            parse=str,
            shown_type="size",
        ),
    ] = "2 MB"
    ledger_topic: Annotated[
        str,
        Option("epochal's own topic, which records who writes where, and the latest epochs", journal=True),
    ] = MARKS
    tls: Annotated[bool, Option("encrypted connections", journal=True)] = False
    ca_file: Annotated[
        str | None,
        Option("who signed the brokers' certificates", "the path of a PEM file", journal=True),
    ] = None
    cert_file: Annotated[str | None, Option("a certificate of this client", "the path of a PEM file", journal=True)] = (
        None
    )
    key_file: Annotated[str | None, Option("the key of that certificate", "the path of a PEM file", journal=True)] = (
        None
    )
    key_password: Annotated[
        str | None,
        Option("or `EPOCHAL_KAFKA_KEY_PASSWORD`", expects="a text", secret=True, shown_default="environment"),
    ] = None
    sasl: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None,
        Option("how to log in", journal=True),
    ] = None
    user: Annotated[
        str | None,
        Option(
            "or `EPOCHAL_KAFKA_USER`; see [secrets](#secrets)",
            expects="a text",
            secret="login",
            shown_default="environment",
        ),
    ] = None
    password: Annotated[
        str | None, Option("or `EPOCHAL_KAFKA_PASSWORD`", expects="a text", secret=True, shown_default="environment")
    ] = None
    dead_letters: Annotated[
        Participant[Any] | None,
        Option(
            "for the rows that cannot be messages, with the reason in `_error`; any sink; not by Spark settings",
            check=check_sink,
            shown_type="sink",
            setting=False,
        ),
    ] = None
    staging: Annotated[
        str | None,
        Option(
            "a folder that driver and executors can reach",
            expects="a folder or URI",
            shown_default="beside the journal",
            journal=True,
        ),
    ] = None

    def __repr__(self) -> str:
        return f"KafkaSink({', '.join(self.topics)!r}, name={self.name!r})"

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,) if isinstance(self.topic, str) else tuple(self.topic)

    @property
    def place(self) -> str:
        """The target as epochal's own topic has it."""
        return spelled(self.topics)

    @property
    def timeout(self) -> float:
        """Of a transaction, in seconds."""
        return parse_duration(self.transaction_timeout)

    @property
    def lanes_of_epochs(self) -> int:
        """How many transactions of an epoch are open at once; 0 if it is one."""
        return 0 if self.transactions == "one" else self.lanes or USUAL_LANES

    @property
    def most_bytes(self) -> int:
        """The largest epoch that surely fits into a transaction."""
        return round(self.timeout * parse_size(self.send_rate))

    def endpoint(self, *, from_journal: bool = False) -> Endpoint:
        """The brokers."""
        return Endpoint(
            servers=tuple(self.bootstrap_servers),
            tls=self.tls,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            key_password=self.key_password,
            sasl=self.sasl,
            user=self.user,
            password=self.password,
            from_journal=from_journal,
        )

    def check_together(self, faults: Faults) -> None:
        several = len(self.topics) > 1
        faults.check(not several or self.topic_by is not None, "topic: several topics need topic_by=")
        faults.check(self.ledger_topic not in self.topics, "topic: ledger_topic is epochal's own")
        faults.check(self.lanes is None or self.transactions == "parts", "lanes: only with transactions='parts'")
        faults.check(not (self.value and self.drop), "drop: only without value=, for the columns of the JSON object")
        for name in ("ca_file", "cert_file", "key_file"):
            faults.check(getattr(self, name) is None or self.tls is True, f"{name}: only with tls=True")
        faults.check((self.cert_file is None) or self.key_file is not None, "cert_file: needs key_file")
        faults.check(self.key_file is None or self.cert_file is not None, "key_file: needs cert_file")
        faults.check((self.user is None) == (self.password is None), "user and password: give both or neither")
        faults.check(self.user is None or self.sasl is not None, "user and password: only with sasl=")
