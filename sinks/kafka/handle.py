"""What the sink stages, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epochal.participant import Handle, StagedEpoch

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedMessages:
    """Everything that a commit needs, in any later process. It holds no secret and no row."""

    staged: StagedEpoch
    target: str
    partitions: Mapping[str, int]  # of each topic, as they were when the epoch was staged
    offsets: str  # the digest of what the epoch has read
    digest: str | None
    headers: bool  # messages name their epoch
    placed: bool  # rows name their partition
    lanes: int = 0  # of an epoch that is sent in parts
    part_rows: int = 0

    def handle(self) -> Handle:
        return Handle(
            VERSION,
            {
                "staged": self.staged.to_json(),
                "target": self.target,
                "partitions": dict(self.partitions),
                "offsets": self.offsets,
                "digest": self.digest,
                "headers": self.headers,
                "placed": self.placed,
                **({"lanes": self.lanes, "part_rows": self.part_rows} if self.lanes else {}),
            },
        )

    @staticmethod
    def read(handle: Handle) -> StagedMessages:
        body: dict[str, Any] = dict(handle.checked_body(VERSION))
        return StagedMessages(**{**body, "staged": StagedEpoch.from_json(body["staged"])})
