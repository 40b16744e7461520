"""Which streams write to a target, and which start of each: a small register of numbered versions in a folder.

A version is one JSON file that says everything; it is made once and never changed. The next one is made by
create-if-absent under the next number, so of several starts that have read the same version exactly one writes the one
after it. Older versions are removed::

    lineages/claim-000000000007.json     the newest counts
    lineages/LINEAGE.json                made by epochal 0.1 before there were claims: read, never written

"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, Files, join
from epochal.txn.model import Claim, Json

FORMAT = 2
CLAIM = "claim-"
KEEP = 3  # versions: a reader may be between listing and reading


@dataclass(frozen=True, slots=True)
class Lineages:
    """Who writes to a target, at one version of the register."""

    version: int = 0
    claims: Mapping[str, Claim] = field(default_factory=dict)  # lineage -> its newest claim
    notes: Mapping[str, Json] = field(default_factory=dict)  # what the sink has to remember of its claims

    def holder(self, lineage: str) -> Claim | None:
        """A lineage's newest claim, or that of the one that took its place. None before claims were made."""
        found = self.claims.get(self.adopted_by(lineage) or lineage)
        return found if found is not None and found.start else None

    def adopted_by(self, lineage: str) -> str | None:
        """The lineage that took another's place."""
        return next((claim.lineage for claim in self.claims.values() if lineage in claim.replaces), None)

    def others(self, lineage: str) -> list[str]:
        return [other for other in self.claims if other != lineage]

    def with_claim(self, claim: Claim, notes: Mapping[str, Json] | None = None) -> Lineages:
        """The register after a claim. What a lineage has replaced before stays replaced; so do notes, unless given."""
        before = self.claims.get(claim.lineage)
        replaced = dict.fromkeys([*(before.replaces if before is not None else ()), *claim.replaces])
        whole = replace(claim, replaces=tuple(replaced))
        kept = self.notes if notes is None else notes
        return Lineages(self.version + 1, {**self.claims, claim.lineage: whole}, kept)

    def without(self, claim: Claim) -> Lineages:
        """The register without a claim; unchanged if another start has claimed the target since."""
        found = self.claims.get(claim.lineage)
        if found is None or found.start != claim.start:
            return self
        others = {name: c for name, c in self.claims.items() if name != claim.lineage}
        return Lineages(self.version + 1, others, self.notes)


@lru_cache(maxsize=256)
def safe_name(lineage: str) -> str:
    """A lineage as a folder or file is named after it: never a name that leads elsewhere."""
    if not lineage:
        raise JournalCorrupt("a record names a stream without an id; it was changed, restore it from a copy")
    return quote(lineage, safe="~") if lineage.strip(".") else lineage.replace(".", "%2E")


def lineage_from(name: str) -> str:
    """The lineage that a folder or file is named after."""
    return unquote(name.removesuffix(".json"))


class Register:
    """The register of one target."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self._decoded: tuple[bytes, Lineages] | None = None  # a cache: many streams on one target are much to decode

    def read(self) -> Lineages:
        """The newest version. Read each time: a folder that was wiped may have come to the same number again."""
        for _ in range(10):
            names = [n for n in self._files.names(self._folder) if not n.startswith(TEMPORARY)]
            newest = max((number for name in names if (number := _number(name)) is not None), default=0)
            if newest == 0:
                return Lineages(0, self._before_claims(names))
            path = join(self._folder, _name(newest))
            try:
                data = self._files.read(path)
            except FileNotFoundError:
                continue  # there is a newer one
            if self._decoded is None or self._decoded[0] != data:
                self._decoded = data, _decode(path, data)
            return self._decoded[1]
        raise OSError(f"{self._folder}: claims vanish while they are read; is another program cleaning it?")

    def claim(
        self, claim: Claim, *, version: int, notes: Callable[[Lineages], Mapping[str, Json]] | None = None
    ) -> bool:
        """Write the version after `version`; False if somebody else has, or has written a later one.

        ``notes`` makes the new notes from that version.
        """
        before = self.read()
        if before.version != version:
            return False
        return self._write(before.with_claim(claim, None if notes is None else notes(before)))

    def withdraw(self, claim: Claim) -> None:
        """Take back a claim, unless another start of its lineage has followed."""
        while (after := (before := self.read()).without(claim)) is not before and not self._write(after):
            pass  # somebody else has claimed the target meanwhile: take it back from what they wrote

    def _write(self, after: Lineages) -> bool:
        path, data = join(self._folder, _name(after.version)), _encode(after)
        if not self._files.create(path, data) and self._files.read(path) != data:  # else the answer was lost
            return False
        if self.read().version != after.version:
            # This process was paused, and has written a number that others had written and removed.
            self._files.delete(path)
            return False
        for name in self._files.names(self._folder):
            number = _number(name)
            if name.startswith(TEMPORARY) or (number is not None and number <= after.version - KEEP):
                self._files.delete(join(self._folder, name))
        return True

    def _before_claims(self, names: list[str]) -> dict[str, Claim]:
        found = {}
        for name in names:
            path = join(self._folder, name)
            try:
                record = json.loads(self._files.read(path))
                lineage, adopts = str(record["lineage"]), record["adopts"]
            except (ValueError, KeyError, TypeError):
                raise _unreadable(path) from None
            replaces = () if adopts is None else (str(adopts),)
            found[lineage] = Claim(lineage=lineage, generation=0, start="", journal="", replaces=replaces)
        return found


def to_json(claim: Claim) -> dict[str, Json]:
    """A claim as a register spells it, beside its lineage."""
    return {
        "generation": claim.generation,
        "start": claim.start,
        "journal": claim.journal,
        "sink": claim.sink,
        "replaces": list(claim.replaces),
        "driver": dict(claim.driver),
    }


def from_json(lineage: str, value: Mapping[str, Any]) -> Claim:
    """The claim that `to_json` spelled; KeyError, TypeError or ValueError for anything else."""
    return Claim(
        lineage=lineage,
        generation=int(value["generation"]),
        start=str(value["start"]),
        journal=str(value["journal"]),
        sink=str(value["sink"]),
        replaces=tuple(map(str, value["replaces"])),
        driver=dict(value["driver"]),
    )


def _name(number: int) -> str:
    return f"{CLAIM}{number:012d}.json"


def _number(name: str) -> int | None:
    number = name.removeprefix(CLAIM).removesuffix(".json")
    return int(number) if name.startswith(CLAIM) and name.endswith(".json") and number.isdecimal() else None


def _encode(register: Lineages) -> bytes:
    lineages: dict[str, Json] = {claim.lineage: to_json(claim) for claim in register.claims.values()}
    body: dict[str, Json] = {"format": FORMAT, "number": register.version, "lineages": lineages}
    if register.notes:
        body["notes"] = dict(register.notes)
    return json.dumps({**body, "check": _check(body)}, sort_keys=True, indent=1).encode() + b"\n"


def _decode(path: str, data: bytes) -> Lineages:
    try:
        value = json.loads(data)
        check, version = value.pop("check"), value["format"]
        if version == FORMAT and check == _check(value):
            return Lineages(
                int(value["number"]),
                {lineage: from_json(lineage, claim) for lineage, claim in value["lineages"].items()},
                dict(value.get("notes", {})),
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(path) from None
    if version != FORMAT:
        raise JournalCorrupt(f"{path}: written in format {version}, this epochal reads {FORMAT}; run the newer epochal")
    raise _unreadable(path)


def _check(body: Mapping[str, Json]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _unreadable(path: str) -> JournalCorrupt:
    return JournalCorrupt(f"{path}: not a record of epochal, or torn; restore it from a copy")
