"""A PostgreSQL server that the user runs: ``EPOCHAL_POSTGRES=host:port/database``.

User and password are those that a sink reads: `EPOCHAL_POSTGRES_USER`, `EPOCHAL_POSTGRES_PASSWORD`.
"""

from __future__ import annotations

import os

from epochal.testing.servers import given_node, routes
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.postgres_cluster import DATABASE, USER, PostgresServer
from epochal.testing.servers.routes import POSTGRES, POSTGRES_PORT, Route

PATIENCE = 10.0  # seconds; it should be running already


def connect() -> PostgresServer:
    """Check that it accepts connections."""
    text = os.environ.get(POSTGRES, "")
    address, _, database = text.partition("/")
    try:
        endpoint = routes.parse(address, POSTGRES_PORT)
    except ValueError as fault:
        raise ServerFailed(f"{POSTGRES} is {text!r}: {fault}; write host:port/database") from None
    nodes = given_node.connect("PostgreSQL", POSTGRES, endpoint, PATIENCE)
    return PostgresServer(
        nodes,
        endpoint.port,
        route=Route.GIVEN,
        end=lambda: None,
        database=database or DATABASE,
        user=os.environ.get("EPOCHAL_POSTGRES_USER") or USER,
        password=os.environ.get("EPOCHAL_POSTGRES_PASSWORD"),
    )
