"""A PostgreSQL server as tests use it: its address, its database and its user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from epochal.testing.servers.cluster import Node, OnOnePort
from epochal.testing.servers.routes import Route

USER = DATABASE = "epochal"


class PostgresServer(OnOnePort):
    """One server, or one that the user runs. Leaving the block stops one that was started for it.

        with servers.postgres() as server:
            PostgresSink("shop.orders", **server.options)

    `options` are those of a `PostgresSink`: hosts, port, database, user and password.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        port: int,
        *,
        route: Route,
        end: Callable[[], None],
        database: str = DATABASE,
        user: str = USER,
        password: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        super().__init__(nodes, port, route=route, end=end, timeout=timeout)
        self.database, self.user, self.password = database, user, password

    @property
    def address(self) -> str:
        """As `EPOCHAL_POSTGRES` has it: host:port/database."""
        return f"{self._address_list}/{self.database}"

    @property
    def options(self) -> dict[str, object]:
        """What a sink needs to reach it."""
        login = {"user": self.user} | ({} if self.password is None else {"password": self.password})
        return {"hosts": self.hosts, "port": self.port, "database": self.database, **login}

    @property
    def dsn(self) -> str:
        """For `psycopg.connect`, without the password."""
        return f"host={','.join(self.hosts)} port={self.port} dbname={self.database} user={self.user}"
