"""Batches of rows that are already encoded: the driver only adds the frame around them.

To bind, check and encode row by row would be most of a client's work. Rows are staged as the protocol
carries them, so a batch is a concatenation of bytes. The session's protocol handler encodes messages, so a handler
of our own passes these bytes on.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

from cassandra.protocol import BatchMessage, ProtocolHandler
from cassandra.query import BatchStatement, BatchType


class EncodedBatch(BatchStatement):  # type: ignore[misc]
    """An unlogged batch of encoded entries, sent to a replica of the first one's partition."""

    def __init__(self, entries: Sequence[bytes], keyspace: str, key: bytes) -> None:
        super().__init__(BatchType.UNLOGGED)
        self._statements_and_parameters = Entries(entries)
        self.keyspace, self.routing_key = keyspace, key


class Entries(tuple[bytes, ...]):
    """Encoded entries; a type of their own, so that `Handler` recognises them."""

    __slots__ = ()


class Handler(ProtocolHandler):  # type: ignore[misc]
    """The driver's handler, which also sends `EncodedBatch`."""

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
