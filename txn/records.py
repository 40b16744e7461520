"""The journal's records, their names and their fields.

A record is one small immutable file in the format of `codec`. A file whose name does not match its content is an error
that names the file. Fields are checked and converted to types once, here.

===================================  ================================================================
name                                 record
===================================  ================================================================
``g000003.json``                     generation 3 started: who, where, sinks, first epoch
``e000000000042.g000003.json``       attempt of generation 3 at epoch 42: `prepared`, or the `seal`
``e000000000042.decided.json``       which generation won epoch 42
``e000000000042.done.json``          epoch 42 is visible in every sink
``r000003.000001.json``              first roll of generation 3: what it closed between two epochs
``r000003.000001.done.json``         every sink shows what that roll closed
``s000000000040.json``               snapshot: every epoch up to 40 is done and folded away
``m000000000017.json``               the 17th state record: which segments are the sinks' state
===================================  ================================================================
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from epochal.txn import codec
from epochal.txn.driver_facts import DriverFacts
from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Description, Handle, Json, Staged
from epochal.txn.partitions import Repartitioned
from epochal.txn.state.segments import SegmentRef
from epochal.txn.totals import Totals

FORMAT = 1
NO_WINNER = 0  # instead of a generation: the epoch was in doubt when its journal was closed
OPTIONAL = {"omitted": True}  # a field that is not written if it is empty
_NAME = re.compile(r"g\d{6,}|e\d{12}\.(g\d{6,}|decided|done)|r\d{6,}\.\d{6,}(\.done)?|s\d{12}|m\d{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    """A start of the coordinator. Holds everything that later starts need from earlier ones."""

    kind: ClassVar[str] = "generation"
    generation: int
    query: str  # the query id in the checkpoint's metadata
    base: int  # the first epoch that this journal covers
    incarnation: int = 1  # which journal of the query this is
    commit: str = "checkpoint"
    sinks: Mapping[str, Description] = field(default_factory=dict)
    adopted: Mapping[str, int] = field(default_factory=dict)  # sink -> last epoch taken as written
    driver: DriverFacts = field(default_factory=DriverFacts)
    closed: bool = False  # the user chose `new`: the next incarnation has a journal of its own
    at: str = ""
    start: str = field(
        default="", metadata=OPTIONAL
    )  # random: distinguishes it from the same number in a copy of the journal
    missing: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL)  # sink -> last epoch it may lack

    @property
    def name(self) -> str:
        return f"g{self.generation:06d}.json"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Every participant has staged the epoch: durable, not visible."""

    kind: ClassVar[str] = "prepared"
    epoch: int
    generation: int
    offsets: str  # digest of offsets/N as this generation planned it
    sinks: Mapping[str, Staged]
    at: str = ""
    rolls: int = field(default=0, metadata=OPTIONAL)  # how many rolls there were since the epoch before
    sources: Mapping[str, Json] = field(default_factory=dict, metadata=OPTIONAL)  # where it ends in each, for people
    # Spark's own epoch, in which it changed the partitions of its state: it reads nothing and goes to no sink.
    repartitioned: Repartitioned | None = field(default=None, metadata=OPTIONAL)

    @property
    def name(self) -> str:
        return attempt_name(self.epoch, self.generation)


@dataclass(frozen=True, slots=True)
class Seal:
    """Takes the place of an older generation's PREPARED, so that it can never be recorded."""

    kind: ClassVar[str] = "seal"
    epoch: int
    generation: int
    by: int
    at: str = ""

    @property
    def name(self) -> str:
        return attempt_name(self.epoch, self.generation)


@dataclass(frozen=True, slots=True)
class Decided:
    """The generation whose staged data becomes epoch N, or NO_WINNER. Created once; every process reads the same."""

    kind: ClassVar[str] = "decided"
    epoch: int
    generation: int
    at: str = ""

    @property
    def name(self) -> str:
        return f"e{self.epoch:012d}.decided.json"


@dataclass(frozen=True, slots=True)
class Done:
    """The epoch is visible in every sink, and nothing is left of other attempts."""

    kind: ClassVar[str] = "done"
    epoch: int
    generation: int
    at: str = ""

    @property
    def name(self) -> str:
        return f"e{self.epoch:012d}.done.json"


@dataclass(frozen=True, slots=True)
class Roll:
    """What a generation closes between two epochs; or, made by another generation, the seal that ends its rolls.

    Numbered from 1 without a gap: whoever creates the next number as a seal makes any later roll impossible.
    """

    kind: ClassVar[str] = "roll"
    generation: int
    number: int
    by: int  # the generation that made it
    after: int  # the last epoch that was done
    sinks: Mapping[str, Staged] = field(default_factory=dict)
    at: str = ""
    rolls: int = field(default=0, metadata=OPTIONAL)  # how many rolls followed the same epoch before it

    @property
    def name(self) -> str:
        return f"r{self.generation:06d}.{self.number:06d}.json"

    @property
    def is_seal(self) -> bool:
        return self.by != self.generation


@dataclass(frozen=True, slots=True)
class Rolled:
    """What a roll closed is visible in every sink."""

    kind: ClassVar[str] = "rolled"
    generation: int
    number: int
    at: str = ""

    @property
    def name(self) -> str:
        return f"r{self.generation:06d}.{self.number:06d}.done.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every epoch up to `through` is done; their records may be gone.

    The sinks' state is in a state record. Older versions wrote it here, as `kept`: it may be newer, as of any done
    epoch from `through` on. Applying the changes of later epochs again gives the same states, because the last change
    of a key wins.
    """

    kind: ClassVar[str] = "snapshot"
    through: int
    at: str = ""
    kept: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, metadata=OPTIONAL)  # sink -> its state
    totals: Totals | None = field(default=None, metadata=OPTIONAL)  # what was written to the sinks
    state: int = field(default=0, metadata=OPTIONAL)  # a state record with this number, or a higher one, must be there

    @property
    def name(self) -> str:
        return f"s{self.through:012d}.json"


@dataclass(frozen=True, slots=True)
class StateRecord:
    """The sinks' state after every epoch up to `through`, and the rolls after it: these segments, oldest first.

    Numbered from 1: whoever creates the next number has built on the one before. The highest number counts.
    """

    kind: ClassVar[str] = "state"
    number: int
    through: int
    segments: tuple[SegmentRef, ...]
    at: str = ""

    @property
    def name(self) -> str:
        return f"m{self.number:012d}.json"

    @property
    def last_epoch(self) -> int:
        """The last epoch whose changes are in the segments. It may be newer than `through` (`folding.heal`)."""
        return max([self.through, *(ref.through for ref in self.segments)])


Record: TypeAlias = GenerationStarted | Prepared | Seal | Decided | Done | Roll | Rolled | Snapshot | StateRecord
_KINDS: dict[str, type[Record]] = {
    k.kind: k for k in (GenerationStarted, Prepared, Seal, Decided, Done, Roll, Rolled, Snapshot, StateRecord)
}


def attempt_name(epoch: int, generation: int) -> str:
    """The name that PREPARED and the seal of one attempt compete for."""
    return f"e{epoch:012d}.g{generation:06d}.json"


def is_record_name(name: str) -> bool:
    """Whether a file of the journal has the name of a record."""
    return name.endswith(".json") and _NAME.fullmatch(name.removesuffix(".json")) is not None


def generation_of_name(name: str) -> int | None:
    """The generation of a start record, from its name; None for other records."""
    return int(name[1:].removesuffix(".json")) if name.startswith("g") else None


def epoch_of_name(name: str) -> int | None:
    """The epoch of a record, from its name; None for generations, rolls and snapshots."""
    return int(name[1:13]) if name.startswith("e") else None


def encode(record: Record) -> bytes:
    """A record as it is written to disk."""
    fields: dict[str, Json] = {"format": FORMAT, "kind": record.kind}
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        if value or not _is_optional(f):
            fields[f.name] = _WRITERS[f.name](value) if f.name in _WRITERS else value
    return codec.to_bytes(fields)


def decode(path: str, name: str, data: bytes) -> Record:
    """The record in a file, or JournalCorrupt that names the file and says why."""
    if not is_record_name(name):
        raise JournalCorrupt(f"{path}: not a file of this journal; move it away or restore the journal from a copy")
    record = _build(path, codec.from_bytes(path, data, version=FORMAT, what="journal format"))
    try:
        own_name = record.name
    except (ValueError, TypeError):
        raise JournalCorrupt(f"{path}: a number in it is not a number; restore it from a copy") from None
    if own_name != name:
        raise JournalCorrupt(f"{path}: holds the record {own_name}; it was copied or renamed by hand, move it away")
    return record


def _is_optional(field_: dataclasses.Field[Any]) -> bool:
    return bool(field_.metadata.get("omitted"))


def _build(path: str, inner: dict[str, Any]) -> Record:
    fields = {key: value for key, value in inner.items() if key not in ("format", "kind")}
    kind = _KINDS.get(str(inner.get("kind")))
    known = {f.name: f for f in dataclasses.fields(kind)} if kind is not None else {}
    needed = {name for name, f in known.items() if not _is_optional(f)}
    if kind is None or not needed <= set(fields) <= set(known):
        raise JournalCorrupt(
            f"{path}: kind {inner.get('kind')!r} with fields {sorted(fields)} is unknown to this epochal"
        )
    readers = {**_READERS, "sinks": _read_description if kind is GenerationStarted else _read_staged}
    try:
        typed = {name: readers[name](value) if name in readers else value for name, value in fields.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise JournalCorrupt(f"{path}: a field cannot be read: {fault!r}; restore it from a copy") from None
    return kind(**typed)


def _by_sink(read: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda sinks: {name: read(value) for name, value in sinks.items()}


def _write_sink(value: Description | Staged) -> dict[str, Json]:
    if isinstance(value, Description):
        return dict(value.settings)
    part: dict[str, Json] = {"handle": value.handle.to_json(), "rows": value.rows}
    if value.digest is not None:
        part["digest"] = value.digest
    if value.bytes is not None:
        part["bytes"] = value.bytes
    return {**part, "changes": dict(value.changes)} if value.changes else part


def _staged(part: dict[str, Any]) -> Staged:
    rows, changes = part["rows"], part.get("changes", {})
    if not isinstance(rows, int) or not isinstance(changes, dict):
        raise TypeError(f"rows {rows!r}")
    size = part.get("bytes")
    if not isinstance(size, int | None):
        raise TypeError(f"bytes {size!r}")
    return Staged(Handle.from_json(part["handle"]), rows, changes=changes, digest=part.get("digest"), bytes=size)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value


_read_description = _by_sink(lambda settings: Description(_object(settings)))
_read_staged = _by_sink(_staged)
_READERS: dict[str, Callable[[Any], Any]] = {
    "adopted": _by_sink(int),
    "missing": _by_sink(int),
    "driver": lambda value: DriverFacts.from_json(_object(value)),
    "kept": _by_sink(_object),
    "sources": _object,
    "totals": Totals.from_json,
    "repartitioned": Repartitioned.from_json,
    "segments": lambda refs: tuple(map(SegmentRef.from_json, refs)),
}
_WRITERS: dict[str, Callable[[Any], Json]] = {
    "sinks": _by_sink(_write_sink),
    "adopted": dict,
    "missing": dict,
    "driver": DriverFacts.to_json,
    "kept": _by_sink(dict),
    "sources": dict,
    "totals": Totals.to_json,
    "repartitioned": Repartitioned.to_json,
    "segments": lambda refs: [ref.to_json() for ref in refs],
}
