"""The manifest: one small JSON file per epoch says what it published. It is written once and never changed.

An epoch is listed only when all its files are published, so readers of the manifest never see half an epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from epochal.sinks.files.layout import Layout, visible
from epochal.sinks.storage.register import Lineages, lineage_from
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import TEMPORARY, Files, identity_of, join
from epochal.txn.model import NO_EPOCH, Attempt, Json, Memory

FORMAT = 1
RECENT = 50


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """What an audit needs to know about an epoch's rows; a roll has none."""

    rows: int = 0
    offsets: str = ""
    digest: str | None = None
    header: str | None = None

    def to_json(self) -> dict[str, Json]:
        return {"rows": self.rows, "offsets": self.offsets, "digest": self.digest, "header": self.header}

    @staticmethod
    def from_json(value: Json) -> EpochFacts:
        match value:
            case {
                "rows": int(rows),
                "offsets": str(offsets),
                "digest": str() | None as digest,
                "header": str() | None as header,
            }:
                return EpochFacts(rows, offsets, digest, header)
        raise JournalCorrupt(f"a handle's facts for the manifest cannot be read: {value!r}; restore it from a copy")


@dataclass(frozen=True, slots=True)
class PublishedEpoch:
    """One epoch of a target: its rows, and its files relative to the target with their lengths.

    With a rolling policy the files are the parts that the epoch closed, which hold rows of earlier epochs too. So does
    a file that a compaction has joined: it is listed with the last epoch of those it holds. With ``digest=True`` there
    is the digest of the epoch's own rows, and of CSV the line that files may begin with.
    """

    lineage: str
    epoch: int
    generation: int
    offsets: str
    rows: int
    files: tuple[tuple[str, int], ...]
    roll: int = 0  # what was published after the epoch, without rows of its own
    digest: str | None = None
    header: str | None = None
    start: str = ""  # of the generation: copies of a journal have generations of the same number

    @property
    def entry(self) -> str:
        """The name of its file in the manifest, without the ending."""
        return (
            Attempt(self.lineage, self.epoch, self.generation, self.roll).number if self.roll else f"{self.epoch:012d}"
        )

    def encode(self) -> bytes:
        value: dict[str, Json] = {
            "format": FORMAT,
            "lineage": self.lineage,
            "epoch": self.epoch,
            "generation": self.generation,
            "offsets": self.offsets,
            "rows": self.rows,
            "files": [{"path": path, "bytes": length} for path, length in self.files],
            **({"roll": self.roll} if self.roll else {}),
            **({"digest": self.digest} if self.digest is not None else {}),
            **({"header": self.header} if self.header is not None else {}),
            **({"start": self.start} if self.start else {}),
        }
        return json.dumps(value, sort_keys=True, indent=1).encode() + b"\n"

    @staticmethod
    def decode(path: str, data: bytes) -> PublishedEpoch:
        try:
            value = json.loads(data)
            version = value["format"]
            if version == FORMAT:
                files = tuple((visible(str(f["path"])), int(f["bytes"])) for f in value["files"])
                return PublishedEpoch(
                    value["lineage"],
                    value["epoch"],
                    value["generation"],
                    value["offsets"],
                    value["rows"],
                    files,
                    value.get("roll", 0),
                    value.get("digest"),
                    value.get("header"),
                    value.get("start", ""),
                )
        except (ValueError, KeyError, TypeError):
            raise JournalCorrupt(f"{path}: not a manifest of epochal, or torn; restore it from a copy") from None
        raise JournalCorrupt(f"{path}: manifest format {version} is newer than {FORMAT}; run the newer epochal")


def remember(files: Files, layout: Layout, register: Lineages, lineage: str) -> Memory:
    """What the target records of this lineage and of others."""
    # Also lineages whose claims were removed: their epochs are still there.
    published_by = {lineage_from(name) for name in _names(files, layout.manifests)} - {lineage}
    known = dict.fromkeys([*register.others(lineage), *sorted(published_by)])
    others = {other: max(epochs(files, layout, other), default=NO_EPOCH) for other in known}
    own = epochs(files, layout, lineage)
    recent = {epoch: read(files, layout, lineage, epoch).offsets for epoch in own[-RECENT:]}
    last = max(own, default=NO_EPOCH)
    return Memory(
        layout.target,
        lineage in register.claims or bool(own),
        last,
        recent,
        others,
        register.adopted_by(lineage),
        register.claims.get(lineage) if register.holder(lineage) else None,
        register.version,
        identity_of(layout.target),
    )


def holds(files: Files, layout: Layout, lineage: str, epoch: int) -> bool:
    """Whether an epoch is in the manifest."""
    return files.length(join(layout.manifest(lineage), f"{epoch:012d}.json")) is not None


def read(files: Files, layout: Layout, lineage: str, epoch: int) -> PublishedEpoch:
    """One epoch's manifest."""
    return _read(files, join(layout.manifest(lineage), f"{epoch:012d}.json"))


def _read(files: Files, path: str) -> PublishedEpoch:
    return PublishedEpoch.decode(path, files.read(path))


def published(files: Files, target: str) -> Iterator[PublishedEpoch]:
    """Every published epoch of a target, by lineage and epoch, with the files that it published then."""
    layout = Layout(target)
    for name in _names(files, layout.manifests):
        lineage = lineage_from(name)
        for entry in _names(files, layout.manifest(lineage)):
            if Attempt.from_key(lineage, entry.removesuffix(".json")) or entry.removesuffix(".json").isdecimal():
                yield _read(files, join(layout.manifest(lineage), entry))


def entries_after(files: Files, layout: Layout, lineage: str, epoch: int) -> Iterator[PublishedEpoch]:
    """What a lineage has published after an epoch, and in rolls after it, in order."""
    for name in _names(files, layout.manifest(lineage)):
        if name[:12].isdecimal() and (int(name[:12]) > epoch or (int(name[:12]) == epoch and ".r" in name)):
            yield _read(files, join(layout.manifest(lineage), name))


def epochs(files: Files, layout: Layout, lineage: str) -> list[int]:
    """The published epochs of a lineage, in order."""
    names = (n.removesuffix(".json") for n in _names(files, layout.manifest(lineage)))
    return sorted(int(name) for name in names if name.isdecimal())


def _names(files: Files, folder: str) -> list[str]:
    return [name for name in files.names(folder) if not name.startswith(TEMPORARY)]
