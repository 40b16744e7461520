"""A folder that keeps its rows open over epochs, so that a piece that is lost, doubled or forgotten shows.

Each epoch adds one piece. `most` pieces become one part when the epoch that brings the last of them is staged; what
was added `idle` seconds ago is closed between epochs. Layout, beside that of `DirectoryParticipant`::

    target/000000000042.000003.LINEAGE                 the epoch was committed, with the part that it closed, if any
    target/rolls/000000000042.000003.r000001.LINEAGE   the part that a roll closed
    target/open/LINEAGE/000000000042                   the piece of epoch 42
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from epochal.testing import DirectoryParticipant
from epochal.txn.errors import DataLost, Refused
from epochal.txn.files import Files, LocalFiles, join
from epochal.txn.model import Attempt, Batch, Handle, Json, OpenRows, Outcome, RollRequest, Staged
from epochal.txn.participant import Rolls

NEVER = 1e9
TARGET = "target"


class Keeping(DirectoryParticipant, Rolls):
    """A participant with a rolling policy; `most` = 0 is one without."""

    def __init__(
        self,
        path: str,
        *,
        name: str = "sink",
        files: Files | None = None,
        most: int = 1000,
        idle: float = NEVER,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        files = files or LocalFiles(sync=False)
        super().__init__(path, name=name, files=files)
        self._most, self._idle, self._clock = most, idle, clock

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "type": "keeping"}

    @property
    def rolls(self) -> Rolls | None:
        return self

    @property
    def opens(self) -> bool:
        return bool(self._most)

    def check_state(self, state: Mapping[str, Json]) -> None:
        if state.get(TARGET, self._path) != self._path:
            raise Refused(f"parts are open in {state[TARGET]}, this sink writes to {self._path}")

    def due(self, state: Mapping[str, Json]) -> float | None:
        times = [at for at in state.values() if isinstance(at, float)]
        return max(times) + self._idle if times and self._most else None

    def open_rows(self, state: Mapping[str, Json]) -> list[OpenRows]:
        times = [at for at in state.values() if isinstance(at, float)]
        return [OpenRows("", 0, None, len(times), min(times), max(times))] if times else []

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        attempt, rows = batch.attempt, batch.rows
        before = self._pieces(batch.state)
        piece = f"{attempt.epoch:012d}"
        pieces = [*before, piece]
        closes = pieces if len(pieces) >= self._most else []
        content = [row for epoch in closes if epoch != piece for row in self._read(attempt.lineage, epoch)]
        content += rows if closes else []
        self._create(attempt, "part", {"lineage": attempt.lineage, "offsets": batch.offsets}, content)
        if not closes:
            self._create(attempt, "piece", {}, rows)
        opens: dict[str, Json] = {piece: self._clock(), TARGET: self._path}
        changes = _nothing_open(before) if closes else opens
        body: dict[str, Json] = {"spent": [e for e in closes if e != piece], "keeps": not closes}
        return Staged(Handle(1, body), len(rows), changes=changes)

    def roll(self, request: RollRequest) -> Staged | None:
        attempt, pieces = request.attempt, self._pieces(request.state)
        due = self.due(request.state)
        if not pieces or not (request.every or (due is not None and due <= self._clock())):
            return None
        content = [row for epoch in pieces for row in self._read(attempt.lineage, epoch)]
        self._create(attempt, "part", {}, content)
        body: dict[str, Json] = {"spent": [*pieces], "keeps": False}
        return Staged(Handle(1, body), 0, changes=_nothing_open(pieces))

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        body = cast("dict[str, Any]", handle.checked_body(1))
        known = self._files.length(self._shown(attempt)) is not None
        if not known:
            for wanted, name, target in (
                (body["keeps"], "piece", self._piece(attempt.lineage, f"{attempt.epoch:012d}")),
                (True, "part", self._shown(attempt)),
            ):
                self._files.make_folder(target.rpartition("/")[0])
                try:
                    if wanted:
                        self._files.rename(join(self._staged(attempt), name), target)
                except FileNotFoundError:
                    if self._files.length(target) is None:
                        raise DataLost(f"{target}: neither staged nor there") from None
        for epoch in body["spent"]:
            self._files.delete(self._piece(attempt.lineage, epoch))
        self._files.delete(self._staged(attempt))
        return Outcome.ALREADY_COMMITTED if known else Outcome.COMMITTED

    def rows(self) -> list[Json]:
        """Every visible row, in no order."""
        return super().rows() + [
            json.loads(line)
            for name in self._files.names(join(self._path, "rolls"))
            for line in self._files.read(join(self._path, "rolls", name)).decode().splitlines()[1:]
        ]

    def lying_open(self) -> list[str]:
        """The pieces that are in no published part."""
        return [entry.name.rpartition("/")[2] for entry in self._files.walk(join(self._path, "open"))]

    def _pieces(self, state: Mapping[str, Json]) -> list[str]:
        self.check_state(state)
        return sorted(epoch for epoch in state if epoch != TARGET)

    def _shown(self, attempt: Attempt) -> str:
        folder = join(self._path, "rolls") if attempt.roll else self._path
        return join(folder, f"{attempt.number}.{quote(attempt.lineage, safe='')}")

    def _piece(self, lineage: str, epoch: str) -> str:
        return join(self._path, "open", quote(lineage, safe=""), epoch)

    def _read(self, lineage: str, epoch: str) -> list[Json]:
        lines = self._files.read(self._piece(lineage, epoch)).decode().splitlines()
        return [json.loads(line) for line in lines[1:]]

    def _create(self, attempt: Attempt, name: str, head: Json, rows: Sequence[Json]) -> None:
        data = "".join(json.dumps(line) + "\n" for line in [head, *rows]).encode()
        self._files.create(join(self._staged(attempt), name), data)


def _nothing_open(pieces: Sequence[str]) -> dict[str, Json]:
    return dict.fromkeys([*pieces, TARGET])
