"""Delta tables."""

from epochal.sinks.delta import failpoints as _failpoints  # noqa: F401  # which registers them
from epochal.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
