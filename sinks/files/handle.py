"""What the sink stages, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epochal.sinks.files.manifest import EpochFacts, PublishedEpoch
from epochal.txn.model import Attempt, Json

Rename = tuple[str, str, int]  # a staged file, its published name, its length


@dataclass(frozen=True, slots=True)
class Concat:
    """Files that are joined in place, and the published name of the result."""

    sources: tuple[tuple[str, int], ...]
    target: str

    @property
    def length(self) -> int:
        return sum(length for _, length in self.sources)


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """Everything that a commit needs, in any later process."""

    facts: EpochFacts
    files: tuple[Rename, ...] = ()
    joins: tuple[Concat, ...] = ()
    markers: tuple[Rename, ...] = ()
    has_open_pieces: bool = False  # whether it staged pieces of parts that stay open
    obsolete: tuple[str, ...] = ()  # pieces, and folders of pieces, whose rows are in published files
    versions: tuple[str, ...] = ()  # of each of `files`, as a listing has it; journals of older versions have none

    def entry(self, attempt: Attempt) -> PublishedEpoch:
        """The epoch's entry in the manifest."""
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
            "files": [[*rename] for rename in self.files],
            **({"versions": [*self.versions]} if any(self.versions) else {}),
            "joins": [[[[*source] for source in one.sources], one.target] for one in self.joins],
            "markers": [[*rename] for rename in self.markers],
            "keeps": self.has_open_pieces,
            "spent": [*self.obsolete],
        }

    @staticmethod
    def from_json(body: Mapping[str, Json]) -> StagedEpoch:
        joins = [(sources, target) for sources, target in _lists(body["joins"], 2)]
        return StagedEpoch(
            facts=EpochFacts.from_json(body["told"]),
            files=_renames(body["files"]),
            joins=tuple(Concat(tuple((str(n), _int(b)) for n, b in _lists(s, 2)), str(t)) for s, t in joins),
            markers=_renames(body["markers"]),
            has_open_pieces=bool(body["keeps"]),
            obsolete=tuple(str(name) for name in _list(body["spent"])),
            versions=tuple(str(version) for version in _list(body.get("versions", []))),
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


def _renames(value: Json) -> tuple[Rename, ...]:
    return tuple((str(staged), str(target), _int(length)) for staged, target, length in _lists(value, 3))
