"""An object store as tests use it, whatever its protocol: its address, its bucket and what clients need to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from epochal.testing.servers.cluster import Node, Served
from epochal.testing.servers.routes import Route


class StoreServer(Served):
    """One server with one bucket. Leaving the block stops one that was started for it."""

    scheme = ""

    def __init__(
        self,
        nodes: Sequence[Node],
        endpoint: str,
        bucket: str,
        *,
        route: Route,
        end: Callable[[], None],
        timeout: float = 120.0,
    ) -> None:
        super().__init__(route, end, timeout)
        self.nodes = tuple(nodes)
        self.endpoint, self.bucket = endpoint, bucket

    @property
    def url(self) -> str:
        """The bucket, as sinks and journals name it."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def listing(self) -> str:
        """What to get from the endpoint to list the bucket."""
        return f"/{self.bucket}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a process use this store."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, str]:
        """The same as options of `epochal.sinks.storage.objects.open_files`."""
        return self.options_at(self.endpoint)

    def options_at(self, endpoint: str) -> dict[str, str]:
        """The options of clients that reach it by another address, such as that of a proxy."""
        raise NotImplementedError
