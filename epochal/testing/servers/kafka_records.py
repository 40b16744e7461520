"""Kafka's record batches, format 2, uncompressed and without transactions: enough to send and to read messages.

A batch is: first offset, length, leader epoch, format, CRC-32C of all that follows, attributes, last offset delta, two
timestamps, producer id, epoch and sequence, number of records, records. Numbers in records have a variable length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FORMAT = 2
NOBODY = -1  # producer id, epoch and sequence of a producer that is neither idempotent nor transactional
HEAD = struct.Struct(">qiibI")
BODY = struct.Struct(">hiqqqhii")
COMPRESSED, CONTROL = 0b111, 0b100000  # bits of the attributes


@dataclass(frozen=True, slots=True)
class Record:
    """A message of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def encode(messages: Sequence[tuple[bytes | None, bytes | None]], timestamp: int) -> bytes:
    """A batch of messages, each a key and a value. The timestamp is in milliseconds."""
    records = b"".join(_record(number, key, value) for number, (key, value) in enumerate(messages))
    count = len(messages)
    body = BODY.pack(0, count - 1, timestamp, timestamp, NOBODY, NOBODY, NOBODY, count) + records
    return HEAD.pack(0, len(body) + HEAD.size - 12, NOBODY, FORMAT, crc32c(body)) + body


def decode(data: bytes, partition: int) -> Iterator[Record]:
    """The messages in what a broker returned. A batch that is cut off at the end is left out, as brokers expect."""
    at = 0
    while at + HEAD.size + BODY.size <= len(data):
        first, length, _, format_, check = HEAD.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data):
            return
        body = data[at + HEAD.size : end]
        if format_ != FORMAT or crc32c(body) != check:
            raise ValueError(f"a batch at offset {first} of partition {partition} is damaged or has format {format_}")
        attributes, *_, count = BODY.unpack_from(body)
        if attributes & COMPRESSED:
            raise ValueError(f"the batch at offset {first} of partition {partition} is compressed; this cannot read it")
        if not attributes & CONTROL:  # the end of a transaction is no message
            yield from _records(body, partition, first, count)
        at = end


def _records(body: bytes, partition: int, first: int, count: int) -> Iterator[Record]:
    at = BODY.size
    for _ in range(count):
        length, at = _number(body, at)
        end = at + length
        _, at = _number(body, at + 1)  # after the attributes: the timestamp
        delta, at = _number(body, at)
        key, at = _bytes(body, at)
        value, at = _bytes(body, at)
        yield Record(partition, first + delta, key, value)
        at = end


def _record(number: int, key: bytes | None, value: bytes | None) -> bytes:
    body = b"\0" + varint(0) + varint(number) + _with_length(key) + _with_length(value) + varint(0)
    return varint(len(body)) + body


def _with_length(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def varint(number: int) -> bytes:
    """A number of variable length, with its sign in the lowest bit.

    >>> [varint(number).hex() for number in (0, -1, 1, 300)]
    ['00', '01', '02', 'd804']
    """
    rest = (number << 1) ^ (number >> 63)
    coded = bytearray()
    while rest > 0x7F:
        coded.append(rest & 0x7F | 0x80)
        rest >>= 7
    coded.append(rest)
    return bytes(coded)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where the next one begins."""
    rest = shift = 0
    while True:
        byte = data[at]
        at += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _number(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC-32.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = tuple(_entry(value) for value in range(256))
