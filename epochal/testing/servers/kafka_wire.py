"""Enough of Kafka's protocol to check that a broker answers, to make topics, and to send and read messages.

No client library is needed. A request is its length, api, version, a number and the client's name, then the body; an
answer is its length, the same number, then the body. The versions are the oldest that brokers from 3.x to 4.x share.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

from epochal.testing.servers.errors import ServerFailed

TIMEOUT = 10.0  # seconds for one answer
CLIENT = "epochal"
NULL = -1
LARGEST = 64 * 1024 * 1024  # bytes of an answer
Item = TypeVar("Item")
Address = tuple[str, int]


class Api(IntEnum):
    """Requests, by their numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20


VERSIONS = {
    Api.PRODUCE: 3,
    Api.FETCH: 4,
    Api.LIST_OFFSETS: 1,
    Api.METADATA: 4,
    Api.CREATE_TOPICS: 2,
    Api.DELETE_TOPICS: 1,
}


class Code(IntEnum):
    """The errors that a client handles or that a test may meet; others are shown by their number."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_TOPIC = 17


class KafkaRefused(ServerFailed):
    """A broker answered with an error."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = code
        name = next((known.name for known in Code if known == code), f"error {code}")
        super().__init__(f"{what}: {name}" + (f": {message}" if message else ""))


class Answer:
    """Reads the fields of an answer, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, format_: str) -> int:
        """A number in the format of `struct`: b, h, i or q."""
        (value,) = struct.unpack_from(f">{format_}", self._data, self._at)
        self._at += struct.calcsize(format_)
        return int(value)

    def text(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self._bytes(length).decode()

    def data(self) -> bytes:
        """Bytes; none for null."""
        return self._bytes(max(self.number("i"), 0))

    def items(self, item: Callable[[Answer], Item]) -> list[Item]:
        """A list; empty for null."""
        return [item(self) for _ in range(max(self.number("i"), 0))]

    def _bytes(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]


def text(value: str | None) -> bytes:
    """A text with its length."""
    coded = (value or "").encode()
    return struct.pack(">h", NULL) if value is None else struct.pack(">h", len(coded)) + coded


def data(value: bytes) -> bytes:
    """Bytes with their length."""
    return struct.pack(">i", len(value)) + value


def items(*coded: bytes) -> bytes:
    """A list with its length."""
    return struct.pack(">i", len(coded)) + b"".join(coded)


def ask(address: Address, api: Api, body: bytes, timeout: float = TIMEOUT) -> Answer:
    """Ask once, over a connection of its own: a broker that was restarted in between is no special case."""
    head = struct.pack(">hhi", api, VERSIONS[api], 0) + text(CLIENT)
    with socket.create_connection(address, timeout=timeout) as stream:
        stream.sendall(data(head + body))
        (length,) = struct.unpack(">i", _read(stream, 4))
        if not 4 <= length <= LARGEST:
            raise ConnectionError(f"{address[0]}:{address[1]} does not speak Kafka's protocol")
        return Answer(_read(stream, length)[4:])


def ask_any(addresses: Sequence[Address], api: Api, body: bytes) -> Answer:
    """Ask the first of several brokers that answers. Raises `ServerFailed` if none does."""
    faults = []
    for address in addresses:
        try:
            return ask(address, api, body)
        except OSError as fault:
            faults.append(f"{address[0]}:{address[1]}: {fault}")
    raise ServerFailed(f"no broker answers: {'; '.join(faults)}")


def _read(stream: socket.socket, length: int) -> bytes:
    read = bytearray()
    while len(read) < length:
        more = stream.recv(length - len(read))
        if not more:
            raise ConnectionError("the broker closed the connection")
        read += more
    return bytes(read)
