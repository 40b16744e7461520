"""What the code under test calls, turned into operations on a world: journal, checkpoint and stores.

Each front hands its operations to an `Ask` and believes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeAlias, cast

from epochal.txn.errors import DataLost, Refused
from epochal.txn.files import Entry
from epochal.txn.journal import Journal
from epochal.txn.model import (
    NO_EPOCH,
    Attempt,
    Batch,
    Claim,
    Handle,
    Json,
    Memory,
    OpenRows,
    Outcome,
    RollRequest,
    Staged,
)
from epochal.txn.participant import Abilities, Rolls
from epochal.txn.state.folding import Folding
from epochal.txn.view import View
from tests.txn.world import QUERY, SINKS, Parts, Setting

Ask: TypeAlias = Callable[..., Any]

PLACE = "/journal"  # of every copy, as on several machines: that they lie elsewhere must not be what tells them apart


class JournalFolder:
    """The `Files` that a journal needs. A listing brings the files along: they never change."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._listed: dict[str, bytes] = {}

    def names(self, path: str) -> tuple[str, ...]:
        self.listed(self.ask("names"))
        return tuple(self._listed)

    def listed(self, listing: tuple[tuple[str, bytes], ...]) -> None:
        self._listed = dict(listing)

    def read(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name in self._listed:
            return self._listed[name]
        data: bytes | None = self.ask("read", name)
        if data is None:
            raise FileNotFoundError(path)
        return data

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        return bool(self.ask("create", path.rpartition("/")[2], data))

    def delete(self, path: str) -> None:
        self.ask("delete", path.rpartition("/")[2])

    def list(self, path: str) -> list[Entry]:
        raise NotImplementedError

    def walk(self, path: str) -> Iterator[Entry]:
        raise NotImplementedError

    def length(self, path: str) -> int | None:
        raise NotImplementedError

    def modified(self, path: str) -> float | None:
        raise NotImplementedError

    def rename(self, source: str, target: str) -> None:
        raise NotImplementedError

    def make_folder(self, path: str) -> None:
        raise NotImplementedError

    def sync(self, path: str) -> None:
        """No power is cut."""


@cache
def view_of(listing: tuple[tuple[str, bytes], ...]) -> View:
    """What a journal reads from these files."""
    return Journal(JournalFolder(lambda *operation: listing), "journal").read()


class SharedJournal(Journal):
    """The real journal. There are no temporary files in a world, so none are looked for."""

    place = PLACE

    def __init__(self, folder: JournalFolder) -> None:
        super().__init__(folder, "journal", clock=lambda: 0.0)
        self._folder = folder

    def __repr__(self) -> str:
        return "journal"

    def read(self) -> View:
        listing = self._folder.ask("names")
        self._folder.listed(listing)
        self._view = view_of(listing)
        return self._view

    def sweep(self) -> list[str]:
        return []


class Undamaged(Folding):
    """No segment is lost in a world, so none is looked for: one listing less to search through."""

    def check_segments(self) -> None:
        pass


class CompactedJournal(SharedJournal):
    """Folds done epochs away as soon as it can."""

    def _folding(self, *pauses: Callable[..., Any]) -> Folding:
        made = super()._folding(*pauses)
        return Undamaged(**{field.name: getattr(made, field.name) for field in fields(made)})

    def compact(self, view: View, *, retain: int, slack: int = 0) -> None:
        super().compact(view, retain=0, slack=0)


class SharedCheckpoint:
    """Spark's checkpoint."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __repr__(self) -> str:
        return "checkpoint"

    def query_id(self) -> str:
        return QUERY

    def committed(self) -> int:
        return int(self._ask("committed"))

    def committed_at(self, epoch: int) -> float | None:
        return None

    def offsets(self, epoch: int) -> str | None:
        found: str | None = self._ask("offsets", epoch)
        return found

    def sources(self, epoch: int) -> dict[str, Json]:
        return {}

    def watermark(self, epoch: int) -> float | None:
        return None


class SharedStore(Abilities):
    """A participant of one world."""

    def __init__(self, ask: Ask, parts: Parts, *, claims: bool = False) -> None:
        self._ask = ask
        self._parts = parts
        self._claims = claims

    def __repr__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return f"store {self._parts}"

    def check_frame(self, rows: None) -> Sequence[str]:
        raise NotImplementedError

    def check_output_mode(self, mode: str) -> None:
        raise NotImplementedError

    def describe(self, rows: None = None) -> dict[str, Json]:
        return {"type": "shared", "target": self.name}

    def open(self, lineage: str) -> Memory:
        (_, version, generation, copy), epochs = self._ask("open", self._parts)
        recent = {epoch: f"offsets of {epoch}" for epoch in epochs}
        return Memory(
            self.name,
            version > 0 or bool(epochs),
            max(epochs, default=NO_EPOCH),
            recent,
            holder=_claim_of(lineage, generation, copy) if self._claims else FIRST,
            version=version,
        )

    def claim(self, claim: Claim, *, version: int, rows: None = None) -> bool:
        return not self._claims or bool(self._ask("claim", self._parts, version, claim.generation, claim.start))

    def withdraw(self, claim: Claim) -> None:
        raise NotImplementedError("there is one stream here")

    def holder(self, lineage: str) -> Claim | None:
        return _claim_of(lineage, *self._ask("holder", self._parts)) if self._claims else FIRST

    def stage(self, batch: Batch[None]) -> Staged:
        for part in self._parts:
            self._ask("stage", batch.attempt.epoch, batch.attempt.generation, part)
        return Staged(Handle(1, {}), 1)

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        outcome: Outcome | None = self._ask("commit", attempt.epoch, attempt.generation, self._parts)
        if outcome is None:
            raise DataLost(f"{attempt.key}: neither staged nor visible")
        return outcome

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._ask("abort", attempt.epoch, attempt.generation, self._parts)

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return [Attempt(lineage, epoch, generation) for epoch, generation in self._ask("leftovers", self._parts)]


def _claim_of(lineage: str, generation: int, copy: str) -> Claim | None:
    return Claim(lineage=lineage, generation=generation, start=copy, journal=PLACE) if generation else None


FIRST = _claim_of(QUERY, 1, "only")


class KeepingStore(SharedStore, Rolls):
    """A participant that keeps a part open until enough epochs are in it, or until a roll."""

    most = 2

    @property
    def rolls(self) -> Rolls:
        return self

    @property
    def opens(self) -> bool:
        return True

    def due(self, state: Mapping[str, Json]) -> float | None:
        raise NotImplementedError

    def check_state(self, state: Mapping[str, Json]) -> None:
        raise NotImplementedError

    def open_rows(self, state: Mapping[str, Json]) -> list[OpenRows]:
        raise NotImplementedError

    def stage(self, batch: Batch[None]) -> Staged:
        attempt, pieces = batch.attempt, _pieces(batch.state)
        closes = (*pieces, attempt.epoch) if len(pieces) + 1 >= self.most else ()
        self._gather(attempt, closes)
        opens: dict[str, Json] = {str(attempt.epoch): 1}
        changes = dict.fromkeys(map(str, pieces)) if closes else opens
        return Staged(_keeping_handle(pieces if closes else (), keeps=not closes), 1, changes=changes)

    def roll(self, request: RollRequest) -> Staged | None:
        pieces = _pieces(request.state)
        if not pieces:
            return None
        self._gather(request.attempt, pieces)
        return Staged(_keeping_handle(pieces, keeps=False), 0, changes={str(epoch): None for epoch in pieces})

    def commit(self, attempt: Attempt, handle: Handle) -> Outcome:
        body = cast("dict[str, Any]", handle.body)
        outcome: Outcome | None = self._ask("show", _key(attempt), body["keeps"], tuple(body["spent"]))
        if outcome is None:
            raise DataLost(f"{attempt.key}: neither staged nor visible")
        return outcome

    def abort(self, attempt: Attempt, handle: Handle | None) -> None:
        self._ask("drop", _key(attempt))

    def leftovers(self, lineage: str, scratch: str = "") -> list[Attempt]:
        return [Attempt(lineage, *key) for key in self._ask("gathered")]

    def _gather(self, attempt: Attempt, closes: tuple[int, ...]) -> None:
        if not self._ask("gather", _key(attempt), closes):
            raise PiecesGone(f"{attempt.key}: pieces of {closes} are gone")


def _pieces(state: Mapping[str, Json]) -> tuple[int, ...]:
    return tuple(sorted(int(epoch) for epoch in state))


class PiecesGone(Refused):
    """What a driver that came too late finds: another has closed the part."""


def _key(attempt: Attempt) -> tuple[int, int, int]:
    return attempt.epoch, attempt.generation, attempt.roll


def _keeping_handle(spent: tuple[int, ...], *, keeps: bool) -> Handle:
    return Handle(1, {"spent": [*spent], "keeps": keeps})


def stores(ask: Ask, setting: Setting) -> list[SharedStore]:
    """The sinks of a setting."""
    if setting.rolling:
        keeping = [KeepingStore(ask, parts, claims=setting.claims) for parts in SINKS[setting.sinks]]
        for store in keeping:
            store.most = setting.most
        return [*keeping]
    return [SharedStore(ask, parts, claims=setting.claims) for parts in SINKS[setting.sinks]]
