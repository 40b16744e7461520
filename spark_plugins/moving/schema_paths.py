"""Absolute paths in a checkpoint: those of state schemas, in ``state/0/_metadata/v2/0``. Pure.

A checkpoint that was moved would read its schemas from the old place, and fail once that is gone.
"""

from __future__ import annotations

import json
import re
from typing import Any

_NAME = re.compile(r"state/\d+/_metadata/v2/[^/.][^/]*$")
_PATH = re.compile(r".*/(state/\d+/_stateSchema/.*)$", re.DOTALL)
KEY = "stateSchemaFilePaths"


def has_paths(name: str) -> bool:
    """Whether a file of a checkpoint may have absolute paths in it."""
    return _NAME.match(name) is not None


def moved(data: bytes, root: str) -> bytes:
    r"""The file's content for a checkpoint in another place; the same bytes if it names no place.

    >>> moved(b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/a/state/0/_stateSchema/d/0_1"]}]}', "file:/b")
    b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/b/state/0/_stateSchema/d/0_1"]}]}'
    >>> moved(b'v2\n{"stateSchemaFilePaths":', "file:/b")  # damaged: Spark says so when it reads it
    b'v2\n{"stateSchemaFilePaths":'
    """
    lines = data.decode("utf-8").split("\n")
    changed = [_line(line, root.rstrip("/")) for line in lines]
    return data if changed == lines else "\n".join(changed).encode("utf-8")


def _line(line: str, root: str) -> str:
    if KEY not in line:
        return line
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    before = json.dumps(value, sort_keys=True)
    value = _walked(value, root)
    unchanged = json.dumps(value, sort_keys=True) == before
    return line if unchanged else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _walked(value: Any, root: str) -> Any:
    if isinstance(value, dict):
        return {
            key: [_path(path, root) for path in inner] if key == KEY else _walked(inner, root)
            for key, inner in value.items()
        }
    return [_walked(inner, root) for inner in value] if isinstance(value, list) else value


def _path(path: str, root: str) -> str:
    found = _PATH.match(path)
    return path if found is None else f"{root}/{found[1]}"
