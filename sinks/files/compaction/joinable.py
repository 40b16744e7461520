"""What the ending of a published file says: its format, its codec, and so how files of it become one.

This is the list of all that compaction joins. Other endings are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

BY_BYTES = {".json": "json", ".csv": "csv", ".txt": "text"}
STREAMS = {"": None, ".gz": "gzip", ".bz2": "bzip2"}  # what is one stream after another is a stream
# By what Spark's writer calls the codec.
MERGED = {
    "parquet": {
        "": "none",
        ".snappy": "snappy",
        ".gz": "gzip",
        ".zstd": "zstd",
        ".lz4hadoop": "lz4",
        ".lz4raw": "lz4_raw",
    },
    "orc": {"": "none", ".snappy": "snappy", ".zlib": "zlib", ".zstd": "zstd", ".lz4": "lz4"},
}
# The codec is in the file, and by some versions of Spark in its name too.
BY_BLOCKS = {"avro": ("", ".snappy", ".deflate", ".zstandard", ".bzip2", ".xz", ".uncompressed")}


@dataclass(frozen=True, slots=True)
class Format:
    """A format, and the codec that Spark's writer is given; None where there is none to give."""

    name: str
    codec: str | None = None


def format_of(ending: str) -> Format | None:
    """What files of an ending are; None if they are left alone.

    >>> format_of(".json.gz"), format_of(".snappy.parquet")
    (Format(name='json', codec='gzip'), Format(name='parquet', codec='snappy'))
    >>> format_of(".xml") is None
    True
    """
    return _FORMATS.get(ending)


_FORMATS: dict[str, Format] = {
    **{f"{ending}{code}": Format(name, codec) for ending, name in BY_BYTES.items() for code, codec in STREAMS.items()},
    **{f"{code}.{name}": Format(name, codec) for name, codecs in MERGED.items() for code, codec in codecs.items()},
    **{f"{code}.{name}": Format(name) for name, codes in BY_BLOCKS.items() for code in codes},
}
