"""What the sink stages, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epochal.sinks.files.manifest import EpochFacts, PublishedEpoch
from epochal.txn.model import Attempt, Json

Move = tuple[str, str, int]  # what is staged, what it will be called, its length


@dataclass(frozen=True, slots=True)
class Join:
    """Files that become one, in place, and what it will be called."""

    sources: tuple[tuple[str, int], ...]
    target: str

    @property
    def length(self) -> int:
        return sum(length for _, length in self.sources)


@dataclass(frozen=True, slots=True)
class Work:
    """What a handle says."""

    facts: EpochFacts
    files: tuple[Move, ...] = ()
    joins: tuple[Join, ...] = ()
    markers: tuple[Move, ...] = ()
    keeps: bool = False  # pieces of parts that stay open
    spent: tuple[str, ...] = ()  # pieces, and folders of them, that are in published files now

    def entry(self, attempt: Attempt) -> PublishedEpoch:
        """What the manifest will say of it."""
        shown = [(target, length) for _, target, length in self.files]
        shown += [(one.target, one.length) for one in self.joins]
        return PublishedEpoch(
            lineage=attempt.lineage,
            epoch=attempt.epoch,
            generation=attempt.generation,
            offsets=self.facts.offsets,
            rows=self.facts.rows,
            files=tuple(shown),
            roll=attempt.roll,
            digest=self.facts.digest,
            header=self.facts.header,
            start=attempt.start,
        )

    def to_json(self) -> dict[str, Json]:
        return {
            "told": self.facts.to_json(),
            "files": [[*move] for move in self.files],
            "joins": [[[[*source] for source in one.sources], one.target] for one in self.joins],
            "markers": [[*move] for move in self.markers],
            "keeps": self.keeps,
            "spent": [*self.spent],
        }

    @staticmethod
    def from_json(body: Mapping[str, Json]) -> Work:
        joins = [(sources, target) for sources, target in _lists(body["joins"], 2)]
        return Work(
            facts=EpochFacts.from_json(body["told"]),
            files=_moves(body["files"]),
            joins=tuple(Join(tuple((str(n), _int(b)) for n, b in _lists(s, 2)), str(t)) for s, t in joins),
            markers=_moves(body["markers"]),
            keeps=bool(body["keeps"]),
            spent=tuple(str(name) for name in _list(body["spent"])),
        )


def _list(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value


def _lists(value: Json, width: int) -> list[list[Json]]:
    rows = [_list(row) for row in _list(value)]
    assert all(len(row) == width for row in rows)
    return rows


def _int(value: Json) -> int:
    assert isinstance(value, int)
    return value


def _moves(value: Json) -> tuple[Move, ...]:
    return tuple((str(staged), str(target), _int(length)) for staged, target, length in _lists(value, 3))
