"""Reads the footers of staged Parquet files, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from epochal.sinks.storage.objects import ObjectFiles
from epochal.sinks.storage.sink_files import AT_ONCE
from epochal.txn.files import Files

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

GUESS = 64 << 10  # bytes: most footers are shorter
END = 8  # bytes: how long the footer is, and PAR1


def read(files: Files, paths: Sequence[tuple[str, int]]) -> Iterator[FileMetaData]:
    """The footer of each file, given with its length. On an object store a few are read at a time."""
    from pyarrow.parquet import read_metadata

    if not isinstance(files, ObjectFiles):
        yield from (read_metadata(path) for path, _ in paths)
        return
    with ThreadPoolExecutor(AT_ONCE, "epochal-footers") as pool:
        yield from pool.map(lambda one: _of_object(files, *one), paths)


def _of_object(files: ObjectFiles, path: str, size: int) -> FileMetaData:
    import pyarrow as pa
    from pyarrow.parquet import read_metadata

    tail = files.read_range(path, max(0, size - GUESS), size)
    needed = int.from_bytes(tail[-END:-4], "little") + END
    if needed > len(tail):
        tail = files.read_range(path, max(0, size - needed), size)
    return read_metadata(pa.BufferReader(tail))
