"""Cassandra tables."""

from epochal.sinks.cassandra import failpoints as _failpoints  # noqa: F401  # which registers them

try:
    from epochal.sinks.cassandra.cluster.endpoint import Connection
    from epochal.sinks.cassandra.options import Tuning
    from epochal.sinks.cassandra.sink import CassandraSink
except ModuleNotFoundError as missing:
    if missing.name not in ("numpy", "pandas", "pyarrow", "cassandra"):
        raise
    raise ModuleNotFoundError(
        f"Cassandra's packages are not installed ({missing.name} is missing): pip install 'epochal[cassandra]'",
        name=missing.name,
    ) from None

__all__ = ["CassandraSink", "Connection", "Tuning"]
