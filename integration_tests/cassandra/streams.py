"""The two tables that killed drivers write to, and what must hold for them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from integration_tests.cassandra.tables import Keyspace
from integration_tests.spark.checks import early, planned
from integration_tests.spark.world import ROWS, WORDS, World, all_rows, rows_of

ROWS_TABLE = "file bigint, id bigint, kind text, word text, PRIMARY KEY (file, id)"
TOTALS_TABLE = "word text PRIMARY KEY, id bigint, rows bigint, file bigint, epochal text"

KINDS_TABLE = "kind text, file bigint, id bigint, word text, PRIMARY KEY (kind, file, id)"


def make_tables(space: Keyspace) -> str:
    """The tables of a stream; the driver's options for them."""
    space.table("rows", ROWS_TABLE)
    space.table("totals", TOTALS_TABLE)
    space.table("kinds", KINDS_TABLE)
    return f"{','.join(space.hosts)}:{space.port}/{space.name}"


def totals(space: Keyspace) -> dict[str, tuple[int, int, int]]:
    found = space.execute(f"SELECT word, id, rows, file FROM {space.name}.totals")
    return {row.word: (row.id, row.rows, row.file) for row in found}


def expected_totals(files: int) -> dict[str, tuple[int, int, int]]:
    """Of each word: the sum of its ids, the number of its rows, and the last file."""
    ids = {word: [row[0] for file in range(files) for row in rows_of(file) if row[3] == word] for word in WORDS}
    return {word: (sum(found), len(found), files - 1) for word, found in ids.items()}


def visible(space: Keyspace, table: str = "rows") -> Counter[Any]:
    found = space.execute(f"SELECT id, file, kind, word FROM {space.name}.{table}")
    return Counter((row.id, row.file, row.kind, row.word) for row in found)


def check_after_a_kill(world: World, space: Keyspace, *, eager: bool = False) -> None:
    """Nothing is visible before Spark's commits/N, and totals are those of whole epochs, each once."""
    check_seen_after_a_kill(world, visible(space), totals(space), eager=eager)


def check_seen_after_a_kill(
    world: World, rows: Counter[Any], seen: dict[str, tuple[int, int, int]], *, eager: bool = False
) -> None:
    """The same for the rows and totals of any store."""
    files = Counter(row[1] for row in rows)
    late = early(world, files, eager=eager)
    last = max((planned(world)[file] for file in files), default=-1)
    torn = [file for file, count in files.items() if count != ROWS and planned(world)[file] != last]

    assert not late, f"files {late} of the source are visible before their epochs are decided"
    assert sorted(files) == list(range(len(files)))
    assert not torn, f"a part of files {torn} is visible, and epochs after them"
    possible = [expected_totals(n) for n in range(len(planned(world)) + 1)]
    for word, found in seen.items():
        assert found in [total[word] for total in possible], f"{word}: {found} is no total of whole epochs"


def check_at_the_end(world: World, space: Keyspace, *, files: int) -> None:
    """Every row once, totals exact, nothing staged, nothing noted of an epoch under way."""
    assert visible(space) == all_rows(files)
    assert totals(space) == expected_totals(files)
    assert list(world.checkpoint.glob("epochal-staged/*/*/*")) == []
    assert space.execute(f"SELECT * FROM {space.name}.epochal_parts") == []
