"""What a server can hold, asked of the server itself while an epoch is staged: a commit must not find out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from epochal.sinks.cassandra.cluster.connection import ClusterSession
from epochal.sinks.cassandra.cluster.cql import quoted
from epochal.sinks.cassandra.cluster.faults import is_away, translated

DAY = 86_400
LONGEST_TTL = 20 * 365 * DAY  # seconds; Cassandra's own limit
# Where times of expiry have 32 bits, as in servers before 5.0 and in those that keep to their formats. A day less, for
# clocks of nodes that differ.
LAST_SECOND = (1 << 31) - 2 - DAY
SIZES = ("max_mutation_size", "max_mutation_size_in_kb", "native_transport_max_frame_size")
UNITS = {"": 1024, "KIB": 1024, "MIB": 1024**2, "B": 1}


def latest_expiry(connection: ClusterSession, keyspace: str, parts: str, now: int) -> int:
    """The latest time, in seconds since 1970, at which a row may expire.

    A server does not say how many bits it has for it, so it is asked to write such a row.
    """
    if now + LONGEST_TTL <= LAST_SECOND:
        return now + LONGEST_TTL
    if "latest_expiry" not in connection.facts:
        connection.facts["latest_expiry"] = _takes_long_ttl(connection, f"{quoted(keyspace)}.{quoted(parts)}")
    return now + LONGEST_TTL if connection.facts["latest_expiry"] else LAST_SECOND


def _takes_long_ttl(connection: ClusterSession, parts: str) -> bool:
    from cassandra import InvalidRequest

    try:
        connection.session.execute(
            f"INSERT INTO {parts} (target, lineage, epoch, part) VALUES ('#probe', '', 0, '') USING TTL {LONGEST_TTL}"
        )
        connection.session.execute(f"DELETE FROM {parts} WHERE target = '#probe' AND lineage = ''")
    except InvalidRequest:
        return False
    except Exception as fault:
        raise translated(fault, parts) from fault
    return True


def day(seconds: int) -> str:
    """A time as people read it."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def largest_row(connection: ClusterSession) -> int | None:
    """How many bytes of values a row may have, by the server's settings; None if it does not tell."""
    if "largest_row" not in connection.facts:
        found = [size for name in SIZES if (size := _size(_setting(connection, name))) is not None]
        # A mutation has more than values: names, timestamps, the key once more.
        connection.facts["largest_row"] = min(found) * 15 // 16 if found else None
    answer: int | None = connection.facts["largest_row"]
    return answer


def _setting(connection: ClusterSession, name: str) -> Any:
    try:
        row = connection.session.execute("SELECT value FROM system_views.settings WHERE name = %s", [name]).one()
    except Exception as fault:
        if is_away(fault):
            raise translated(fault, "the server's settings") from fault
        return None  # before 4.0, or no right to look
    return row[0] if row else None


def _size(text: Any) -> int | None:
    """A size as servers spell it.

    >>> _size("16MiB"), _size("16384"), _size("null")
    (16777216, 16777216, None)
    """
    found = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|)", str(text), re.IGNORECASE)
    return int(found[1]) * UNITS[found[2].upper()] if found else None
