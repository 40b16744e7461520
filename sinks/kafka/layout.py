"""What epochal keeps in Kafka besides the messages: a compacted topic with one partition, `_epochal`.

::

    ["claims", TARGET]                  which start of each stream holds a target; a new version replaces the one before
    ["epoch", TARGET, LINEAGE, SLOT]    one of the latest epochs that the target holds: the epoch's *mark*
    ["lanes", TARGET, LINEAGE]          how many lanes the stream has used at most, before it first uses so many
    ["part", TARGET, LINEAGE, LANE, N]  the last epoch whose part N of a lane the target holds

Keys and values are JSON. A target is spelled by its topics. SLOT is the epoch's number modulo `RECENT`: compaction
leaves the last `RECENT` marks of each stream. A mark is in the transaction of its epoch's messages, and is sent last.
Transactions of a stream have one transactional id, and claims of a target another one: whoever begins to use an id
first ends, and then shuts out, all others who use it.

With ``transactions="parts"`` an epoch is many transactions, each with its part's mark. A part belongs to a lane, which
has a transactional id of its own and sends its parts one after the other. The epoch's mark is then sent alone, once all
parts are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

RECENT = 50  # epochs of a stream
MOST_LANES = 64
MARKS = "_epochal"
CLAIMS, EPOCH, LANES, PART = "claims", "epoch", "lanes", "part"
# Small segments: what is superseded is compacted away soon, and a start reads little. Never deleted by age.
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
# Columns of staged files.
TOPIC, KEY, VALUE, HEADERS, PARTITION, TIME = "_topic", "_key", "_value", "_headers", "_partition", "_time"
LINEAGE_HEADER, EPOCH_HEADER = "epochal-lineage", "epochal-epoch"


def spelled(topics: Sequence[str]) -> str:
    """A target's topics, in any order, as keys have them.

    >>> spelled(["refunds", "orders"])
    'orders,refunds'
    """
    return ",".join(sorted(topics))


def claims_key(target: str) -> bytes:
    """The key of a target's claims."""
    return _key(CLAIMS, target)


def epoch_key(target: str, lineage: str, epoch: int) -> bytes:
    """The key of an epoch's mark.

    >>> epoch_key("orders", "1f0c9a2e", 52)
    b'["epoch","orders","1f0c9a2e",2]'
    """
    return _key(EPOCH, target, lineage, epoch % RECENT)


def lanes_key(target: str, lineage: str) -> bytes:
    """The key of the number of a stream's lanes."""
    return _key(LANES, target, lineage)


def part_key(target: str, lineage: str, lane: int, number: int) -> bytes:
    """The key of a part's mark."""
    return _key(PART, target, lineage, lane, number)


def transactional_id(target: str, lineage: str = "", lane: int | None = None) -> str:
    """The transactional id of a stream's epochs in a target, of one of its lanes, or of the target's claims. ACLs may
    name its beginning.
    """
    digest = hashlib.sha256(json.dumps([target, lineage]).encode()).hexdigest()
    name = f"epochal-{'epochs' if lineage else 'claims'}-{digest[:32]}"
    return name if lane is None else f"{name}-{lane}"


def digest_of(key: bytes | None, value: bytes | None) -> int:
    """The hash of a message, of which a digest is the sum. Spark computes the same while rows are staged.

    >>> f"{digest_of(b'a', None):016x}" == hashlib.sha256(b"1,-1,a").hexdigest()[:16]
    True
    """
    lengths = ",".join(str(-1 if part is None else len(part)) for part in (key, value))
    return int.from_bytes(hashlib.sha256(lengths.encode() + b"," + (key or b"") + (value or b"")).digest()[:8], "big")


def header_pairs(lineage: str, epoch: int) -> list[tuple[str, bytes]]:
    """The headers that name a message's epoch."""
    return [(LINEAGE_HEADER, lineage.encode()), (EPOCH_HEADER, str(epoch).encode())]


def _key(*parts: str | int) -> bytes:
    return json.dumps(parts, separators=(",", ":")).encode()
