"""Decodes what Spark stores beside its state: operators, a snapshot's list of files, an epoch's settings.

Pure: bytes in, types out. ValueError for what Spark did not write.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from epochal.spark_plugins.recovery.names import Provider, Version

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CODEC = "spark.sql.streaming.stateStore.compression.codec"
PARTITIONS = "spark.sql.shuffle.partitions"
JOIN = "symmetricHashJoin"
ROWS_OF_JOIN = "keyWithIndexToValue"  # the stores of a join that hold its rows; the others count them
_LARGEST_METADATA = 64 << 20
_DIGITS = 9  # of a number of partitions


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """A stateful operator: ``state/<operator>/_metadata/``."""

    operator: int
    name: str
    stores: tuple[str, ...]
    partitions: int
    variables: tuple[str, ...] = ()  # of transformWithState

    def holds_rows(self, store: str) -> bool:
        """Whether a store's keys are the rows that Spark reports for the operator."""
        return self.name != JOIN or store.endswith(ROWS_OF_JOIN)


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """What ``N.zip`` says, beside which its files lie: ``SSTs/…``, ``logs/…``."""

    rows: int | None  # None if the store does not count them
    files: Mapping[str, int] = field(default_factory=dict)  # name, with that folder -> bytes
    families: tuple[str, ...] = ()  # column families, one for each state variable

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class EpochSettings:
    """What ``offsets/N`` says of how its epoch keeps state."""

    provider: Provider | None = None
    codec: str = "lz4"
    partitions: int | None = None


def operator(data: bytes) -> OperatorMetadata:
    """An operator's metadata, of either version."""
    value = _after_version(data)
    with _as_value_error("operator metadata"):
        info, stores = value["operatorInfo"], value["stateStoreInfo"]
        properties = json.loads(value.get("operatorPropertiesJson") or "{}")
        return OperatorMetadata(
            operator=int(info["operatorId"]),
            name=str(info["operatorName"]),
            stores=tuple(str(store["storeName"]) for store in stores),
            partitions=max((int(store["numPartitions"]) for store in stores), default=0),
            variables=tuple(str(one["stateName"]) for one in properties.get("stateVariables", ())),
        )


def snapshot(data: bytes) -> SnapshotContents:
    """The list of files in ``N.zip``."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if archive.getinfo("metadata").file_size > _LARGEST_METADATA:
                raise ValueError("its list of files is too large")
            value = _after_version(archive.read("metadata"))
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as fault:
        raise ValueError(f"not a snapshot of RocksDB: {fault}") from None
    with _as_value_error("snapshot"):
        files = {f"SSTs/{file['dfsSstFileName']}": int(file["sizeBytes"]) for file in value.get("sstFiles") or ()}
        files |= {f"logs/{file['dfsLogFileName']}": int(file["sizeBytes"]) for file in value.get("logFiles") or ()}
        rows = int(value.get("numKeys", -1))
        return SnapshotContents(
            rows if rows >= 0 else None, files, tuple(sorted(value.get("columnFamilyMapping") or ()))
        )


def settings(data: bytes) -> EpochSettings:
    """The settings in ``offsets/N``; defaults for what it does not say."""
    try:
        conf = json.loads(data.split(b"\n")[1]).get("conf", {})
    except (IndexError, ValueError, AttributeError, RecursionError):
        return EpochSettings()
    name = str(conf.get(PROVIDER, ""))
    provider = Provider.ROCKSDB if "RocksDB" in name else Provider.HDFS_BACKED if "HDFSBacked" in name else None
    partitions = str(conf.get(PARTITIONS, ""))
    is_number = partitions.isdecimal() and len(partitions) <= _DIGITS
    return EpochSettings(provider, str(conf.get(CODEC, "lz4")), int(partitions) if is_number else None)


def unique_ids(data: bytes) -> dict[int, tuple[frozenset[str], ...]]:
    """In ``commits/N`` of checkpoint format 2: operator -> the ids of each partition's stores. Empty in format 1."""
    try:
        ids = json.loads(data.split(b"\n")[1]).get("stateUniqueIds") or {}
        return {int(key): tuple(frozenset(map(str, partition)) for partition in own) for key, own in ids.items()}
    except (IndexError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def lineage(text: str) -> tuple[Version, ...]:
    """The versions before a changelog of format 2, back to a snapshot, oldest first."""
    with _as_value_error("lineage"):
        return tuple(Version(int(one["version"]), str(one["checkpointUniqueId"])) for one in json.loads(text))


def _after_version(data: bytes) -> dict[str, Any]:
    """The JSON after the first line, which has the version of the format."""
    version, _, rest = data.partition(b"\n")
    if not version.startswith(b"v"):
        raise ValueError("not a metadata file of Spark: it does not begin with a version")
    with _as_value_error("metadata file"):
        return dict(json.loads(rest))


@contextmanager
def _as_value_error(what: str) -> Iterator[None]:
    """JSON of another shape is a ValueError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise ValueError(f"not a {what} of Spark: {fault!r}") from None
