"""A stream's folders as an archive that can be unpacked anywhere, without any code of epochal, which changes.

Records hold absolute paths, and a checksum over themselves. In an archive the root is `ROOT`; packing and unpacking put
one root in the place of another and make the checksums again. Everything else stays byte for byte as it was written.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = "/root-of-the-stream"


def pack(root: Path, archive: Path, names: Mapping[str, str] | None = None) -> None:
    """Everything below a root, the same bytes for the same files. `names` are replaced as the root is."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(root.rglob("*")):
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                data = moved(path.read_bytes(), {str(root): ROOT, **(names or {})})
                entry.size, entry.mtime = len(data), int(path.stat().st_mtime)
                tar.addfile(entry, io.BytesIO(data))


def unpack(archive: Path, root: Path, names: Mapping[str, str] | None = None) -> None:
    """Put an archive's files below a root, as if they had been written there."""
    with tarfile.open(archive) as tar:
        tar.extractall(root, filter="data")
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if (after := moved(data, {ROOT: str(root), **(names or {})})) != data:
                path.write_bytes(after)


def moved(data: bytes, names: Mapping[str, str]) -> bytes:
    """A file's content with other names in it, and the checksum that belongs to it."""
    after = data
    for old, new in names.items():
        after = after.replace(old.encode(), new.encode())
    return data if after == data else checked(after)


def checked(data: bytes) -> bytes:
    """A record with its checksum made again; content without one as it is."""
    value = _record(data)
    if value is None:
        return data
    check = value.pop("check")
    body = _canonical(value["record"]) if "record" in value else json.dumps(value, sort_keys=True).encode()
    return data.replace(check.encode(), hashlib.sha256(body).hexdigest().encode())


def _record(data: bytes) -> dict[str, Any] | None:
    """A record of the journal or of a register of streams; None for files of another kind."""
    try:
        value = json.loads(data)
    except ValueError:  # several values, such as an entry of Delta's log, or no text
        return None
    return value if isinstance(value, dict) and "check" in value else None


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")
