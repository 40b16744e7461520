"""Rolling files on local disks, HDFS and other Hadoop file systems."""

from epochal.sinks.files import failpoints as _failpoints  # noqa: F401  # which registers them
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.files.policies.buckets import Bucket, TimeBucket
from epochal.sinks.files.policies.completion import Complete
from epochal.sinks.files.policies.rolling import Rolling
from epochal.sinks.files.reading import published
from epochal.sinks.files.sink import RollingFileSink

__all__ = [
    "Bucket",
    "Complete",
    "PublishedEpoch",
    "Rolling",
    "RollingFileSink",
    "TimeBucket",
    "published",
]
