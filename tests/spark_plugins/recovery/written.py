"""Checkpoints with state, written by hand as Spark writes them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
QUERY = "00000000-0000-0000-0000-000000000001"
Record = tuple[bytes, bytes | None]


def lz4(content: bytes, *, size: int = 100) -> bytes:
    """Frames of lz4 with blocks that are stored as they are."""
    blocks = [content[at : at + size] for at in range(0, len(content), size)]
    frames = [
        b"LZ4Block\x15" + struct.pack("<ii", len(block), len(block)) + b"\0\0\0\0" + block for block in blocks if block
    ]
    return b"".join([*frames, b"LZ4Block\x15" + struct.pack("<ii", 0, 0) + b"\0\0\0\0"])


def untagged(records: Sequence[Record]) -> bytes:
    """A delta, a snapshot of HDFSBacked, or a changelog of the older layout."""
    parts = []
    for key, value in records:
        parts += [
            struct.pack(">i", len(key)),
            key,
            struct.pack(">i", -1 if value is None else len(value)),
            value or b"",
        ]
    return b"".join([*parts, struct.pack(">i", -1)])


def tagged(records: Sequence[Record]) -> bytes:
    """A changelog of a store with column families."""
    parts = [b"\x00\x02v2"]
    for key, value in records:
        kind = b"\x10" if value is None else b"\x01"
        size = struct.pack(">i", -1 if value is None else len(value))
        parts += [kind, struct.pack(">i", len(key)), key, size, value or b""]
    return b"".join([*parts, b"\x00"])


def with_lineage(content: bytes, line: Sequence[tuple[int, str]]) -> bytes:
    """The same in checkpoint format 2."""
    text = json.dumps([{"version": version, "checkpointUniqueId": unique} for version, unique in line]).encode()
    return b"\x00\x02v3" + struct.pack(">H", len(text)) + text + content


def archive(rows: int, files: Mapping[str, int], families: Sequence[str] = ()) -> bytes:
    """A snapshot of RocksDB."""
    value = {
        "sstFiles": [{"localFileName": n[:6], "dfsSstFileName": n, "sizeBytes": size} for n, size in files.items()],
        "numKeys": rows,
        "columnFamilyMapping": {family: number for number, family in enumerate(families)},
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        made.writestr("metadata", b"v1\n" + json.dumps(value).encode())
        made.writestr("CURRENT", b"MANIFEST-000005\n")
    return held.getvalue()


class Written:
    """A checkpoint in a folder."""

    def __init__(
        self, root: Path, provider: str = ROCKSDB, codec: str = "lz4", query: str = QUERY, *, partitions: int = 2
    ) -> None:
        self.root = root
        self._plan = {
            "batchWatermarkMs": 0,
            "conf": {
                "spark.sql.streaming.stateStore.providerClass": provider,
                "spark.sql.streaming.stateStore.compression.codec": codec,
                "spark.sql.shuffle.partitions": str(partitions),
            },
        }
        self.put("metadata", json.dumps({"id": query}).encode())

    @property
    def path(self) -> str:
        return str(self.root)

    def put(self, name: str, data: bytes) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def operator(self, number: int = 0, name: str = "stateStoreSave", stores: Sequence[str] = ("default",)) -> None:
        value: dict[str, Any] = {
            "operatorInfo": {"operatorId": number, "operatorName": name},
            "stateStoreInfo": [{"storeName": store, "numColsPrefixKey": 0, "numPartitions": 2} for store in stores],
        }
        self.put(f"state/{number}/_metadata/metadata", b"v1\n" + json.dumps(value).encode())

    def commit(self, epoch: int, unique: Mapping[str, Any] | None = None) -> None:
        self.put(f"offsets/{epoch}", b"v1\n" + json.dumps(self._plan).encode() + b'\n{"logOffset":0}')
        value = {"nextBatchWatermarkMs": 0} | ({} if unique is None else {"stateUniqueIds": dict(unique)})
        self.put(f"commits/{epoch}", b"v1\n" + json.dumps(value).encode())


def rows(first: int, last: int) -> list[Record]:
    """Puts of numbered keys."""
    return [(number.to_bytes(8, "big"), b"value") for number in range(first, last)]


def stateful(root: Path, query: str = QUERY) -> Written:
    """A query whose state is two partitions, one larger than the other, with a version to replay."""
    written = Written(root, query=query)
    written.operator()
    written.commit(2)
    for partition, size in ((0, 10), (1, 30)):
        written.put(f"state/0/{partition}/2.zip", archive(size, {"a.sst": 1000}))
        written.put(f"state/0/{partition}/3.changelog", lz4(untagged(rows(0, size))))
    return written
