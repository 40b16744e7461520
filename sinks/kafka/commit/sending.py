"""Sends the staged rows of an epoch in a transaction that is open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from epochal.participant import DataLost
from epochal.sinks.kafka.cluster.transactions import Transactional
from epochal.sinks.kafka.layout import HEADERS, KEY, PARTITION, TIME, TOPIC, VALUE

if TYPE_CHECKING:
    import pyarrow as pa

ANY = -1  # the partition that the key gives
NOW = 0


def send(to: Transactional, batches: Iterable[pa.RecordBatch], topic: str, headers: Sequence[tuple[str, bytes]]) -> int:
    """Send all rows, in their order. Returns how many. `topic` is that of rows which do not name one."""
    # One by one: the client's call for many was no faster where it was tried, and takes neither headers nor times.
    sent = 0
    produce = to.producer.produce
    for batch in batches:
        if not {KEY, VALUE} <= {*batch.schema.names}:  # else messages would be sent without
            raise DataLost(f"a staged file has the columns {batch.schema.names}: another program has changed it")
        plain = {*batch.schema.names} <= {KEY, VALUE} and not headers
        with to.errors("send the epoch's messages"):
            if plain:
                for key, value in zip(_values(batch, KEY), _values(batch, VALUE), strict=True):
                    produce(topic, value, key)
            else:
                for name, key, value, own, partition, time in _rows(batch, topic):
                    named = [*((header["key"], header["value"]) for header in own or ()), *headers]
                    place, at = (ANY if partition is None else partition), (NOW if time is None else time)
                    produce(name, value, key, partition=place, timestamp=at, headers=named)
        sent += batch.num_rows
        to.make_room()
    return sent


def _rows(batch: pa.RecordBatch, topic: str) -> Iterable[tuple[Any, ...]]:
    names = (TOPIC, KEY, VALUE, HEADERS, PARTITION, TIME)
    present = batch.schema.names
    columns = [
        _values(batch, name) if name in present else repeat(topic if name == TOPIC else None, batch.num_rows)
        for name in names
    ]
    return zip(*columns, strict=True)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    values: list[Any] = batch.column(name).to_pylist()
    return values
