"""Where epochal stores its own data: tables in the target's keyspace, and the files of staged epochs.

::

    KEYSPACE.epochal_claims, epochal_streams, epochal_parts     the ledger (`ledger`)
    STAGING/LINEAGE/ATTEMPT/data/*.parquet                      one epoch's rows, encoded, with the columns below
"""

from __future__ import annotations

from epochal.sinks.spark.staged_files import home_of

STREAMS, PARTS, CLAIMS = "epochal_streams", "epochal_parts", "epochal_claims"
KEY, ROW, DELETE, EXPIRY = "_key", "_row", "_delete", "_expiry"  # columns of staged files

__all__ = ["CLAIMS", "DELETE", "EXPIRY", "KEY", "PARTS", "ROW", "STREAMS", "home_of"]
