"""Chooses where a server comes from, the first that applies:

1. ``given``: the user runs one and names it (`EPOCHAL_CASSANDRA`, `EPOCHAL_HDFS`, `EPOCHAL_KAFKA`,
   `EPOCHAL_ZOOKEEPER`, `EPOCHAL_S3`, `EPOCHAL_POSTGRES`). It cannot be killed, and its settings are fixed; a test
   that needs more gets its own server.
2. ``docker``: containers, if testcontainers is installed and an engine answers.
3. ``local``: local processes from Maven's jars, ZooKeeper from pyspark's, the object store from pip, PostgreSQL as it
   is installed.

`EPOCHAL_SERVERS` forces ``docker`` or ``local``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from epochal.testing.servers.errors import ServerFailed

ROUTES = "EPOCHAL_SERVERS"
CASSANDRA = "EPOCHAL_CASSANDRA"
CASSANDRA_IMAGE = "EPOCHAL_CASSANDRA_IMAGE"
CASSANDRA_PORT = 9042
KAFKA = "EPOCHAL_KAFKA"
KAFKA_IMAGE = "EPOCHAL_KAFKA_IMAGE"
KAFKA_PORT = 9092
ZOOKEEPER = "EPOCHAL_ZOOKEEPER"
ZOOKEEPER_PORT = 2181
S3 = "EPOCHAL_S3"
S3_PORT = 9000
POSTGRES = "EPOCHAL_POSTGRES"
POSTGRES_IMAGE = "EPOCHAL_POSTGRES_IMAGE"
POSTGRES_PORT = 5432
HDFS = "EPOCHAL_HDFS"
HDFS_WEB = "EPOCHAL_HDFS_WEB"
HDFS_IMAGE = "EPOCHAL_HDFS_IMAGE"


class Route(StrEnum):
    """Where a server comes from."""

    GIVEN = "given"
    DOCKER = "docker"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Servers that the user runs."""

    hosts: tuple[str, ...]
    port: int


def choose(variable: str, *, own: bool, engine_answers: Callable[[], bool]) -> Route:
    """The first route that applies. The engine is checked only if the answer matters."""
    forced = os.environ.get(ROUTES)
    if forced:
        if forced not in (Route.DOCKER, Route.LOCAL):
            raise ServerFailed(f"{ROUTES} is {forced!r}; it must be docker or local")
        return Route(forced)
    if os.environ.get(variable) and not own:
        return Route.GIVEN
    return Route.DOCKER if engine_answers() else Route.LOCAL


def endpoint(variable: str, default_port: int) -> Endpoint:
    """The servers that the user has named."""
    text = os.environ.get(variable, "")
    try:
        return parse(text, default_port)
    except ValueError as fault:
        raise ServerFailed(f"{variable} is {text!r}: {fault}; write host:port or host,host,host:port") from None


def parse(text: str, default_port: int) -> Endpoint:
    """Hosts and their port.

    >>> parse("127.0.0.1", 9042)
    Endpoint(hosts=('127.0.0.1',), port=9042)
    >>> parse("a, b, c:9142", 9042)
    Endpoint(hosts=('a', 'b', 'c'), port=9142)
    >>> parse("[::1]:9142", 9042)
    Endpoint(hosts=('::1',), port=9142)
    """
    hosts, ports = [], set()
    for part in text.split(","):
        host, port = _split(part.strip())
        hosts.append(host)
        if port is not None:
            ports.add(_port(port))
    if len(ports) > 1:
        raise ValueError("all hosts must have the same port")
    return Endpoint(tuple(hosts), ports.pop() if ports else default_port)


def _split(text: str) -> tuple[str, str | None]:
    found = re.fullmatch(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>.*))?", text)
    if not found:
        raise ValueError(f"{text!r} names no host")
    return found["six"] or found["name"], found["port"]


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise ValueError(f"{text!r} is not a port")
    return int(text)
