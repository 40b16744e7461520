"""The statements of an epoch. Names are quoted; values are always bound, never spelled into the text."""

from __future__ import annotations

from collections.abc import Sequence

from epochal.sinks.cassandra.cluster.cql import quoted
from epochal.sinks.cassandra.commit.totals import Adding
from epochal.sinks.cassandra.commit.writer import Plan
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.standing import maker_of
from epochal.txn.model import Attempt


def plan(keyspace: str, table: str, epoch: StagedEpoch, in_flight: int, batch_rows: int) -> Plan:
    """How the rows of an epoch are written."""
    into = f"{quoted(keyspace)}.{quoted(table)}"
    where = " AND ".join(f"{quoted(name)} = ?" for name in epoch.key)
    expiring = epoch.expires or epoch.expiry is not None
    written = [*epoch.columns, epoch.mark] if epoch.mode == "accumulate" else [*epoch.columns]
    names = ", ".join(map(quoted, written))
    using = "USING TIMESTAMP ? AND TTL ?" if expiring else "USING TIMESTAMP ?"
    delete = f"DELETE FROM {into} USING TIMESTAMP ? WHERE {where}"
    others = [quoted(name) for name in epoch.columns if name not in epoch.key]
    forget = delete if epoch.whole or not others else f"DELETE {', '.join(others)} {delete.removeprefix('DELETE ')}"
    return Plan(
        keyspace=keyspace,
        insert=f"INSERT INTO {into} ({names}) VALUES ({', '.join('?' * len(written))}) {using}",
        delete=delete,
        forget=forget,
        columns=epoch.columns,
        key=epoch.key,
        stamp=epoch.stamp,
        expiry=epoch.expiry,
        expiring=expiring,
        in_flight=in_flight,
        batch_rows=batch_rows,
    )


def adding(keyspace: str, table: str, epoch: StagedEpoch, chain: Sequence[str], attempt: Attempt) -> Adding:
    """How the rows of an epoch are added to what is there."""
    where = " AND ".join(f"{quoted(name)} = ?" for name in epoch.key)
    # In the order of the columns: the journal keeps no order of names.
    totals = {name: epoch.totals[name] for name in epoch.columns if name in epoch.totals}
    names = ", ".join(map(quoted, [*totals, epoch.mark]))
    return Adding(
        select=f"SELECT {names} FROM {quoted(keyspace)}.{quoted(table)} WHERE {where}",
        totals=totals,
        limits=epoch.limits,
        lineages=tuple(chain),
        epoch=attempt.epoch,
        maker=maker_of(attempt),
    )
