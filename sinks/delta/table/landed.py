"""What each of our commits says about itself in the table's history.

It stands in ``userMetadata`` of the commit, as JSON, and so in DESCRIBE HISTORY.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from epochal.txn.model import Attempt

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Landed:
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


def landed(commits: Iterable[tuple[int, str | None]]) -> Iterator[Landed]:
    """Our epochs among (version, userMetadata) of a table's commits."""
    for version, text in commits:
        try:
            value = json.loads(text or "")
            if value["epochal"] == FORMAT:
                yield Landed(
                    version,
                    str(value["lineage"]),
                    int(value["epoch"]),
                    int(value["generation"]),
                    str(value["offsets"]),
                    str(value.get("start", "")),
                )
        except (ValueError, KeyError, TypeError):
            continue  # somebody else's commit, with userMetadata of its own
