"""One PostgreSQL for all tests of this folder that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epochal.testing import servers
from epochal.testing.servers import PostgresServer
from integration_tests.postgres.tables import Space, space_on


@pytest.fixture(scope="session")
def mortal_postgres() -> Iterator[PostgresServer]:
    """Another one, for tests that kill it; each leaves it running."""
    with servers.postgres(own=True) as server:
        yield server


@pytest.fixture
def space(postgres: PostgresServer) -> Iterator[Space]:
    """A schema of the test's own on the server of all."""
    with space_on(postgres) as made:
        yield made
