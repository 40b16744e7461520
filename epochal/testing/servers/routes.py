"""Where a server comes from.

1. ``given``: the user has one and says where (`EPOCHAL_CASSANDRA`, `EPOCHAL_HDFS`). It cannot be killed, and has the
   settings it has; who asks for more gets one of their own.
2. ``docker``: a container, if testcontainers is installed and an engine answers.
3. ``local``: processes of this machine, from Maven's jars.

`EPOCHAL_SERVERS` takes ``docker`` or ``local`` out of turn.
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
HDFS = "EPOCHAL_HDFS"
HDFS_WEB = "EPOCHAL_HDFS_WEB"
HDFS_IMAGE = "EPOCHAL_HDFS_IMAGE"


class Route(StrEnum):
    """One way to a server."""

    GIVEN = "given"
    DOCKER = "docker"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Servers that somebody else runs."""

    hosts: tuple[str, ...]
    port: int


def choose(variable: str, *, own: bool, engine_answers: Callable[[], bool]) -> Route:
    """The first way that is open. The engine is asked only if that decides."""
    forced = os.environ.get(ROUTES)
    if forced:
        if forced not in (Route.DOCKER, Route.LOCAL):
            raise ServerFailed(f"{ROUTES} is {forced!r}; it can be docker or local")
        return Route(forced)
    if os.environ.get(variable) and not own:
        return Route.GIVEN
    return Route.DOCKER if engine_answers() else Route.LOCAL


def endpoint(variable: str, default_port: int) -> Endpoint:
    """What the user has given."""
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
        raise ValueError(f"{text!r} is no port")
    return int(text)
