"""Reads Spark's checkpoint folder; never writes to it.

Spark writes ``offsets/N`` before it plans epoch N, calls foreachBatch(N), and then writes ``commits/N``.
That last file is the decision. Spark purges old files (it retains 100 by default), so an epoch is committed
when its number is not above the highest one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from epochal.spark_plugins import source_logs
from epochal.spark_plugins.source_logs import Sources
from epochal.txn.errors import Refused
from epochal.txn.files import Files, join
from epochal.txn.model import Json
from epochal.txn.offsets import Digest

KEEP = 10  # epochs whose time is remembered


@dataclass(frozen=True, slots=True)
class Planned:
    """An epoch that Spark has planned: ``offsets/N``, its digest, and the files that file sources give it."""

    data: bytes
    digest: str
    listed: source_logs.Listed


class SparkCheckpoint:
    """Reads ``metadata``, ``offsets/`` and ``commits/``."""

    def __init__(self, files: Files, path: str) -> None:
        self.files = self._files = files
        self.path = path
        self._highest = -1
        self._written: dict[int, float] = {}  # when commits/N was written, of the last few epochs
        self._planned: dict[int, Planned] = {}  # the last two epochs

    def query_id(self) -> str:
        """The id that Spark gave the query. It never changes for a checkpoint."""
        path = join(self.path, "metadata")
        try:
            query_id = json.loads(self._files.read(path).split(b"\n")[0])["id"]
        except FileNotFoundError:
            raise Refused(f"{self.path} is not the checkpoint of a streaming query: it has no metadata file") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused(f"{path} is not a metadata file of Spark; restore it from a backup") from None
        return str(query_id)

    def committed(self) -> int:
        """The highest number in commits/; -1 if it is empty."""
        # Nearly always only the next number is new: check for it instead of listing the folder.
        if self._highest >= 0 and self._files.length(join(self.path, "commits", str(self._highest))) is not None:
            while (written := self._files.modified(join(self.path, "commits", str(self._highest + 1)))) is not None:
                self._highest += 1
                self._written = {e: at for e, at in self._written.items() if e > self._highest - KEEP} | {
                    self._highest: written
                }
            return self._highest
        names = self._files.names(join(self.path, "commits"))
        self._highest = max((int(n) for n in names if n.isascii() and n.isdecimal()), default=-1)
        return self._highest

    def planned(self) -> int:
        """The highest number in offsets/; -1 if it is empty. If it is above `committed`, Spark has begun that epoch."""
        names = self._files.names(join(self.path, "offsets"))
        return max((int(n) for n in names if n.isascii() and n.isdecimal()), default=-1)

    def committed_at(self, epoch: int) -> float | None:
        """When commits/N was written. `committed` has nearly always seen it: then it costs nothing."""
        if epoch in self._written:
            return self._written[epoch]
        return self._files.modified(join(self.path, "commits", str(epoch)))

    def offsets(self, epoch: int) -> str | None:
        """A digest of what epoch N reads, in the format of `txn.offsets`; None if offsets/N does not exist."""
        planned = self._plan(epoch)
        return None if planned is None else planned.digest

    def sources(self, epoch: int) -> dict[str, Json]:
        """Where epoch N ends in each source. `offsets` has nearly always read it: then it costs nothing."""
        planned = self._planned.get(epoch) or self._plan(epoch)
        return {} if planned is None else source_logs.ends(planned.data, planned.listed)

    def _plan(self, epoch: int) -> Planned | None:
        data = self._read(epoch)
        if data is None:
            return None
        known = self._planned.get(epoch)
        if known is None or data != known.data:
            listed: source_logs.Listed = {}
            proof = source_logs.proof(self._files, self.path, data, lambda: self._before(epoch), listed)
            plain = hashlib.sha256(_without_plan(data)).hexdigest()
            known = Planned(data, str(Digest(plain, proof, hashlib.sha256(data).hexdigest()[:16])), listed)
            self._planned = {e: one for e, one in self._planned.items() if e == epoch - 1} | {epoch: known}
        return known

    def settings(self) -> dict[str, str] | None:
        """The settings that Spark keeps for the query, whatever its session says; None before the first epoch."""
        data = self._read(newest) if (newest := self.planned()) >= 0 else None
        if data is None:
            return None
        try:
            return {str(name): str(value) for name, value in json.loads(data.split(b"\n")[1])["conf"].items()}
        except (IndexError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def watermark(self, epoch: int) -> float | None:
        """The watermark in offsets/N, in seconds. None for 0, which Spark writes until it has seen an event time."""
        data = self._planned[epoch].data if epoch in self._planned else self._read(epoch)
        try:
            watermark = json.loads((data or b"").split(b"\n")[1])["batchWatermarkMs"]
        except (IndexError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return watermark / 1000 if isinstance(watermark, int) and watermark > 0 else None

    def _read(self, epoch: int) -> bytes | None:
        try:
            return self._files.read(join(self.path, "offsets", str(epoch)))
        except FileNotFoundError:
            return None

    def _before(self, epoch: int) -> Sources:
        """The offsets that an epoch starts from."""
        if epoch == 0:
            return source_logs.FIRST
        data = self._planned[epoch - 1].data if epoch - 1 in self._planned else self._read(epoch - 1)
        if data is None:  # Spark skipped or purged that number
            names = self._files.names(join(self.path, "offsets"))
            below = [int(n) for n in names if n.isascii() and n.isdecimal() and int(n) < epoch]
            data = self._read(max(below)) if below else None
        return Sources.parse(data or b"")


class NewCheckpoint(SparkCheckpoint):
    """A checkpoint that Spark has yet to create: its query has no id, and no epoch is committed."""

    def query_id(self) -> str:
        return "a new query"


def _without_plan(data: bytes) -> bytes:
    """The version, the watermark and the sources' offsets of an offsets file.

    An epoch that is planned again, after its checkpoint was rewound, has another timestamp and may have other
    settings. Neither determines which rows it holds.
    """
    version, _, rest = data.partition(b"\n")
    plan, _, sources = rest.partition(b"\n")
    try:
        watermark = json.loads(plan)["batchWatermarkMs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return data
    return b"\n".join([version, json.dumps(watermark).encode(), sources])
