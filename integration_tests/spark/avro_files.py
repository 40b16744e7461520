"""Avro files read with plain Python, by the description of the format: a head, then blocks of rows."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa


def head_of(file: Path) -> dict[str, bytes]:
    """What a file says about itself: schema, codec, and the writer's own notes."""
    return _Bytes(file.read_bytes()).head()


def blocks_of(file: Path) -> list[tuple[int, bytes]]:
    """The blocks as they are, each with its number of rows; each must be whole and end with the mark of the file."""
    data = _Bytes(file.read_bytes())
    data.head()
    mark = data.take(16)
    found = []
    while data.left():
        count, size = data.number(), data.number()
        found.append((count, data.take(size)))
        assert data.take(16) == mark, file
    return found


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows, if they are made of numbers and texts."""
    head = head_of(file)
    schema, codec = json.loads(head["avro.schema"]), head["avro.codec"].decode()
    rows = []
    for count, packed in blocks_of(file):
        block = _Bytes(_unpacked(packed, codec))
        rows += [block.value(schema) for _ in range(count)]
        assert block.left() == 0, file
    return rows


class _Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        assert self.left() >= count, "the file ends too early"
        self._at += count
        return self._data[self._at - count : self._at]

    def head(self) -> dict[str, bytes]:
        assert self.take(4) == b"Obj\x01"
        found = {}
        while count := self.number():
            for _ in range(count):
                name = self.take(self.number()).decode()
                found[name] = self.take(self.number())
        return found

    def number(self) -> int:
        """Seven bits a byte, the lowest first; the sign is the lowest bit of all."""
        shift = found = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    def value(self, kind: Any) -> Any:
        if isinstance(kind, list):
            return self.value(kind[self.number()])
        if kind == "null":
            return None
        if kind == "long":
            return self.number()
        if kind == "string":
            return self.take(self.number()).decode()
        assert kind["type"] == "record", kind
        return {field["name"]: self.value(field["type"]) for field in kind["fields"]}


def _unpacked(data: bytes, codec: str) -> bytes:
    if codec == "snappy":
        plain, checksum = data[:-4], data[-4:]
        found: bytes = pa.decompress(plain, decompressed_size=_snappy_size(plain), codec="snappy", asbytes=True)
        assert zlib.crc32(found).to_bytes(4, "big") == checksum
        return found
    if codec == "deflate":
        return zlib.decompress(data, wbits=-15)
    assert codec == "null", codec
    return data


def _snappy_size(data: bytes) -> int:
    size = 0
    for place, byte in enumerate(data):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return size
