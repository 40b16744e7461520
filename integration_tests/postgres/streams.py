"""The two tables that killed drivers write to, and what must hold for them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from integration_tests.cassandra.streams import check_seen_after_a_kill, expected_totals
from integration_tests.postgres.tables import Space
from integration_tests.spark.world import World, all_rows

__all__ = ["check_after_a_kill", "check_at_the_end", "expected_totals", "make_tables", "totals", "visible"]


def make_tables(space: Space, rows: str = "") -> str:
    """The tables of a stream; the driver's option for them."""
    space.table("rows", f"id bigint{rows}, file bigint, kind text, word text")
    space.table("totals", "word text PRIMARY KEY, id bigint, rows bigint, file bigint")
    return f"{space.server.address}/{space.name}"


def totals(space: Space) -> dict[str, Any]:
    return {word: tuple(found) for word, *found in space.execute(f"SELECT * FROM {space.name}.totals")}


def visible(space: Space) -> Counter[Any]:
    return Counter(space.execute(f"SELECT id, file, kind, word FROM {space.name}.rows"))


def check_after_a_kill(world: World, space: Space) -> None:
    """Nothing is visible before Spark's commits/N, and totals are those of whole epochs, each once."""
    check_seen_after_a_kill(world, visible(space), totals(space))


def check_at_the_end(world: World, space: Space, *, files: int) -> None:
    """Every row once, totals exact, nothing staged."""
    assert visible(space) == all_rows(files)
    assert totals(space) == expected_totals(files)
    assert space.staged() == []
