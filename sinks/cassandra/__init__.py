"""Cassandra tables."""

from epochal.sinks.cassandra.sink import CassandraSink, from_description

__all__ = ["CassandraSink", "from_description"]
