"""Schemas and tables of the tests, and what a reader of them sees."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from epochal import PostgresSink
from epochal.participant import Attempt, Batch, Handle, Outcome
from epochal.testing.contract import claim_for
from epochal.testing.servers import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINEAGE = "0f0e0d0c-0000-0000-0000-000000000001"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Space:
    """A schema of one test's own, and another one for epochal's tables."""

    server: PostgresServer
    name: str

    @property
    def ledger(self) -> str:
        return f"{self.name}_epochal"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        login = {} if self.server.password is None else {"password": self.server.password}
        return psycopg.connect(self.server.dsn, **{"autocommit": True, **login, **options})

    def execute(self, text: str) -> list[Any]:
        with self.connect() as connection:
            done = connection.execute(text.encode())
            return done.fetchall() if done.description else []

    def table(self, name: str, columns: str) -> str:
        """Make a table; its full name."""
        self.execute(f'CREATE TABLE "{self.name}"."{name}" ({columns})')
        return f"{self.name}.{name}"

    def sink(self, table: str, **options: Any) -> PostgresSink:
        return PostgresSink(table, **{"ledger_schema": self.ledger, **self.server.options, **options})

    def staged(self) -> list[Any]:
        """What of any attempt is still staged: rows of `staged`, and staged tables."""
        tables = f"SELECT relname FROM pg_class WHERE relnamespace = '{self.ledger}'::regnamespace"
        rows = self.execute(f"SELECT attempt FROM {self.ledger}.staged")
        return rows + self.execute(f"{tables} AND relkind = 'r' AND relname LIKE 'staged\\_%'")


@contextmanager
def space_on(server: PostgresServer) -> Iterator[Space]:
    made = Space(server, f"t{os.getpid()}_{next(_numbers)}")
    made.execute(f"CREATE SCHEMA {made.name}")
    yield made
    made.execute(f"DROP SCHEMA {made.name} CASCADE; DROP SCHEMA IF EXISTS {made.ledger} CASCADE")


def stage(
    sink: PostgresSink, epoch: int, rows: DataFrame, generation: int = 1, *, start: str = ""
) -> tuple[Attempt, Handle]:
    """Stage an epoch as the coordinator does."""
    attempt = Attempt(LINEAGE, epoch, generation, start=start)
    if not sink.open(LINEAGE).enrolled:
        claim_for(sink, LINEAGE)
    return attempt, sink.stage(Batch(attempt=attempt, rows=rows, offsets=f"{epoch:064x}")).handle


def write(sink: PostgresSink, epoch: int, rows: DataFrame) -> tuple[Attempt, Handle]:
    """Stage and commit an epoch."""
    attempt, handle = stage(sink, epoch, rows)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    return attempt, handle
