"""Batches of rows that are bytes already: the driver puts the frame around them, and that is all it does.

To bind, check and encode row by row would be most of a client's work. Rows are staged as the protocol
carries them, so a batch is a join of bytes. The driver lets a session's protocol handler encode messages,
which is where this comes in.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

from cassandra.protocol import BatchMessage, ProtocolHandler
from cassandra.query import BatchStatement, BatchType


class EncodedBatch(BatchStatement):  # type: ignore[misc]
    """An unlogged batch of entries that are encoded, to a replica of the first one's partition."""

    def __init__(self, entries: Sequence[bytes], keyspace: str, key: bytes) -> None:
        super().__init__(BatchType.UNLOGGED)
        self._statements_and_parameters = Entries(entries)
        self.keyspace, self.routing_key = keyspace, key


class Entries(tuple[bytes, ...]):
    """Told from the driver's own lists by its type."""

    __slots__ = ()


class Handler(ProtocolHandler):  # type: ignore[misc]
    """The driver's, which also knows batches of ours."""

    @classmethod
    def encode_message(cls, msg: Any, *args: Any, **options: Any) -> Any:
        if isinstance(msg, BatchMessage) and isinstance(msg.queries, Entries):
            msg = _Message(msg)
        return super().encode_message(msg, *args, **options)


class _Message(BatchMessage):  # type: ignore[misc]
    def __init__(self, of: BatchMessage) -> None:
        self.__dict__.update(of.__dict__)
        self._entries = Entries(of.queries)
        self.queries = ()

    def send_body(self, f: Any, protocol_version: int) -> None:
        frame = io.BytesIO()
        super().send_body(frame, protocol_version)  # kind of batch, number of entries, what comes after them
        kind, rest = frame.getvalue()[:1], frame.getvalue()[3:]
        f.write(kind + struct.pack(">H", len(self._entries)))
        f.write(b"".join(self._entries))
        f.write(rest)
