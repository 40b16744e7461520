"""Spark's checkpoint folder, read only.

Spark writes ``offsets/N`` before it plans epoch N, calls foreachBatch(N), and writes ``commits/N``
afterwards. That last file is the decision. Old files are purged (100 are kept by default), so an
epoch is committed when its number is not above the highest one.
"""

from __future__ import annotations

import hashlib
import json

from epochal.txn.errors import Refused
from epochal.txn.files import Files, join


class SparkCheckpoint:
    """Reads ``metadata``, ``offsets/`` and ``commits/``."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._highest = -1
        self._planned: tuple[int, bytes] = (-1, b"")  # offsets/N as it was asked for last

    def query_id(self) -> str:
        """The id that Spark gave the query; the same for as long as the checkpoint lives."""
        path = join(self.path, "metadata")
        try:
            found = json.loads(self._files.read(path).split(b"\n")[0])["id"]
        except FileNotFoundError:
            raise Refused(f"{self.path} is not the checkpoint of a streaming query: it has no metadata file") from None
        except (ValueError, KeyError, TypeError):
            raise Refused(f"{path} is not what Spark writes there; restore it from a copy") from None
        return str(found)

    def committed(self) -> int:
        """The highest number in commits/; -1 before the first."""
        # The next number is nearly always the only new one: one look instead of a listing.
        if self._highest >= 0 and self._files.length(join(self.path, "commits", str(self._highest))) is not None:
            while self._files.length(join(self.path, "commits", str(self._highest + 1))) is not None:
                self._highest += 1
            return self._highest
        names = self._files.names(join(self.path, "commits"))
        self._highest = max((int(n) for n in names if n.isascii() and n.isdecimal()), default=-1)
        return self._highest

    def offsets(self, epoch: int) -> str | None:
        """A digest of the source offsets in offsets/N, or None if it is not there."""
        try:
            data = self._files.read(join(self.path, "offsets", str(epoch)))
        except FileNotFoundError:
            return None
        self._planned = epoch, data
        return hashlib.sha256(_without_plan(data)).hexdigest()

    def watermark(self, epoch: int) -> float | None:
        """The query's watermark in offsets/N; None for 0, which Spark writes until it has seen a row's time."""
        if self._planned[0] != epoch and self.offsets(epoch) is None:
            return None
        try:
            found = json.loads(self._planned[1].split(b"\n")[1])["batchWatermarkMs"]
        except (IndexError, ValueError, KeyError, TypeError):
            return None
        return found / 1000 if isinstance(found, int) and found > 0 else None


def _without_plan(data: bytes) -> bytes:
    """The version, the watermark and the sources' offsets of an offsets file.

    The same epoch planned a second time, after its checkpoint was rewound, has another time of day
    and may have other settings. Neither says which rows it holds.
    """
    version, _, rest = data.partition(b"\n")
    plan, _, sources = rest.partition(b"\n")
    try:
        watermark = json.loads(plan)["batchWatermarkMs"]
    except (ValueError, KeyError, TypeError):
        return data
    return b"\n".join([version, json.dumps(watermark).encode(), sources])
