"""Ports for servers that are stopped and started again, and the file in which a folder remembers them.

They are below the range that the kernel uses for outgoing connections. Inside it, a client's connection could occupy
the port of a killed server before its restart, and a client that connects to a closed port of that range can even be
connected to itself.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epochal.testing.servers.errors import ServerFailed

LOWEST = 10_000
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_OUTGOING = 32_768
TRIES = 1_000
TIMEOUT = 5.0  # seconds
CLUSTER_FILE = "cluster.json"


def free_port(hosts: Sequence[str], taken: Collection[int] = ()) -> int:
    """A port that is free on all hosts and not in `taken`."""
    for _ in range(TRIES):
        port = random.randrange(LOWEST, max(_first_outgoing(), LOWEST + 1_000))
        if port not in taken and all(is_free(host, port) for host in hosts):
            return port
    raise ServerFailed(f"no port is free on all of {', '.join(hosts)}; macOS has only 127.0.0.1 by default")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: ignore lingering connections of a server that was just killed.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def listens(host: str, port: int) -> bool:
    """Whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT):
            return True
    except OSError:
        return False


def recall(folder: Path) -> dict[str, Any] | None:
    """What the folder of a cluster remembers; None if it was not used before."""
    memory = folder / CLUSTER_FILE
    return json.loads(memory.read_text()) if memory.exists() else None


def remember(folder: Path, cluster: Mapping[str, object], addresses: Iterable[tuple[str, int]]) -> None:
    """Let the folder remember a cluster. Raises `ServerFailed` if one of its addresses is in use."""
    for host, port in addresses:
        if not is_free(host, port):
            raise ServerFailed(f"{host}:{port} is in use")
    (folder / CLUSTER_FILE).write_text(json.dumps(cluster))


def _first_outgoing() -> int:
    try:
        return int(OUTGOING.read_text().split()[0])
    except (OSError, ValueError):  # not Linux
        return USUAL_OUTGOING
