"""The journal's records and how they are spelled on disk.

A record is one small immutable file of canonical JSON::

    {"check":"<sha256 of the record's canonical JSON>","record":{"format":1,"kind":"decided",...}}

Canonical means sorted keys, no spaces, ASCII, one newline at the end. A file that is not byte for
byte what its record would be written as is torn or foreign, and so is one whose name does not
belong to its content: both are errors that name the file, never skipped.

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
===================================  ================================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from epochal.txn.errors import JournalCorrupt
from epochal.txn.model import Json, Staged

FORMAT = 1
NOBODY = 0  # the winner of an epoch that a closed journal left in doubt
OPTIONAL = {"omitted": True}  # a field that is not spelled while it is empty
_NAME = re.compile(r"g\d{6,}|e\d{12}\.(g\d{6,}|decided|done)|r\d{6,}\.\d{6,}(\.done)?|s\d{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    """A start of the coordinator. Carries everything that later starts must know of earlier ones."""

    kind: ClassVar[str] = "generation"
    generation: int
    query: str  # the query id in the checkpoint's metadata
    base: int  # the first epoch that this journal answers for
    incarnation: int = 1  # which journal of the query this is
    commit: str = "checkpoint"
    sinks: dict[str, Json] = field(default_factory=dict)  # descriptions, without secrets
    adopted: dict[str, Json] = field(default_factory=dict)  # sink -> last epoch taken as written
    driver: dict[str, Json] = field(default_factory=dict)  # host, pid and version, for people
    closed: bool = False  # the user chose `new`: the next incarnation has a journal of its own
    at: str = ""
    start: str = field(default="", metadata=OPTIONAL)  # random: the same number in a copy of the journal has another
    missing: dict[str, Json] = field(default_factory=dict, metadata=OPTIONAL)  # sink -> last epoch it may lack

    @property
    def name(self) -> str:
        return f"g{self.generation:06d}.json"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Every participant has staged the epoch, durably and invisibly."""

    kind: ClassVar[str] = "prepared"
    epoch: int
    generation: int
    offsets: str  # digest of offsets/N as this generation planned it
    sinks: dict[str, Json]  # sink -> {handle, rows, digest, changes}
    at: str = ""
    rolls: int = field(default=0, metadata=OPTIONAL)  # how many rolls there were since the epoch before

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
    """The generation whose staged data become epoch N, or NOBODY. Created once, read by all."""

    kind: ClassVar[str] = "decided"
    epoch: int
    generation: int
    at: str = ""

    @property
    def name(self) -> str:
        return f"e{self.epoch:012d}.decided.json"


@dataclass(frozen=True, slots=True)
class Done:
    """Every sink shows the epoch and nothing of other attempts is left."""

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

    Numbered from 1 without a gap, so that whoever takes the next number ends the row.
    """

    kind: ClassVar[str] = "roll"
    generation: int
    number: int
    by: int  # the generation that made it
    after: int  # the last epoch that was done
    sinks: dict[str, Json] = field(default_factory=dict)  # as in PREPARED
    at: str = ""

    @property
    def name(self) -> str:
        return f"r{self.generation:06d}.{self.number:06d}.json"

    @property
    def is_seal(self) -> bool:
        return self.by != self.generation


@dataclass(frozen=True, slots=True)
class Rolled:
    """Every sink shows what a roll closed: nobody needs its sinks for it any more."""

    kind: ClassVar[str] = "rolled"
    generation: int
    number: int
    at: str = ""

    @property
    def name(self) -> str:
        return f"r{self.generation:06d}.{self.number:06d}.done.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every epoch up to `through` is done; their records may be gone."""

    kind: ClassVar[str] = "snapshot"
    through: int
    at: str = ""
    kept: dict[str, Json] = field(default_factory=dict, metadata=OPTIONAL)  # sink -> what it keeps in the journal
    totals: dict[str, Json] = field(default_factory=dict, metadata=OPTIONAL)  # what the sinks were given, see `totals`

    @property
    def name(self) -> str:
        return f"s{self.through:012d}.json"


Record: TypeAlias = GenerationStarted | Prepared | Seal | Decided | Done | Roll | Rolled | Snapshot
_KINDS: dict[str, type[Record]] = {
    k.kind: k for k in (GenerationStarted, Prepared, Seal, Decided, Done, Roll, Rolled, Snapshot)
}


def attempt_name(epoch: int, generation: int) -> str:
    """The name that PREPARED and the seal of one attempt compete for."""
    return f"e{epoch:012d}.g{generation:06d}.json"


def is_record_name(name: str) -> bool:
    """Whether a file of the journal is named as a record is."""
    return name.endswith(".json") and _NAME.fullmatch(name.removesuffix(".json")) is not None


def generation_of_name(name: str) -> int | None:
    """The generation whose start a record's name belongs to; None for other records."""
    return int(name[1:].removesuffix(".json")) if name.startswith("g") else None


def epoch_of_name(name: str) -> int | None:
    """The epoch that a record's name belongs to; None for generations, rolls and snapshots."""
    return int(name[1:13]) if name.startswith("e") else None


def canonical(value: Json) -> bytes:
    """The one spelling of a JSON value.

    >>> canonical({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def encode(record: Record) -> bytes:
    """A record as it stands on disk."""
    fields: dict[str, Json] = {
        f.name: getattr(record, f.name)
        for f in dataclasses.fields(record)
        if getattr(record, f.name) or not _is_optional(f)
    }
    return _spell({"format": FORMAT, "kind": record.kind, **fields})


def decode(path: str, name: str, data: bytes) -> Record:
    """The record in a file, or JournalCorrupt that names the file and says why."""
    if not is_record_name(name):
        raise JournalCorrupt(f"{path}: not a file of this journal; move it away or restore the journal from a copy")
    try:
        whole = json.loads(data)
        inner = whole["record"]
        version = inner["format"]
        spelled = _spell(inner)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JournalCorrupt(f"{path}: torn or foreign ({len(data)} bytes); restore it from a copy") from None
    if spelled != data:
        raise JournalCorrupt(f"{path}: its checksum does not match its content; restore it from a copy")
    if version != FORMAT:
        raise JournalCorrupt(
            f"{path}: written in journal format {version}, this epochal reads format {FORMAT}; "
            "run the newer epochal that wrote it"
        )
    record = _build(path, inner)
    try:
        own_name = record.name
    except (ValueError, TypeError):
        raise JournalCorrupt(f"{path}: the numbers in it are none; restore it from a copy") from None
    if own_name != name:
        raise JournalCorrupt(f"{path}: holds the record {own_name}; it was copied or renamed by hand, move it away")
    return record


def _is_optional(field_: dataclasses.Field[Any]) -> bool:
    return bool(field_.metadata.get("omitted"))


def _spell(inner: dict[str, Json]) -> bytes:
    check = hashlib.sha256(canonical(inner)).hexdigest()
    return canonical({"check": check, "record": inner}) + b"\n"


def _build(path: str, inner: dict[str, Json]) -> Record:
    fields = {key: value for key, value in inner.items() if key not in ("format", "kind")}
    kind = _KINDS.get(str(inner.get("kind")))
    known = {f.name: f for f in dataclasses.fields(kind)} if kind is not None else {}
    needed = {name for name, f in known.items() if not _is_optional(f)}
    if kind is None or not needed <= set(fields) <= set(known):
        raise JournalCorrupt(f"{path}: kind {inner.get('kind')!r} with fields {sorted(fields)} is not known here")
    return kind(**fields)  # type: ignore[arg-type]  # the checksum vouches for what encode wrote


def staged_to_json(staged: Staged) -> dict[str, Json]:
    """A participant's part of a PREPARED record."""
    part: dict[str, Json] = {"handle": staged.handle.to_json(), "rows": staged.rows}
    if staged.digest is not None:
        part["digest"] = staged.digest
    return {**part, "changes": dict(staged.changes)} if staged.changes else part
