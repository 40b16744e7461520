"""Staged data in a folder that earlier starts staged in is found and removed like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epochal.testing import DirectoryParticipant
from epochal.txn.journal import Journal
from epochal.txn.model import Attempt, Batch, Json
from epochal.txn.recovery import Sinks, leftovers, remove_leftovers
from tests.txn.memory import MemoryFiles
from tests.txn.stream import QUERY, Stream


class Elsewhere(DirectoryParticipant):
    """One target, and a folder of its own choice to stage in."""

    def __init__(self, files: MemoryFiles, staging: str | None) -> None:
        super().__init__("target", name="sink", files=files)
        self._staging = staging

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {**super().describe(rows), **({} if self._staging is None else {"staging": self._staging})}

    def _staged(self, attempt: Attempt) -> str:
        return f"{self._staging or 'beside'}/{attempt.lineage}/{attempt.key}"

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        names = self._files.names(f"{self._staging or 'beside'}/{lineage}")
        return [a for name in names if (a := Attempt.from_key(lineage, name)) is not None]


def start(stream: Stream, staging: str | None, epoch: int) -> None:
    """A driver that dies between staging and PREPARED; the next start has another folder and does not find it."""
    sink = Elsewhere(stream.files, staging)
    driver = stream.start(sink)
    started = stream.journal().read().start_of(driver.generation)
    attempt = Attempt(QUERY, epoch, driver.generation, start=started)
    rows: Sequence[Json] = ["row"]
    sink.stage(Batch(attempt=attempt, rows=rows, offsets=""))


def sinks_of(stream: Stream, journal: Journal) -> Sinks:
    def build(settings: Mapping[str, Json]) -> Any:
        staging = settings.get("staging")
        return Elsewhere(stream.files, staging if isinstance(staging, str) else None)

    return Sinks(journal.read(), build)


def test_what_was_staged_in_former_folders_is_found_and_removed() -> None:
    stream = Stream()
    start(stream, None, 0)
    start(stream, "first", 0)
    start(stream, "second", 0)
    stream.start(Elsewhere(stream.files, "second"))
    journal = stream.journal()
    sinks = sinks_of(stream, journal)
    (place,) = sinks.places()
    found = leftovers(journal.read(), sinks, place, QUERY, newest=4)
    removed = remove_leftovers(journal, sinks, place, QUERY, newest=4)

    assert [left.attempt.generation for left in found] == [1, 2]  # the last start has removed that of generation 3
    assert sorted(attempt.generation for attempt in removed) == [1, 2]
    assert [path for path in stream.files.content if path.startswith(("beside/", "first/", "second/"))] == []
