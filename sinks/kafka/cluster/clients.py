"""What the brokers say of topics: whether they are there, what they take, and where their partitions end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from epochal.participant import Refused, StoreAway
from epochal.sinks.kafka.cluster.endpoint import Endpoint
from epochal.sinks.kafka.cluster.faults import SILENT, error_of, translated

T = TypeVar("T")
TIMEOUT = 15.0  # seconds for one question
UNLIMITED = 1 << 62
MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID")
# Who leads a partition has changed, or is not known: of a topic that is being created, or gone; after a restart.
OTHER_LEADERS = ("_NOENT", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION")
NO_LEADER = ("LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the brokers describe it now."""

    name: str
    identity: str  # one that was deleted and created again has another
    partitions: int
    max_bytes: int = 1_048_588  # of a batch of messages
    compacted: bool = False
    deletes: bool = True  # by age or size
    takes_time: bool = True  # a message has the time that its sender gives
    ahead_ms: int = UNLIMITED  # how far that may be ahead of the broker's clock
    behind_ms: int = UNLIMITED
    writable: bool = True


class Cluster:
    """The questions of this process to one cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.last: KafkaError | None = None  # why the client had no connection, since the last answer
        settings: dict[str, Any] = {**endpoint.settings(), "error_cb": self._note}
        self._admin: Any = AdminClient(settings)

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Topics with their settings. Refused if one is missing, or cannot be written."""
        found = self.find(names)
        if missing := [name for name in names if name not in found]:
            raise Refused(
                f"{self.endpoint.place}: there is no topic {', '.join(map(repr, missing))}. Nothing was written. "
                "Create it first; epochal creates none"
            )
        if forbidden := [name for name, topic in found.items() if not topic.writable]:
            raise Refused(
                f"{self.endpoint.place}: this user may not write to {', '.join(map(repr, forbidden))}. Nothing was "
                "written. Allow it to Describe, DescribeConfigs and Write"
            )
        return found

    def find(self, names: Sequence[str]) -> dict[str, Topic]:
        """The topics that exist, with their settings."""
        described = self._described(names)
        settings = self._settings(described) if described else {}
        return {name: _topic(name, one, settings[name]) for name, one in described.items()}

    def identities(self, names: Sequence[str]) -> dict[str, str]:
        """The brokers' own ids of the topics that exist."""
        return {name: str(one.topic_id) for name, one in self._described(names).items()}

    def ends(
        self, partitions: Iterable[tuple[str, int]], *, committed: bool = False, first: bool = False
    ) -> dict[tuple[str, int], int]:
        """The offset of the next message of some partitions: of the next for readers of committed ones, if asked.

        With `first`, that of the first message that is still there. A partition whose topic is gone is left out.
        """
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        when = OffsetSpec.earliest() if first else OffsetSpec.latest()
        wanted = {TopicPartition(name, number): when for name, number in partitions}
        found: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + TIMEOUT
        while wanted:
            unknown = []
            for at, future in self._asked("list_offsets", wanted, isolation_level=isolation).items():
                offset = self._result(future, f"the end of {at.topic}", missing=None, more=(*OTHER_LEADERS, *NO_LEADER))
                if offset is not None:
                    found[at.topic, at.partition] = int(offset.offset)
                else:
                    unknown.append(at)
            # No answer is no end: a topic whose leader has changed, or is away, is not an empty one.
            there = self.identities(sorted({at.topic for at in unknown})) if unknown else {}
            wanted = {at: when for at in unknown if at.topic in there}
            if wanted and time.monotonic() > deadline:
                names = ", ".join(sorted({f"{at.topic}[{at.partition}]" for at in wanted}))
                raise StoreAway(f"{names}: no broker leads it")
            for name in sorted({at.topic for at in wanted}):
                self._leaders(name)
        return found

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Create a topic with one partition, as safe as the cluster allows; no error if it exists."""
        brokers = len(self._admin.list_topics(timeout=TIMEOUT).brokers)
        replicas = min(3, brokers)
        given = {**settings, "min.insync.replicas": str(max(1, replicas - 1))}
        topic = NewTopic(name, num_partitions=1, replication_factor=replicas, config=given)
        (future,) = self._asked("create_topics", [topic]).values()
        try:
            future.result(TIMEOUT)
        except (KafkaException, TimeoutError) as fault:
            error = error_of(fault)
            if error is None or error.name() != "TOPIC_ALREADY_EXISTS":
                raise self.translated(fault, f"topic {name!r} cannot be created") from None
        deadline = time.monotonic() + TIMEOUT
        while not self.ends([(name, 0)]):  # the brokers hear of it one after the other
            if time.monotonic() > deadline:
                raise StoreAway(f"topic {name!r}: it is not there {TIMEOUT:.0f} s after it was created")
            time.sleep(0.05)

    def cluster_id(self) -> str:
        """The cluster's own id."""
        try:
            return str(self._admin.list_topics(timeout=TIMEOUT).cluster_id)
        except (KafkaException, TimeoutError) as fault:
            raise self.translated(fault, "the cluster's id") from None

    def longest_transaction(self) -> float | None:
        """The longest timeout of a transaction that the brokers allow, in seconds; None if they do not say."""
        try:
            broker = next(iter(self._admin.list_topics(timeout=TIMEOUT).brokers))
            (future,) = self._asked("describe_configs", [ConfigResource(ResourceType.BROKER, str(broker))]).values()
            return int(future.result(TIMEOUT)["transaction.max.timeout.ms"].value) / 1000
        except (KafkaException, TimeoutError):
            return None  # a right that it may lack: then the brokers refuse what is too long

    def translated(self, fault: BaseException | KafkaError, what: str) -> Exception:
        """The error as the coordinator expects it."""
        self._admin.poll(0)  # so that `last` is known
        return translated(fault, what, self.endpoint, self.last)

    def _described(self, names: Sequence[str]) -> dict[str, Any]:
        asked = self._asked("describe_topics", TopicCollection(list(names)), include_authorized_operations=True)
        found = {}
        for name, future in asked.items():
            described = self._result(future, f"topic {name!r}", missing=None)
            if described is not None:
                found[name] = described
        return found

    def _settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        asked = self._asked("describe_configs", [ConfigResource(ResourceType.TOPIC, name) for name in names])
        found = {}
        for resource, future in asked.items():
            entries = self._result(future, f"the settings of topic {resource.name!r}", missing={})
            found[str(resource.name)] = {name: str(entry.value) for name, entry in entries.items()}
        return found

    def _asked(self, call: str, *arguments: Any, **options: Any) -> dict[Any, Future[Any]]:
        try:
            answers: dict[Any, Future[Any]] = getattr(self._admin, call)(*arguments, request_timeout=TIMEOUT, **options)
        except (KafkaException, TimeoutError) as fault:
            raise self.translated(fault, call.replace("_", " ")) from None
        return answers

    def _leaders(self, name: str) -> None:
        """Let the client ask who leads the partitions: what it remembers it would use for minutes."""
        time.sleep(0.05)
        try:
            self._admin.list_topics(name, timeout=TIMEOUT)
        except (KafkaException, TimeoutError) as fault:
            raise self.translated(fault, f"topic {name!r}") from None

    def _result(self, future: Future[T], what: str, *, missing: Any, more: Sequence[str] = ()) -> Any:
        try:
            found = future.result(TIMEOUT + 1)
            self.last = None
            return found
        except (KafkaException, TimeoutError) as fault:
            error = error_of(fault)
            if error is not None and error.name() in (*MISSING, *more):
                return missing
            raise self.translated(fault, what) from None

    def _note(self, error: KafkaError) -> None:
        if error.name() not in SILENT:  # that all brokers are away follows what says why
            self.last = error


def _topic(name: str, described: Any, settings: Mapping[str, str]) -> Topic:
    allowed = described.authorized_operations
    policy = settings.get("cleanup.policy", "delete")
    either_way = settings.get("message.timestamp.difference.max.ms")  # of brokers before 3.6

    def limit(setting: str) -> int:
        return min(int(settings.get(setting) or either_way or UNLIMITED), UNLIMITED)

    return Topic(
        name=name,
        identity=str(described.topic_id),
        partitions=len(described.partitions),
        max_bytes=_largest(settings),
        compacted="compact" in policy,
        deletes="delete" in policy,
        takes_time=settings.get("message.timestamp.type", "CreateTime") == "CreateTime",
        ahead_ms=limit("message.timestamp.after.max.ms"),
        behind_ms=limit("message.timestamp.before.max.ms"),
        writable=not allowed or AclOperation.WRITE in allowed or AclOperation.ALL in allowed,
    )


def _largest(settings: Mapping[str, str]) -> int:
    """The largest batch that surely fits, whatever the brokers do with it."""
    largest = int(settings.get("max.message.bytes", 1_048_588))
    if settings.get("compression.type", "producer") in ("producer", "uncompressed"):
        return largest
    return largest * 85 // 100  # they compress it anew, and what cannot be compressed may grow: by a sixth, with snappy


_clusters: dict[tuple[int, Endpoint], Cluster] = {}
_lock = threading.Lock()


def connect(endpoint: Endpoint) -> Cluster:
    """The connections of this process to a cluster. Nothing is sent yet."""
    full = endpoint.with_secrets()
    with _lock:
        key = (os.getpid(), full)  # a forked process inherits the dictionary, but not the client's threads
        if key not in _clusters:
            _clusters[key] = Cluster(full)
        return _clusters[key]
