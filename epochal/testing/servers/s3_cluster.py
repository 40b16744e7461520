"""A store that speaks S3's protocol as tests use it: its address, its bucket and what clients need to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from epochal.testing.servers.cluster import Node
from epochal.testing.servers.routes import Route
from epochal.testing.servers.store_server import StoreServer


class S3Store(StoreServer):
    """One server with one bucket, or those that the user runs. Leaving the block stops one that was started for it.

    `url` is the bucket, ``s3://epochal``; `environment` has the variables that clients read, `options` the same for
    `epochal.sinks.storage.objects.open_files`. The options of a server that the user runs come from the environment.
    """

    scheme = "s3"

    def __init__(
        self,
        nodes: Sequence[Node],
        endpoint: str,
        bucket: str,
        *,
        credentials: Mapping[str, str],
        route: Route,
        end: Callable[[], None],
        timeout: float = 120.0,
    ) -> None:
        super().__init__(nodes, endpoint, bucket, route=route, end=end, timeout=timeout)
        self._credentials = dict(credentials)

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.endpoint, **self._credentials}

    def options_at(self, endpoint: str) -> dict[str, str]:
        return {"endpoint": endpoint} | {
            name.removeprefix("AWS_").lower(): value for name, value in self._credentials.items()
        }
