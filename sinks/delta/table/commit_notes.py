"""The note in each of our commits: which epoch it is, and of which stream.

It is in ``userMetadata`` of the commit, as JSON, so DESCRIBE HISTORY shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from epochal.txn.model import Attempt

FORMAT = 1


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """An epoch in a table: the version that it made, and the digest of its source offsets."""

    version: int
    lineage: str
    epoch: int
    generation: int
    offsets: str
    start: str = ""  # of the generation; empty in commits of older versions


def note(attempt: Attempt, offsets: str) -> str:
    """The ``userMetadata`` of an epoch's commit."""
    value = {
        "epochal": FORMAT,
        "lineage": attempt.lineage,
        "epoch": attempt.epoch,
        "generation": attempt.generation,
        "offsets": offsets,
        **({"start": attempt.start} if attempt.start else {}),
    }
    return json.dumps(value, sort_keys=True)


def committed_epochs(commits: Iterable[tuple[int, str | None]]) -> Iterator[CommittedEpoch]:
    """Our epochs among (version, userMetadata) of a table's commits."""
    for version, text in commits:
        try:
            value = json.loads(text or "")
            if value["epochal"] == FORMAT:
                yield CommittedEpoch(
                    version,
                    str(value["lineage"]),
                    int(value["epoch"]),
                    int(value["generation"]),
                    str(value["offsets"]),
                    str(value.get("start", "")),
                )
        except (ValueError, KeyError, TypeError):
            continue  # a commit of another program, with its own userMetadata
