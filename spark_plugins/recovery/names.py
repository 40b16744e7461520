"""The names of the files in which Spark's state stores keep their versions.

::

    state/<operator>/<partition>/7.delta 7.snapshot          HDFSBackedStateStoreProvider
    state/<operator>/<partition>/7.changelog 7.zip SSTs/     RocksDBStateStoreProvider
    state/<operator>/<partition>/7_<unique id>.zip           the same in checkpoint format 2
    state/<operator>/<partition>/<store>/...                 the four stores of a stream-stream join
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_NAME = re.compile(r"(0|[1-9][0-9]{0,17})(?:_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))?\.([a-z]+)")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class Provider(Enum):
    """Who writes a state store."""

    HDFS_BACKED = "HDFSBacked"  # in the memory of the JVM; Spark's default
    ROCKSDB = "RocksDB"


class Part(Enum):
    """What a file holds: by its ending."""

    DELTA = "delta"
    SNAPSHOT = "snapshot"
    CHANGELOG = "changelog"
    ZIP = "zip"

    @property
    def is_snapshot(self) -> bool:
        """Whether it holds the whole version, and not only what the version changed."""
        return self in (Part.SNAPSHOT, Part.ZIP)

    @property
    def provider(self) -> Provider:
        return Provider.ROCKSDB if self in (Part.CHANGELOG, Part.ZIP) else Provider.HDFS_BACKED


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """One version of a store: its number, and in checkpoint format 2 the id of the attempt that wrote it."""

    number: int
    unique: str | None = None


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A file of one version, by its name."""

    version: Version
    part: Part

    @property
    def name(self) -> str:
        """The name, as Spark spells it."""
        unique = "" if self.version.unique is None else f"_{self.version.unique}"
        return f"{self.version.number}{unique}.{self.part.value}"


def parse(name: str) -> VersionFile | None:
    """What a name says; None for any other file.

    >>> parse("7.changelog")
    VersionFile(version=Version(number=7, unique=None), part=<Part.CHANGELOG: 'changelog'>)
    >>> parse(".7.changelog.crc"), parse("_metadata"), parse("07.zip")
    (None, None, None)
    """
    match = _NAME.fullmatch(name)
    if match is None or not name.isascii():
        return None
    number, unique, ending = match.groups()
    try:
        part = Part(ending)
    except ValueError:
        return None
    return VersionFile(Version(int(number), unique), part)


def number(name: str) -> int | None:
    """The number of an operator or a partition, by the name of its folder; None for any other folder.

    >>> number("12"), number("_metadata"), number("01")
    (12, None, None)
    """
    return int(name) if name.isascii() and _NUMBER.fullmatch(name) else None
