"""What a frame becomes in a table: its shape, and until when its rows live. Refused if it does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochal.sinks.cassandra.cluster.connection import ClusterSession
from epochal.sinks.cassandra.cluster.faults import translated
from epochal.sinks.cassandra.cluster.limits import day, largest_row, latest_expiry
from epochal.sinks.cassandra.layout import PARTS
from epochal.sinks.cassandra.options import CassandraOptions
from epochal.sinks.cassandra.stage import frames
from epochal.sinks.cassandra.stage.rows import Shape
from epochal.sinks.cassandra.table import Table, misfits, unfit_totals, unsortable
from epochal.txn.errors import BadRows, Refused


def faults_of(table: Table, schema: Mapping[str, Any], options: CassandraOptions) -> list[str]:
    """What is wrong with a frame's columns."""
    kept = _kept(schema, options)
    faults = unfit_totals(table, kept, options) if options.mode == "accumulate" else misfits(table, kept)
    return faults + unsortable(schema, options.order_by)


def _kept(schema: Mapping[str, Any], options: CassandraOptions) -> dict[str, Any]:
    """The columns that are written, or added up."""
    return {**schema, "fields": [f for f in schema["fields"] if f["name"] not in options.drop]}


def shape_of(
    connection: ClusterSession, table: Table, schema: Mapping[str, Any], options: CassandraOptions
) -> tuple[Shape, int | None]:
    """The shape of a frame's rows, and when they expire if they bring no time of their own."""
    adds = options.mode == "accumulate"
    if faults := faults_of(table, schema, options):
        lines = "".join(f"\n  - {fault}" for fault in faults)
        raise BadRows(
            f"the frame does not fit the table {table.keyspace}.{table.name}:{lines}\nNothing of the epoch was written"
        )
    # The table's own default would start again with each repeat, so it is sent as a time too.
    ttl = options.lifetime or (None if adds else table.default_ttl or None)
    staged_at, latest = _times(connection, table) if ttl or options.expires_at is not None else (0, 0)
    expiry = None if ttl is None else staged_at + ttl
    if expiry is not None and expiry > latest:
        raise Refused(
            f"rows that live for {ttl} seconds expire after {day(latest)}, which this server cannot hold. Nothing was "
            "written. Set a shorter ttl"
        )
    names = (
        [*table.key, *options.total_columns] if adds else [field["name"] for field in _kept(schema, options)["fields"]]
    )
    most = options.tuning.max_row_bytes
    shape = Shape(
        kinds={name: table.columns[name] for name in names},
        partition_key=table.partition_key,
        clustering_key=table.clustering_key,
        order=tuple(f"{frames.ORDER}{n}" for n in range(len(options.order_by))),
        truncate=options.timestamps == "truncate",
        max_row_bytes=min(most, largest_row(connection) or most),
        deletes=options.delete_when is not None,
        expires=options.expires_at is not None,
        latest=latest,
        unset=options.nulls == "unset",
        accumulates=adds,
    )
    return shape, expiry


def _times(connection: ClusterSession, table: Table) -> tuple[int, int]:
    """From when rows live, by the server's clock, and until when at most."""
    try:
        now = int(connection.clock()())
    except Exception as fault:
        raise translated(fault, "the server's clock") from fault
    return now, latest_expiry(connection, table.keyspace, PARTS, now)
