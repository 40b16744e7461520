"""What the protocol reads from Spark's checkpoint. The reader itself is `spark_plugins.checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from epochal.txn.model import Json


class Checkpoint(Protocol):
    """Spark's own log of a query."""

    def query_id(self) -> str:
        """The id in ``metadata``."""

    def committed(self) -> int:
        """The highest number in ``commits/``; -1 before the first. Every epoch up to it is decided."""

    def committed_at(self, epoch: int) -> float | None:
        """When Spark wrote ``commits/N``, in seconds since 1970; None if it is not there. For display only."""

    def offsets(self, epoch: int) -> str | None:
        """A digest of what epoch N reads, in the format of `offsets`; None if Spark has purged ``offsets/N``."""

    def sources(self, epoch: int) -> Mapping[str, Json]:
        """Where epoch N ends in each source, in Spark's own words, and which files it read; for people, and bounded.

        Empty if Spark has purged ``offsets/N``.
        """

    def watermark(self, epoch: int) -> float | None:
        """The watermark that epoch N was planned with, in seconds since 1970; None if there was none yet."""


def sample_of_offsets(checkpoint: Checkpoint) -> str | None:
    """The digest of the last epoch in the checkpoint. It shows what kind of sources the query reads."""
    committed = checkpoint.committed()
    return checkpoint.offsets(committed) or checkpoint.offsets(committed + 1)
