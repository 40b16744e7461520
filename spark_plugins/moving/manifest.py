"""The manifest of a savepoint: what it holds, and of which stream. Pure: no I/O, no clock.

It is the last file of a savepoint to be created: without it there is none. Its format is that of the journal's records
(`epochal.txn.codec`), so a torn or changed manifest is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from epochal.txn import codec
from epochal.txn.errors import JournalCorrupt
from epochal.txn.files import checked_relative
from epochal.txn.model import Json

FORMAT = 1
KIND = "savepoint"
SWEPT = "swept"  # instead of a savepoint: nobody may create it any more


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """One file of a checkpoint. Its content is stored under its digest."""

    path: str  # relative to the checkpoint; the journal's are below `epochal/`, wherever it was
    bytes: int
    sha256: str
    modified: float | None = None  # of the original, in seconds since 1970: the next savepoint need not read it again


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPosition:
    """What one sink had at the savepoint."""

    type: str
    target: str
    epoch: int  # the last one that it shows
    rows: int | None = None  # given to it in all that the journal knows of
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A savepoint: one stream at one epoch."""

    name: str
    query: str
    lineage: str
    epoch: int
    generation: int
    checkpoint: str  # where it was taken
    journal: str  # the same for the journal that was in use, as targets know it
    at: str
    driver: Mapping[str, Json] = field(default_factory=dict)  # which process took it, with epochal's version
    versions: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, SinkPosition] = field(default_factory=dict)
    sources: Mapping[str, Json] = field(default_factory=dict)  # where the epoch ends in each, for people
    files: tuple[SavedFile, ...] = ()
    stored: int = 0  # bytes that this savepoint added to the place where it is

    @property
    def bytes(self) -> int:
        """The size of the checkpoint that can be made of it."""
        return sum(file.bytes for file in self.files)

    @property
    def incarnation(self) -> int:
        """Which journal of the query was in use."""
        number = self.lineage.partition("~")[2]
        return int(number) if number else 1


def encode(manifest: Manifest) -> bytes:
    """A manifest as it is written."""
    files: list[Json] = [[f.path, f.bytes, f.sha256, f.modified] for f in manifest.files]
    sinks: dict[str, Json] = {name: asdict(position) for name, position in manifest.sinks.items()}
    return codec.to_bytes(
        {
            "format": FORMAT,
            "kind": KIND,
            "name": manifest.name,
            "query": manifest.query,
            "lineage": manifest.lineage,
            "epoch": manifest.epoch,
            "generation": manifest.generation,
            "checkpoint": manifest.checkpoint,
            "journal": manifest.journal,
            "at": manifest.at,
            "driver": dict(manifest.driver),
            "versions": dict(manifest.versions),
            "sinks": sinks,
            "sources": dict(manifest.sources),
            "files": files,
            "stored": manifest.stored,
        }
    )


def encode_swept(name: str) -> bytes:
    """What takes the manifest's name if a savepoint that was not finished is removed."""
    return codec.to_bytes({"format": FORMAT, "kind": SWEPT, "name": name})


def decode(path: str, data: bytes) -> Manifest | None:
    """The manifest in a file; None if the savepoint was given up. JournalCorrupt that names the file otherwise."""
    record = codec.from_bytes(path, data, version=FORMAT, what="savepoint format")
    if record.get("kind") == SWEPT:
        return None
    try:
        return _manifest(record)
    except (KeyError, TypeError, ValueError) as fault:
        raise JournalCorrupt(f"{path}: not the manifest of a savepoint: {fault!r}; restore it from a copy") from None


def _manifest(record: Mapping[str, Any]) -> Manifest:
    if record["kind"] != KIND:
        raise ValueError(f"kind {record['kind']!r}")
    return Manifest(
        name=str(record["name"]),
        query=str(record["query"]),
        lineage=str(record["lineage"]),
        epoch=int(record["epoch"]),
        generation=int(record["generation"]),
        checkpoint=str(record["checkpoint"]),
        journal=str(record["journal"]),
        at=str(record["at"]),
        driver=dict(record["driver"]),
        versions={str(name): str(version) for name, version in record["versions"].items()},
        sinks={str(name): SinkPosition(**position) for name, position in record["sinks"].items()},
        sources=dict(record["sources"]),
        files=tuple(_file(*file) for file in record["files"]),
        stored=int(record["stored"]),
    )


def _file(path: str, size: int, sha256: str, modified: float | None) -> SavedFile:
    is_digest = len(sha256) == 64 and all(letter in "0123456789abcdef" for letter in sha256)
    if not is_digest or size < 0:
        raise ValueError(f"{path!r}: {size} bytes, digest {sha256!r}")
    return SavedFile(path=checked_relative(path), bytes=size, sha256=sha256, modified=modified)


def known_digests(manifest: Manifest) -> Callable[[str, int, float | None], str | None]:
    """The digest of a file that an earlier savepoint of the same checkpoint has, by path, length and time."""
    known: dict[tuple[str, int, float | None], str] = {(f.path, f.bytes, f.modified): f.sha256 for f in manifest.files}
    return lambda path, size, modified: None if modified is None else known.get((path, size, modified))
