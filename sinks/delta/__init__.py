"""Delta tables."""

from epochal.sinks.delta.sink import DeltaSink, from_description

__all__ = ["DeltaSink", "from_description"]
