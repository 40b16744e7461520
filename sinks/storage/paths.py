"""Paths as Spark takes them."""

from __future__ import annotations

from epochal.txn.object_paths import is_s3, one_spelling


def spark_path(path: str) -> str:
    """A plain local path gets its scheme, or Spark would look for it on fs.defaultFS. Hadoop unescapes nothing.

    S3 is what Hadoop calls s3a.

    >>> spark_path("/a"), spark_path("hdfs://h/a"), spark_path("s3://bucket/a")
    ('file:/a', 'hdfs://h/a', 's3a://bucket/a')
    """
    if is_s3(path):
        return "s3a" + one_spelling(path).removeprefix("s3")
    return f"file:{path}" if path.startswith("/") else path
