"""Delta tables."""

from epochal.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
