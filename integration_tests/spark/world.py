"""One stream's world on disk: a source of small Parquet files, a checkpoint and three targets.

A file of the source is an epoch, since the stream takes one file a trigger in order of age. Every row
says which file it comes from, so whoever sees a row knows what commits/ must have.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # drivers import this module and start sooner without it

SCHEMA = "id long, file long, kind string, word string"
ROWS = 6  # in each file
KINDS = ("a", "b/../c", "")  # bucket values; one that a path could mistake, one that is empty
WORDS = ("one", "two")
BIRTH = 1_700_000_000  # the first source file's age; the others are younger, a second each

Row = tuple[int, int, str, str]


@dataclass(frozen=True, slots=True)
class World:
    """The paths below one root."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def journal(self) -> Path:
        return self.checkpoint / "epochal"

    @property
    def targets(self) -> tuple[Path, ...]:
        """The targets that exist."""
        return tuple(path for path in (self.first, self.second, self.table) if path.exists())

    @property
    def first(self) -> Path:
        """Parquet in buckets of `kind`, with a marker each epoch."""
        return self.root / "first"

    @property
    def second(self) -> Path:
        """JSON in buckets of `word`, several files each, with a marker each bucket."""
        return self.root / "second"

    @property
    def table(self) -> Path:
        """Delta, partitioned by `kind`."""
        return self.root / "table"

    def feed(self, files: int) -> None:
        """Let the source hold so many files in all."""
        self.source.mkdir(parents=True, exist_ok=True)
        for file in range(len(list(self.source.iterdir())), files):
            put_source_file(self.source, file, rows_of(file))


def rows_of(file: int) -> list[Row]:
    """The rows of one file of the source."""
    numbers = range(file * ROWS, (file + 1) * ROWS)
    return [(n, file, KINDS[n % len(KINDS)], WORDS[n % len(WORDS)]) for n in numbers]


def all_rows(files: int) -> Counter[Row]:
    """Every row of the first files, once."""
    return Counter(row for file in range(files) for row in rows_of(file))


def put_source_file(folder: Path, number: int, rows: list[Row]) -> None:
    """Add a file to a source; it appears whole, and younger than those before it."""
    import pyarrow as pa

    ids, files, kinds, words = zip(*rows, strict=True)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "file": pa.array(files, pa.int64()),
            "kind": pa.array(kinds, pa.string()),
            "word": pa.array(words, pa.string()),
        }
    )
    put_table(folder, number, table)


def put_table(folder: Path, number: int, table: pa.Table) -> None:
    """The same for rows of any kind."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f"_making-{number:05d}"
    pq.write_table(table, hidden)
    os.utime(hidden, (BIRTH + number, BIRTH + number))
    hidden.rename(folder / f"{number:05d}.parquet")
