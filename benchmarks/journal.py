"""What a journal holds in memory while rows stay open over epochs, without Spark.

    python -m benchmarks.journal [--open 2000] [--epochs 36] [--json]

Each epoch opens so many entries of state and closes those of three epochs before.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tracemalloc

from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import GenerationStarted, Prepared
from epochal.txn.settlement import RETAIN

STAYS = 3  # epochs that an entry stays open for


def main() -> None:
    """Run the epochs and report the memory after each sixth of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__)
    parser.add_argument("--open", type=int, default=2000, help="entries that an epoch opens")
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--json", action="store_true", help="machines read this")
    args = parser.parse_args()
    seen: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="epochal-journal-") as folder:
        journal = Journal(LocalFiles(sync=False), f"{folder}/journal")
        journal.claim(GenerationStarted(1, "query", base=0))
        tracemalloc.start()
        for epoch in range(args.epochs):
            journal.prepare(Prepared(epoch, 1, "offsets", {"files": _staged(epoch, args.open)}))
            journal.read()
            journal.decide(epoch, 1)
            view = journal.read()
            journal.finish(epoch, 1)
            journal.compact(view, retain=RETAIN)
            journal.read()
            if (epoch + 1) % max(1, args.epochs // 6) == 0:
                seen[epoch + 1] = round(tracemalloc.get_traced_memory()[0] / 1e6, 1)
    if args.json:
        print(json.dumps({"open": args.open, "megabytes": seen}))
    else:
        print("\n".join(f"after {epochs:>4} epochs {megabytes:>8.1f} MB" for epochs, megabytes in seen.items()))


def _staged(epoch: int, count: int) -> Staged:
    """What a rolling sink with so many buckets stages."""
    changes: dict[str, Json] = {
        f"{epoch:012d} bucket={bucket}/": {"at": 1.5, "shape": "json", "files": [[f"part-{bucket}.json", 100, 1]]}
        for bucket in range(count)
    }
    if epoch >= STAYS:
        changes |= {f"{epoch - STAYS:012d} bucket={bucket}/": None for bucket in range(count)}
    joins: list[Json] = [[f"bucket={bucket}/part-{epoch}.json", 100] for bucket in range(count)]
    return Staged(Handle(3, {"joins": joins}), count, changes=changes)


if __name__ == "__main__":
    main()
