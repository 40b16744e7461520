"""What a test holds in its hands: a cluster and its nodes, wherever they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from epochal.testing.servers import cql
from epochal.testing.servers.routes import Route
from epochal.testing.servers.waiting import wait_until

# Kept on three nodes from the start, so reading it from all of them shows that each knows the others.
ON_THREE_NODES = "SELECT status FROM system_distributed.view_build_status WHERE keyspace_name = '' AND view_name = ''"


class Node(Protocol):
    """One server. What it acknowledged is there again after `kill` and `start`."""

    @property
    def name(self) -> str:
        """What it is and where, for messages."""

    @property
    def host(self) -> str:
        """The address at which it serves."""

    @property
    def pid(self) -> int:
        """Its process; `ServerFailed` if it does not run."""

    @property
    def running(self) -> bool:
        """Whether its process is there; a paused one is."""

    def start(self) -> None:
        """Start it again on the same data and ports, and wait until it answers."""

    def stop(self) -> None:
        """Let it end in order. Nothing if it does not run."""

    def kill(self) -> None:
        """Kill -9. It is gone when this returns."""

    def pause(self) -> None:
        """Stop it in its tracks: connections stay open and nobody answers. It stands when this returns."""

    def resume(self) -> None:
        """Let a paused one go on."""

    def log_tail(self) -> str:
        """The last lines of its log."""


class Served:
    """Servers that end with a block, and what is true of all kinds of them."""

    def __init__(self, route: Route, end: Callable[[], None], timeout: float) -> None:
        self.route = route
        self._end = end
        self._timeout = timeout

    @property
    def owned(self) -> bool:
        """Whether they were started here, and so may be killed and paused."""
        return self.route is not Route.GIVEN

    def stop(self) -> None:
        """End them, and remove their data unless their folder was given. May be called again."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class CassandraCluster(Served):
    """One node or three. Leaving the block ends those that were started for it, and removes their data."""

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
        super().__init__(route, end, timeout)
        self.nodes = tuple(nodes)
        self.port = port
        self._tls = tls

    @property
    def hosts(self) -> list[str]:
        """The addresses, for a driver's contact points."""
        return [node.host for node in self.nodes]

    def wait_until_whole(self) -> None:
        """Return when every node sees every other one; after a node came back that takes a moment."""
        if len(self.nodes) < 3:
            return

        def whole() -> bool:
            return all(
                cql.answers(host, self.port, ON_THREE_NODES, cql.Consistency.ALL, tls=self._tls) for host in self.hosts
            )

        wait_until(whole, self._timeout, lambda: "the nodes do not see each other:\n" + self.nodes[0].log_tail())
