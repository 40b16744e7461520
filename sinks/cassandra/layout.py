"""Where everything of epochal lies: its tables in the target's keyspace, and the files of an epoch that is staged.

::

    KEYSPACE.epochal_claims, epochal_streams, epochal_parts     what the store remembers (`ledger`)
    STAGING/LINEAGE/ATTEMPT/data/*.parquet                      one epoch's rows, encoded, with the columns below
"""

from __future__ import annotations

from epochal.sinks.storage.register import safe_name
from epochal.txn.files import join
from epochal.txn.model import Attempt

STREAMS, PARTS, CLAIMS = "epochal_streams", "epochal_parts", "epochal_claims"
KEY, ROW, DELETE, EXPIRY = "_key", "_row", "_delete", "_expiry"  # what is staged


def home_of(staging: str, attempt: Attempt) -> str:
    """Where an attempt is staged."""
    return join(staging, safe_name(attempt.lineage), attempt.key)
