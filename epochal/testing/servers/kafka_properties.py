"""The settings of a small broker that is a controller too (KRaft), as it reads them from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

SMALL: Mapping[str, object] = {
    # One broker: what Kafka would keep three times is kept once.
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    # Nobody waits for other consumers to join, and a broker that ends waits for nobody.
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.enable": "false",
    # A broker that was killed is not let in again before its last session has ended: 2 s, not 9.
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 500,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    "log.segment.delete.delay.ms": 1000,
}

REPLICATED = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
IN_SYNC = ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")


def settings(
    folder: PurePath,
    host: str,
    port: int,
    controller_port: int,
    partitions: int,
    given: Mapping[str, object],
    *,
    listen: str | None = None,
    hosts: Sequence[str] = (),
) -> dict[str, object]:
    """The settings; the given ones win. Clients reach it at `host`; it listens at `listen`, if that differs.

    `hosts` are those of all brokers, if there are several: then what Kafka keeps is kept on all of them.
    """
    others = list(hosts) or [host]
    node = 1 + others.index(host)
    replicated = dict.fromkeys(REPLICATED, len(others)) | dict.fromkeys(IN_SYNC, 2) if len(others) > 1 else {}
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{n}@{one}:{controller_port}" for n, one in enumerate(others, 1)),
        "listeners": f"CLIENTS://{listen or host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"CLIENTS://{host}:{port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "num.partitions": partitions,
        **SMALL,
        **replicated,
        **given,
    }


def text(values: Mapping[str, object]) -> str:
    r"""The content of a file of Java properties, whatever the values hold.

    >>> text({"log.dirs": "a folder=1\\2"})
    'log.dirs=a folder=1\\\\2\n'
    """
    return "".join(f"{_escaped(name, ' =:#!')}={_escaped(_spelled(value), '')}\n" for name, value in values.items())


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(value: str, special: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    coded = "".join(escapes.get(c) or (f"\\{c}" if c in special else c) for c in value)
    coded = "".join(c if c.isascii() else _unicode(c) for c in coded)
    return f"\\{coded}" if coded.startswith(" ") else coded


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
