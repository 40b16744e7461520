"""Which lineages write to a target: one small JSON file each, made once and never changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, Files, join
from epochal.txn.model import Json

FORMAT = 1


@dataclass(slots=True)
class Lineages:
    """Who writes to a target, as one of them sees it."""

    enrolled: bool = False
    others: list[str] = field(default_factory=list)
    adopted_by: str | None = None


def safe_name(lineage: str) -> str:
    """A lineage as a folder or file is named after it."""
    return quote(lineage, safe="~")


def lineage_from(name: str) -> str:
    """The lineage that a folder or file is named after."""
    return unquote(name.removesuffix(".json"))


def enrol(files: Files, folder: str, lineage: str, adopts: str | None) -> None:
    """Remember that a lineage writes here, and whose place it takes."""
    value: dict[str, Json] = {"format": FORMAT, "lineage": lineage, "adopts": adopts}
    data = json.dumps(value, sort_keys=True).encode() + b"\n"
    files.create(join(folder, f"{safe_name(lineage)}.json"), data)


def read(files: Files, folder: str, lineage: str) -> Lineages:
    """Everybody who was enrolled."""
    found = Lineages()
    for name in files.names(folder):
        if name.startswith(TEMPORARY):
            continue
        path = join(folder, name)
        try:
            record = json.loads(files.read(path))
            owner, adopts = str(record["lineage"]), record["adopts"]
        except (ValueError, KeyError, TypeError):
            raise JournalCorrupt(f"{path}: not a record of epochal, or torn; restore it from a copy") from None
        if owner == lineage:
            found.enrolled = True
        else:
            found.others.append(owner)
            if adopts == lineage:
                found.adopted_by = owner
    return found


def sweep(files: Files, folder: str) -> None:
    """Remove what a start left that died while it enrolled."""
    for stray in files.names(folder):
        if stray.startswith(TEMPORARY):
            files.delete(join(folder, stray))
