"""A store that speaks S3's protocol as tests use it: its address, its bucket and what clients need to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from epochal.testing.servers.cluster import Node, Served
from epochal.testing.servers.routes import Route


class S3Store(Served):
    """One server with one bucket, or those that the user runs. Leaving the block stops one that was started for it.

    `url` is the bucket, ``s3://epochal``; `environment` has the variables that clients read, `options` the same for
    `epochal.sinks.storage.objects.open_files`.
    """

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
        super().__init__(route, end, timeout)
        self.nodes = tuple(nodes)
        self.endpoint, self.bucket = endpoint, bucket
        self._credentials = dict(credentials)

    @property
    def url(self) -> str:
        """The bucket, as sinks and journals name it."""
        return f"s3://{self.bucket}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a process use this store."""
        return {"AWS_ENDPOINT_URL": self.endpoint, **self._credentials}

    @property
    def options(self) -> dict[str, str]:
        """The same as options; those of a server that the user runs come from the environment."""
        return {"endpoint": self.endpoint} | {
            name.removeprefix("AWS_").lower(): value for name, value in self._credentials.items()
        }
