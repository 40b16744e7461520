"""What the messages of epochal's own topic say: who writes to a target, and which epochs it holds. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from epochal.participant import NO_EPOCH, Attempt, Claim, Json, Lineages, Memory, Refused, VisibleEpoch
from epochal.sinks.kafka.layout import CLAIMS, EPOCH, LANES, MOST_LANES, PART

FORMAT = 1
PARTS_OF_KEYS = {CLAIMS: 1, EPOCH: 3, LANES: 2, PART: 4}
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
Range = tuple[int, int]  # the first offset, and the one after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An epoch that a target holds: the attempt that it came from, and where its messages are."""

    epoch: int
    generation: int
    start: str
    offsets: str  # the digest of what the epoch has read
    rows: int
    digest: str | None
    topics: Mapping[str, str]  # the brokers' own ids
    ranges: Mapping[str, Mapping[int, Range]]  # within them are all messages of the epoch, perhaps others' too
    headers: bool = False  # each message names its epoch

    def shown(self) -> VisibleEpoch:
        return VisibleEpoch(self.generation, self.start, self.offsets)

    def to_json(self) -> bytes:
        body = {name: getattr(self, name) for name in self.__slots__}
        return _encoded({**body, "topics": dict(self.topics), "ranges": _ranges_to_json(self.ranges)})

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Mark:
        body = {name: value[name] for name in Mark.__slots__}
        return Mark(**{**body, **_checked(body)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMark:
    """A part of an epoch that a target holds."""

    epoch: int
    generation: int
    start: str
    offsets: str
    rows: int
    topics: Mapping[str, str]
    ranges: Mapping[str, Mapping[int, Range]]

    def shown(self) -> VisibleEpoch:
        return VisibleEpoch(self.generation, self.start, self.offsets)

    def to_json(self) -> bytes:
        return _encoded(
            {name: getattr(self, name) for name in self.__slots__}
            | {"topics": dict(self.topics), "ranges": _ranges_to_json(self.ranges)}
        )

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> PartMark:
        body = {name: value[name] for name in PartMark.__slots__}
        return PartMark(**{**body, **_checked(body)})


@dataclass(slots=True)
class LedgerState:
    """All messages of the topic up to some offset, the newest of each key."""

    claims: dict[str, Lineages] = field(default_factory=dict)  # by target
    slots: dict[tuple[str, str], dict[int, Mark]] = field(default_factory=dict)  # by target and lineage
    lanes: dict[tuple[str, str], int] = field(default_factory=dict)
    parts: dict[tuple[str, str], dict[tuple[int, int], PartMark]] = field(default_factory=dict)  # by lane and number

    def apply(self, key: bytes | None, value: bytes | None, where: str) -> bool:
        """Take in the next message; False if it is another program's, and says nothing of ours.

        Refused if it has one of our keys and is not what we write: then it has taken the place of a record.
        """
        named = key_of(key)
        if named is None:
            return False
        kind, parts = named
        try:
            body = json.loads(value or b"")
            if body["format"] != FORMAT:
                raise Refused(
                    f"{where}: written in format {body['format']}, this epochal reads {FORMAT}; run the newer epochal"
                )
            target, *of = parts
            if kind == CLAIMS:
                self.claims[target] = _claims_from(body)
            elif kind == LANES:
                self.lanes[target, of[0]] = _lanes_in(body)
            elif kind == EPOCH:
                self.slots.setdefault((target, of[0]), {})[int(of[1])] = Mark.from_json(body)
            else:
                self.parts.setdefault((target, of[0]), {})[int(of[1]), int(of[2])] = PartMark.from_json(body)
        except UNREADABLE:
            what = "removed" if value is None else "overwritten"
            raise Refused(
                f"{where}: another program has {what} a record of epochal, {(key or b'').decode(errors='replace')}. "
                "Nothing was written. Let no other program write to this topic. Then start the query with another "
                "ledger_topic=: it is asked whether the topics hold every epoch (adopt=)"
            ) from None
        return True

    def lineages(self, target: str) -> Lineages:
        """Who writes to a target."""
        return self.claims.get(target, Lineages())

    def marks(self, target: str, lineage: str, identities: Mapping[str, str]) -> dict[int, Mark]:
        """The latest epochs of a stream that are in these topics. Those of topics that were created again are not."""
        found = self.slots.get((target, lineage), {}).values()
        return {mark.epoch: mark for mark in found if dict(mark.topics) == dict(identities)}

    def last(self, target: str, lineage: str, identities: Mapping[str, str]) -> int:
        return max(self.marks(target, lineage, identities), default=NO_EPOCH)

    def memory(self, target: str, lineage: str, identities: Mapping[str, str], *, name: str, identity: str) -> Memory:
        """What the guard checks."""
        lineages = self.lineages(target)
        writers = {*lineages.claims, *(other for at, other in (*self.slots, *self.parts) if at == target)}
        marks = self.marks(target, lineage, identities)
        last, begun = max(marks, default=NO_EPOCH), self._begun(target, lineage, identities)
        others = {
            other: max(self.last(target, other, identities), self._begun(target, other, identities))
            for other in sorted(writers)
            if other != lineage
        }
        return Memory(
            name,
            enrolled=lineage in lineages.claims,
            last=last,
            recent={epoch: mark.offsets for epoch, mark in sorted(marks.items())},
            others=others,
            adopted_by=lineages.adopted_by(lineage),
            holder=lineages.claims.get(lineage),
            version=lineages.version,
            identity=identity,
            begun=begun if begun > last else NO_EPOCH,
        )

    def _begun(self, target: str, lineage: str, identities: Mapping[str, str]) -> int:
        """The last epoch of a stream of which a part is there."""
        parts = self.parts.get((target, lineage), {}).values()
        return max((part.epoch for part in parts if dict(part.topics) == dict(identities)), default=NO_EPOCH)


def lanes_to_json(lanes: int) -> bytes:
    """How many lanes a stream has used at most, as the topic has it."""
    return _encoded({"lanes": lanes})


def lanes_from(value: bytes | None) -> int:
    """The number that `lanes_to_json` has written; 0 if it is another program's message."""
    try:
        return _lanes_in(json.loads(value or b""))
    except UNREADABLE:
        return 0


def mark_of(attempt: Attempt, **facts: Any) -> Mark:
    """The mark of an attempt."""
    return Mark(epoch=attempt.epoch, generation=attempt.generation, start=attempt.start, **facts)


def claims_to_json(lineages: Lineages) -> bytes:
    """Who writes to a target, as the topic has it."""
    claims: list[Json] = []
    for claim in lineages.claims.values():
        body = {**asdict(claim), "replaces": list(claim.replaces), "driver": dict(claim.driver)}
        del body["decided"]
        claims.append(body)
    return _encoded({"version": lineages.version, "claims": claims})


def key_of(key: bytes | None) -> tuple[str, list[Any]] | None:
    """What a message is about: the kind of its key, and the rest. None if the key is none of ours."""
    try:
        kind, *parts = json.loads(key or b"")
        return (kind, parts) if len(parts) == PARTS_OF_KEYS[kind] else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _claims_from(body: Mapping[str, Any]) -> Lineages:
    claims = [Claim(**{**claim, "replaces": tuple(claim["replaces"])}) for claim in body["claims"]]
    return Lineages(int(body["version"]), {claim.lineage: claim for claim in claims})


def _lanes_in(body: Mapping[str, Any]) -> int:
    lanes = int(body["lanes"])
    if not 0 < lanes <= MOST_LANES:  # each is an id to shut others out of
        raise ValueError(lanes)
    return lanes


def _checked(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a mark is found by and compared by, as it must be."""
    return {"epoch": int(body["epoch"]), "topics": dict(body["topics"]), "ranges": _ranges_from(body["ranges"])}


def _ranges_to_json(ranges: Mapping[str, Mapping[int, Range]]) -> dict[str, dict[str, list[int]]]:
    return {name: {str(n): list(span) for n, span in spans.items()} for name, spans in ranges.items()}


def _ranges_from(value: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, dict[int, Range]]:
    return {
        name: {int(n): (int(first), int(end)) for n, (first, end) in spans.items()} for name, spans in value.items()
    }


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, **body}, sort_keys=True, separators=(",", ":")).encode()
