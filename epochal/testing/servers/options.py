"""The options of servers, validated before anything is started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from epochal.txn.errors import OptionError

S3_SERVERS = ("moto", "versitygw")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of every kind of server."""

    settings: Mapping[str, object] = field(default_factory=dict)
    folder: Path | None = None
    port: int | None = None
    java_options: Sequence[str] = ()
    timeout: float = 120.0

    def _check(self, what: str, faults: list[str]) -> None:
        """Raise the given faults together with those of the common options."""
        if self.port is not None and not 0 < self.port < 65_536:
            faults.append(f"port={self.port}: it must be from 1 to 65535")
        if not self.timeout > 0:
            faults.append(f"timeout={self.timeout}: it must be more than 0 seconds")
        if faults:
            raise OptionError(what, faults)

    @property
    def needs_own_server(self) -> bool:
        """Whether the options exclude a server that the user runs."""
        return bool(self.settings or self.java_options) or bool(self.folder or self.port)


@dataclass(frozen=True, kw_only=True)
class CassandraOptions(ServerOptions):
    """The options of `servers.cassandra`."""

    nodes: int = 1

    def __post_init__(self) -> None:
        self._check("cassandra", [] if self.nodes in (1, 3) else [f"nodes={self.nodes}: it can be 1 or 3"])

    @property
    def needs_own_server(self) -> bool:
        return self.nodes > 1 or super().needs_own_server


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(ServerOptions):
    """The options of `servers.kafka`."""

    brokers: int = 1
    partitions: int = 1

    def __post_init__(self) -> None:
        faults = [] if self.brokers in (1, 3) else [f"brokers={self.brokers}: it can be 1 or 3"]
        faults += [] if self.partitions >= 1 else [f"partitions={self.partitions}: it must be 1 or more"]
        self._check("kafka", faults)

    @property
    def needs_own_server(self) -> bool:
        return self.brokers > 1 or self.partitions > 1 or super().needs_own_server


@dataclass(frozen=True, kw_only=True)
class ZooKeeperOptions(ServerOptions):
    """The options of `servers.zookeeper`."""

    def __post_init__(self) -> None:
        self._check("zookeeper", [])


@dataclass(frozen=True, kw_only=True)
class S3Options(ServerOptions):
    """The options of `servers.s3`."""

    bucket: str = "epochal"
    server: str | None = None  # one that S3_SERVERS has; None: the first of them, or the one that the user runs

    def __post_init__(self) -> None:
        valid = re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", self.bucket)
        faults = [] if valid else [f"bucket={self.bucket!r}: 3 to 63 letters a-z, digits, dots and hyphens"]
        if self.server not in (None, *S3_SERVERS):
            faults.append(f"server={self.server!r}: it can be {' or '.join(map(repr, S3_SERVERS))}")
        if self.folder is not None and self.server != "versitygw":
            faults.append(f"folder={str(self.folder)!r}: only server='versitygw' keeps its data in files")
        self._check("s3", faults)

    @property
    def needs_own_server(self) -> bool:
        return self.server is not None or super().needs_own_server


@dataclass(frozen=True, kw_only=True)
class PostgresOptions(ServerOptions):
    """The options of `servers.postgres`."""

    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._check("postgres", [])

    @property
    def needs_own_server(self) -> bool:
        return self.password is not None or super().needs_own_server


@dataclass(frozen=True, kw_only=True)
class HdfsOptions(ServerOptions):
    """The options of `servers.hdfs`."""

    datanodes: int = 1
    replication: int | None = None

    def __post_init__(self) -> None:
        faults = []
        if self.datanodes not in (1, 2, 3):
            faults.append(f"datanodes={self.datanodes}: it can be 1, 2 or 3")
        elif self.replication is not None and not 1 <= self.replication <= self.datanodes:
            faults.append(f"replication={self.replication}: it can be from 1 to datanodes={self.datanodes}")
        self._check("hdfs", faults)

    @property
    def replicas(self) -> int:
        """The number of replicas of each block: two if there are two DataNodes."""
        return self.replication or min(self.datanodes, 2)

    @property
    def needs_own_server(self) -> bool:
        return self.datanodes > 1 or super().needs_own_server
