"""The records of compactions: small files of canonical JSON, made once and never changed.

=============================  ====================================================================
name                           record
=============================  ====================================================================
``000000000003.plan.json``     what compaction 3 joins, and where the joined files are staged
``000000000003.done.json``     what readers by manifest list since then; nothing if it was given up
``000000000003.removed.json``  the files that were replaced are gone
=============================  ====================================================================

Each is written as the journal's are (`epochal.txn.codec`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from epochal.sinks.files.layout import Layout, visible
from epochal.txn import codec
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, Files, join
from epochal.txn.model import Json

FORMAT = 1
PLAN, DONE, REMOVED = "plan", "done", "removed"
_NAME = re.compile(r"(\d{12})\.(plan|done|removed)\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Joined:
    """One new file, and those whose place it takes. Paths are relative to the target."""

    lineage: str
    entry: str  # the manifest that lists it: that of the last file replaced
    path: str
    bytes: int
    staged: str  # within the staging folder
    replaced: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a compaction will do."""

    number: int
    staging: str  # a name in `Layout.compacting`
    grace: float  # seconds for which replaced files stay
    files: tuple[Joined, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Done:
    """What a compaction did, which is what its plan says, or nothing."""

    number: int
    files: tuple[Joined, ...]
    at: float  # the wall clock of who made it


@dataclass(frozen=True, slots=True)
class Known:
    """All compactions of a target at one time."""

    last: int  # the newest plan, 0 if there is none
    done: tuple[Done, ...]  # 1, 2, ... without a gap
    removed: frozenset[int]

    @property
    def is_finished(self) -> bool:
        return len(self.done) == self.last


def path_of(layout: Layout, number: int, kind: str) -> str:
    """Where a record is."""
    return join(layout.compactions, f"{number:012d}.{kind}.json")


def read(files: Files, layout: Layout) -> Known:
    """What is recorded. A listing may lag behind, so it is asked for the highest number only."""
    numbers: dict[str, set[int]] = {PLAN: set(), DONE: set(), REMOVED: set()}
    for name in files.names(layout.compactions):
        if name.startswith(TEMPORARY):
            continue
        found = _NAME.fullmatch(name)
        if found is None:
            raise JournalCorrupt(f"{join(layout.compactions, name)}: not a record of a compaction; move it away")
        numbers[found[2]].add(int(found[1]))
    last = max(set().union(*numbers.values()), default=0)
    is_done = last in numbers[DONE] or last in numbers[REMOVED]
    # Before a plan there is always the done of the one before it.
    done = tuple(read_done(files, layout, number) for number in range(1, last + is_done))
    return Known(last, done, frozenset(numbers[REMOVED]))


def read_plan(files: Files, layout: Layout, number: int) -> Plan:
    """A plan, which must be there."""
    inner, path = _read(files, layout, number, PLAN)
    try:
        return Plan(number, _folder(inner["staging"]), _number(inner["grace"]), _joined(inner), _number(inner["at"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _unknown(path) from None


def read_done(files: Files, layout: Layout, number: int) -> Done:
    """A done, which must be there."""
    inner, path = _read(files, layout, number, DONE)
    try:
        return Done(number, _joined(inner), _number(inner["at"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _unknown(path) from None


def create(files: Files, layout: Layout, record: Plan | Done) -> bool:
    """Write a plan or a done; False if another was first."""
    told: dict[str, Json] = {"at": record.at, "files": [_to_json(joined) for joined in record.files]}
    if isinstance(record, Plan):
        told |= {"staging": record.staging, "grace": record.grace}
    kind = PLAN if isinstance(record, Plan) else DONE
    return files.create(path_of(layout, record.number, kind), codec.to_bytes({**_head(record.number, kind), **told}))


def create_removed(files: Files, layout: Layout, number: int) -> None:
    """Write that nothing of a compaction is left to do."""
    files.create(path_of(layout, number, REMOVED), codec.to_bytes(_head(number, REMOVED)))


def _head(number: int, kind: str) -> dict[str, Json]:
    return {"format": FORMAT, "kind": kind, "number": number}


def _read(files: Files, layout: Layout, number: int, kind: str) -> tuple[dict[str, Any], str]:
    path = path_of(layout, number, kind)
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise JournalCorrupt(f"{path}: missing, and later compactions build on it; restore it from a copy") from None
    inner = codec.from_bytes(path, data, version=FORMAT)
    if (inner.get("kind"), inner.get("number")) != (kind, number):
        raise JournalCorrupt(f"{path}: holds another record; it was copied or renamed by hand, move it away")
    return inner, path


def _to_json(joined: Joined) -> dict[str, Json]:
    return {
        "lineage": joined.lineage,
        "entry": joined.entry,
        "path": joined.path,
        "bytes": joined.bytes,
        "staged": joined.staged,
        "replaced": [[path, length] for path, length in joined.replaced],
    }


def _joined(inner: dict[str, Any]) -> tuple[Joined, ...]:
    return tuple(
        Joined(
            lineage=_text(one["lineage"]),
            entry=_text(one["entry"]),
            path=_below(one["path"]),
            bytes=_whole(one["bytes"]),
            staged=_below(one["staged"]),
            replaced=tuple((_below(path), _whole(length)) for path, length in one["replaced"]),
        )
        for one in inner["files"]
    )


def _below(value: object) -> str:
    """A path that stays below the target, and out of `_epochal`: records say what is removed."""
    try:
        return visible(_text(value))
    except JournalCorrupt:
        raise ValueError(value) from None


def _folder(value: object) -> str:
    """The name of a folder in `Layout.compacting`, which is removed in the end."""
    if "/" in _below(value):
        raise ValueError(value)
    return _text(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _unknown(path: str) -> JournalCorrupt:
    return JournalCorrupt(f"{path}: its fields are not those of a compaction; restore it from a copy")
