"""``epochal serve``: a real server on loopback, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

from epochal.cli.text import counted, facts, paint
from epochal.testing import servers
from epochal.testing.servers import CassandraCluster
from epochal.testing.servers.cassandra_local import MEMORY
from epochal.testing.servers.ports import is_free
from epochal.testing.servers.routes import CASSANDRA_PORT
from epochal.txn.model import Json

FAILED = 1
INTERRUPTED = 130
LOOK = 1.0  # seconds between two looks at the nodes


def cassandra(*, nodes: int, port: int | None, folder: str | None, as_json: bool) -> int:
    """Serve until asked to end: 0, or 1 if a node did not start or died, 130 if asked before it was ready."""
    # Asked to end, by Ctrl-C or by a supervisor, means the same: take everything down in order.
    # SIGINT too: a shell starts what runs in the background with it ignored.
    asked = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in asked}
    ready = False
    try:
        started = time.monotonic()
        _tell(f"Cassandra with {counted(nodes, 'node')}")
        port = port or _usual_port(nodes, folder)
        with servers.cassandra(nodes, folder=folder, port=port, own=True, tell=_tell) as cluster:
            _tell(f"ready after {time.monotonic() - started:.1f} s; Ctrl-C ends it")
            print(json.dumps(_answer(cluster)) if as_json else _how_to_connect(cluster), flush=True)
            ready = True
            _watch(cluster)
    except servers.ServerFailed as fault:
        _tell(paint(str(fault), "red", sys.stderr))
        return FAILED
    except KeyboardInterrupt:
        _tell("stopped")
        return 0 if ready else INTERRUPTED
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _usual_port(nodes: int, folder: str | None) -> int | None:
    """The port that people expect, if it is free and the folder has none of its own yet."""
    known = folder is not None and Path(folder, MEMORY).exists()
    free = all(is_free(f"127.0.0.{number + 1}", CASSANDRA_PORT) for number in range(nodes))
    return CASSANDRA_PORT if free and not known else None


def _watch(cluster: CassandraCluster) -> None:
    while all(node.running for node in cluster.nodes):
        time.sleep(LOOK)
    gone = next(node for node in cluster.nodes if not node.running)
    raise servers.ServerFailed(f"{gone.host}:{cluster.port} has ended:\n{gone.said()}")


def _answer(cluster: CassandraCluster) -> dict[str, Json]:
    nodes: list[Json] = [{"host": node.host, "pid": node.pid} for node in cluster.nodes]
    return {"hosts": [*cluster.hosts], "port": cluster.port, "route": str(cluster.route), "nodes": nodes}


def _how_to_connect(cluster: CassandraCluster) -> str:
    hosts = ", ".join(f'"{host}"' for host in cluster.hosts)
    shown = [
        ("contact points", ", ".join(cluster.hosts)),
        ("port", str(cluster.port)),
        ("in Python", f'CassandraSink("shop.orders", contact_points=[{hosts}], port={cluster.port})'),
        ("for tests", f"export EPOCHAL_CASSANDRA={','.join(cluster.hosts)}:{cluster.port}"),
    ]
    return facts(shown)


def _tell(text: str) -> None:
    print(f"epochal: {text}", file=sys.stderr, flush=True)
