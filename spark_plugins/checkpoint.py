"""Spark's checkpoint folder, read only.

Spark writes ``offsets/N`` before it plans epoch N, calls foreachBatch(N), and writes ``commits/N``
afterwards. That last file is the decision. Old files are purged (100 are kept by default), so an
epoch is committed when its number is not above the highest one.
"""

from __future__ import annotations

import hashlib
import json

from epochal.spark_plugins import source_logs
from epochal.spark_plugins.source_logs import Sources
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.offsets import Digest


class SparkCheckpoint:
    """Reads ``metadata``, ``offsets/`` and ``commits/``."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._highest = -1
        self._planned: dict[int, tuple[bytes, str]] = {}  # offsets/N and its digest, of the epochs asked for last

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
        """A digest of what epoch N reads, spelled as `txn.offsets` says; None if offsets/N is not there."""
        data = self._read(epoch)
        if data is None:
            return None
        known, digest = self._planned.get(epoch, (b"", ""))
        if data != known:
            proof = source_logs.proof(self._files, self.path, data, lambda: self._before(epoch))
            plain = hashlib.sha256(_without_plan(data)).hexdigest()
            digest = str(Digest(plain, proof, hashlib.sha256(data).hexdigest()[:16]))
            self._planned = {e: told for e, told in self._planned.items() if e == epoch - 1} | {epoch: (data, digest)}
        return digest

    def watermark(self, epoch: int) -> float | None:
        """The query's watermark in offsets/N; None for 0, which Spark writes until it has seen a row's time."""
        data = self._planned[epoch][0] if epoch in self._planned else self._read(epoch)
        try:
            found = json.loads((data or b"").split(b"\n")[1])["batchWatermarkMs"]
        except (IndexError, ValueError, KeyError, TypeError):
            return None
        return found / 1000 if isinstance(found, int) and found > 0 else None

    def _read(self, epoch: int) -> bytes | None:
        try:
            return self._files.read(join(self.path, "offsets", str(epoch)))
        except FileNotFoundError:
            return None

    def _before(self, epoch: int) -> Sources:
        """The offsets that an epoch starts from."""
        if epoch == 0:
            return source_logs.FIRST
        data = self._planned[epoch - 1][0] if epoch - 1 in self._planned else self._read(epoch - 1)
        if data is None:  # a number that Spark has passed over, or purged
            names = self._files.names(join(self.path, "offsets"))
            below = [int(n) for n in names if n.isascii() and n.isdecimal() and int(n) < epoch]
            data = self._read(max(below)) if below else None
        return Sources.parse(data or b"")


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
