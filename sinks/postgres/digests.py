"""Counts and digests of rows, taken by the server: of staged rows, and of the table's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg


def of_rows(
    db: psycopg.Connection[Any], relation: str, columns: Sequence[str], where: str, *, by: str = "0"
) -> dict[int, tuple[int, int]]:
    """The number of rows and the sum of a 64-bit hash of each, for each value of `by`; without it for 0.

    A row is hashed as PostgreSQL writes it, which the settings of our transactions fix. Names are as SQL has them;
    without columns the hashes are 0.
    """
    row = f"ROW({', '.join(columns)})::text"
    one = f"('x' || encode(substr(sha256(convert_to({row}, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint::numeric"
    total = f"coalesce(sum({one}), 0)" if columns else "0"
    group = "" if by == "0" else f" GROUP BY {by}"
    found = db.execute(f"SELECT {by}, count(*), {total} FROM {relation} WHERE {where}{group}")
    return {int(key): (int(rows), int(value)) for key, rows, value in found}
