"""A cluster and its nodes, as tests use them on every route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from epochal.testing.servers import cql
from epochal.testing.servers.routes import Route
from epochal.testing.servers.waiting import wait_until

# Replicated to three nodes from the start, so a read at ALL shows that each node sees the others.
ON_THREE_NODES = "SELECT status FROM system_distributed.view_build_status WHERE keyspace_name = '' AND view_name = ''"


class Node(Protocol):
    """One server. Acknowledged writes survive `kill` and `start`."""

    @property
    def name(self) -> str:
        """Its kind and address, for messages."""

    @property
    def host(self) -> str:
        """The address at which it serves."""

    @property
    def pid(self) -> int:
        """Its process id. Raises `ServerFailed` if it does not run."""

    @property
    def running(self) -> bool:
        """Whether its process exists; a paused one does."""

    def start(self) -> None:
        """Start it again on the same data and ports, and wait until it answers."""

    def stop(self) -> None:
        """Shut it down cleanly. Does nothing if it does not run."""

    def kill(self) -> None:
        """Kill -9. The process has ended when this returns."""

    def pause(self) -> None:
        """Stop it with SIGSTOP: connections stay open without answers. It is stopped when this returns."""

    def resume(self) -> None:
        """Resume a paused server."""

    def log_tail(self) -> str:
        """The last lines of its log."""


class Served:
    """Base class: servers that stop at the end of a `with` block."""

    def __init__(self, route: Route, end: Callable[[], None], timeout: float) -> None:
        self.route = route
        self._end = end
        self._timeout = timeout

    @property
    def owned(self) -> bool:
        """Whether they were started here, so that they may be killed and paused."""
        return self.route is not Route.GIVEN

    def stop(self) -> None:
        """Stop them, and remove their data unless a folder was given. Idempotent."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class OnOnePort(Served):
    """Base class: servers that all listen on the same port, each on an address of its own."""

    def __init__(
        self, nodes: Sequence[Node], port: int, *, route: Route, end: Callable[[], None], timeout: float = 120.0
    ) -> None:
        super().__init__(route, end, timeout)
        self.nodes = tuple(nodes)
        self.port = port

    @property
    def hosts(self) -> list[str]:
        """The addresses of the servers."""
        return [node.host for node in self.nodes]

    @property
    def _addresses(self) -> list[tuple[str, int]]:
        return [(host, self.port) for host in self.hosts]

    @property
    def _address_list(self) -> str:
        """As most clients take it: host:port, with commas."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self._addresses)


class CassandraCluster(OnOnePort):
    """One node or three. Leaving the block stops nodes that were started for it, and removes their data."""

    def __init__(
        self,
        nodes: Sequence[Node],
        port: int,
        *,
        route: Route,
        end: Callable[[], None],
        tls: bool = False,
        timeout: float = 120.0,
    ) -> None:
        super().__init__(nodes, port, route=route, end=end, timeout=timeout)
        self._tls = tls

    def wait_until_whole(self) -> None:
        """Wait until every node sees all others; this takes a moment after a node was restarted."""
        if len(self.nodes) < 3:
            return

        def whole() -> bool:
            return all(
                cql.answers(host, self.port, ON_THREE_NODES, cql.Consistency.ALL, tls=self._tls) for host in self.hosts
            )

        wait_until(whole, self._timeout, lambda: "the nodes do not see each other:\n" + self.nodes[0].log_tail())
