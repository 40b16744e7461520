"""Paths on object stores. One bucket has several spellings: ``s3a://bucket/a`` and ``s3://bucket/a`` are the same.

Here the authority names a bucket, not a host: it belongs to a path's identity, and nobody looks it up.
"""

from __future__ import annotations

from urllib.parse import urlsplit

SPELLINGS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "az": "az"}


def is_object_store(path: str) -> bool:
    """Whether a path is on S3, on Google's store, or on Azure's by its protocol for blobs.

    abfs:// is Hadoop's: what its client shows are folders.

    >>> is_object_store("s3a://bucket/a"), is_object_store("az://box/a"), is_object_store("abfss://box@host/a")
    (True, True, False)
    >>> is_object_store("hdfs://host/a"), is_object_store("/s3:/a")
    (False, False)
    """
    return urlsplit(path).scheme in SPELLINGS


def is_s3(path: str) -> bool:
    """Whether a path is on S3, or what speaks its protocol.

    >>> is_s3("s3a://bucket/a"), is_s3("gs://bucket/a")
    (True, False)
    """
    return SPELLINGS.get(urlsplit(path).scheme) == "s3"


def one_spelling(path: str) -> str:
    """A path on an object store as epochal spells it; every other path unchanged.

    Of several slashes only one counts, as for Hadoop.

    >>> one_spelling("s3a://bucket//a/"), one_spelling("S3://bucket"), one_spelling("hdfs://host/a/")
    ('s3://bucket/a', 's3://bucket', 'hdfs://host/a/')
    """
    if not is_object_store(path):
        return path
    scheme, _, rest = path.partition(":")
    bucket, *names = rest.removeprefix("//").split("/")
    return f"{SPELLINGS[scheme.lower()]}://{'/'.join([bucket, *filter(None, names)])}"
