"""A folder that can be audited: its rows are counted, and digested by Python."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from epochal.testing import DirectoryParticipant
from epochal.txn.audit import Scope, StoreReport
from epochal.txn.model import Batch, Json, Staged
from epochal.txn.row_digests import RowDigest, digest_text, total


class Auditable(DirectoryParticipant):
    """As the folder, with a digest of each epoch."""

    @property
    def audits(self) -> Auditable:
        return self

    def describe(self, rows: Sequence[Json] | None = None) -> dict[str, Json]:
        return {**super().describe(rows), "type": "auditable"}

    def stage(self, batch: Batch[Sequence[Json]]) -> Staged:
        return replace(super().stage(batch), digest=_digest(batch.rows).digest)

    def audit(self, scope: Scope) -> StoreReport:
        scope.progress("counting")
        found: dict[int, RowDigest] = {}
        for name in self._published():
            epoch = int(name.split(".")[0])
            lines = Path(self._path, name).read_text().splitlines()[1:]
            if epoch <= scope.expected.through:
                found[epoch] = found.get(epoch, RowDigest()) + _digest([json.loads(line) for line in lines])
        unproven = ("rows were not read",) if scope.fast else ()
        return StoreReport(epochs_present=frozenset(found), epochs={} if scope.fast else found, unproven=unproven)


def _digest(rows: Sequence[Json]) -> RowDigest:
    hashes = (int.from_bytes(hashlib.sha256(json.dumps(row).encode()).digest()[:8], "big") for row in rows)
    return total(RowDigest(1, digest_text(value)) for value in hashes) + RowDigest(0, digest_text(0))
