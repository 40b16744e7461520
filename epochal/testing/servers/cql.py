"""Enough of Cassandra's native protocol, version 4, to check that a server answers. No driver is needed.

A frame is: version, flags, stream (2 bytes), opcode, length of the body (4 bytes), body.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from enum import IntEnum

VERSION = 4
HEAD = struct.Struct(">BBhBI")
TIMEOUT = 5.0
# The user that a new cluster with passwords has.
DEFAULT_USER = DEFAULT_PASSWORD = b"cassandra"


class Opcode(IntEnum):
    """Of requests and of answers."""

    ERROR = 0x00
    STARTUP = 0x01
    READY = 0x02
    AUTHENTICATE = 0x03
    QUERY = 0x07
    RESULT = 0x08
    AUTH_RESPONSE = 0x0F
    AUTH_SUCCESS = 0x10


class Consistency(IntEnum):
    """How many replicas must answer."""

    ONE = 0x01
    ALL = 0x05


def speaks_tls(host: str, port: int) -> bool:
    """Whether a TLS server answers, even one that requires client certificates.

    A published port of a container accepts connections before the server listens.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError:
        return True  # it answered with a TLS alert
    except OSError:
        return False


def answers(
    host: str,
    port: int,
    query: str = "SELECT release_version FROM system.local",
    consistency: Consistency = Consistency.ONE,
    *,
    tls: bool = False,
    log_in: bool = False,
) -> bool:
    """Whether the server answers a query.

    If the server asks for a password, that counts as an answer, unless `log_in` is set: then the default user logs in.
    """
    try:
        with _connected(host, port, tls=tls) as stream:
            opcode = _ask(stream, Opcode.STARTUP, _startup())
            if opcode == Opcode.AUTHENTICATE:
                if not log_in:
                    return True
                token = b"\0" + DEFAULT_USER + b"\0" + DEFAULT_PASSWORD
                opcode = _ask(stream, Opcode.AUTH_RESPONSE, struct.pack(">i", len(token)) + token)
            if opcode not in (Opcode.READY, Opcode.AUTH_SUCCESS):
                return False
            return _ask(stream, Opcode.QUERY, _query(query, consistency)) == Opcode.RESULT
    except OSError:
        return False


@contextlib.contextmanager
def _connected(host: str, port: int, *, tls: bool) -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=TIMEOUT) as plain:
        if not tls:
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # only checks that it is up: no secret is sent, no data is used
        with context.wrap_socket(plain) as secure:
            yield secure


def _startup() -> bytes:
    key, value = b"CQL_VERSION", b"3.0.0"
    return struct.pack(">HH", 1, len(key)) + key + struct.pack(">H", len(value)) + value


def _query(text: str, consistency: Consistency) -> bytes:
    encoded = text.encode()
    return struct.pack(">I", len(encoded)) + encoded + struct.pack(">HB", consistency, 0)


def _ask(stream: socket.socket, opcode: Opcode, body: bytes) -> int:
    stream.sendall(HEAD.pack(VERSION, 0, 0, opcode, len(body)) + body)
    *_, answer, length = HEAD.unpack(_read(stream, HEAD.size))
    _read(stream, length)
    return int(answer)


def _read(stream: socket.socket, length: int) -> bytes:
    read = b""
    while len(read) < length:
        more = stream.recv(length - len(read))
        if not more:
            raise ConnectionError("the server closed the connection")
        read += more
    return read
