"""A ZooKeeper as tests use it: its address and its one server."""

from __future__ import annotations

from epochal.testing.servers.cluster import OnOnePort


class ZooKeeperCluster(OnOnePort):
    """One server, or those that the user runs. Leaving the block stops one that was started for it.

    `connect` is the value for `epochal.standby(..., zookeeper=...)`.
    """

    @property
    def connect(self) -> str:
        """What clients call the connect string: ``127.0.0.1:2181``."""
        return self._address_list
