"""Batches that are bytes already: on the wire they are the driver's own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cassandra import ConsistencyLevel
from cassandra.protocol import BatchMessage, ProtocolHandler
from cassandra.query import UNSET_VALUE, BatchType

from epochal.sinks.cassandra.cluster.batches import EncodedBatch, Handler
from epochal.sinks.cassandra.commit.entries import head, value, values
from epochal.sinks.cassandra.stage.encoding import packed

ID = b"0123456789abcdef"
STAMP = b"\0\0\0\0\0\0\0\7"
ROWS = [(b"ab", None, b""), (b"c", b"d" * 300, None)]


def encoded(handler: type[ProtocolHandler], message: BatchMessage) -> bytes:
    made: bytes = handler.encode_message(message, 5, 5, compressor=None, allow_beta_protocol_version=False)
    return made


@pytest.mark.parametrize("unset", [False, True])
def test_they_are_byte_for_byte_what_the_driver_would_send(unset: bool) -> None:
    absent = UNSET_VALUE if unset else None
    statements = [(True, ID, [absent if v is None else v for v in row] + [STAMP]) for row in ROWS]
    columns = [pa.array(column, pa.binary()) for column in zip(*ROWS, strict=True)]
    entries = [head(ID, 4) + row + value(STAMP) for row in packed(columns, unset=unset).to_pylist()]
    batch = EncodedBatch(entries, "shop", b"key")
    theirs, ours = (
        BatchMessage(BatchType.UNLOGGED, queries, ConsistencyLevel.LOCAL_QUORUM, keyspace="shop")
        for queries in (statements, batch._statements_and_parameters)
    )

    assert encoded(Handler, ours) == encoded(ProtocolHandler, theirs)
    assert (batch.routing_key, batch.keyspace, batch.batch_type) == (b"key", "shop", BatchType.UNLOGGED)


def test_other_messages_are_left_to_the_driver() -> None:
    plain = BatchMessage(BatchType.LOGGED, [(False, "INSERT", ())], ConsistencyLevel.ONE)

    assert encoded(Handler, plain) == encoded(ProtocolHandler, plain)


def test_values_come_out_of_a_row_as_they_went_in() -> None:
    columns = [pa.array(column, pa.binary()) for column in zip(*ROWS, strict=True)]

    assert [tuple(values(row)) for row in packed(columns).to_pylist()] == ROWS
