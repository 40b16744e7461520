"""Paths as Spark takes them."""

from __future__ import annotations


def spark_path(path: str) -> str:
    """A plain local path gets its scheme, or Spark would look for it on fs.defaultFS. Hadoop unescapes nothing."""
    return f"file:{path}" if path.startswith("/") else path
