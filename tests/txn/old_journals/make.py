"""Make journals with a record of every kind, and what they say. Run it at the commit whose records are to be kept.

    python -m tests.txn.old_journals.make tests/txn/old_journals/v1

A folder is never made again: it is what a version wrote (`v0`: 0.1.0 at commit 58ed7e2; `v1`: the first with state
records and segments). The paths in its records are
relative, so it can lie anywhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from epochal.testing import DirectoryParticipant
from epochal.txn import failpoints
from epochal.txn.coordinator import Coordinator
from epochal.txn.errors import CommitFailed
from epochal.txn.model import Batch, Json, Staged
from epochal.txn.row_digests import digest_text
from tests.txn.keeping import Keeping
from tests.txn.stream import TAG, Rows, Stream
from tests.txn.test_old_journals import EXPECTED, facts


class Digesting(DirectoryParticipant):
    """A sink that says which rows it has staged."""

    def stage(self, batch: Batch[Rows]) -> Staged:
        digest = digest_text(sum(hash(row) for row in batch.rows) * 0x9E3779B97F4A7C15)
        return replace(super().stage(batch), digest=digest)


@dataclass
class Made(Stream):
    """A stream of two sinks: one keeps rows open over epochs, the other says which rows it has."""

    def sinks(self) -> tuple[Keeping, Digesting]:
        keeping = Keeping("archive", name="archive", files=self.files, most=3)
        return keeping, Digesting("table", name="table", files=self.files)

    def begun(self) -> Coordinator[Rows]:
        return self.start(*self.sinks())

    def die(self, point: str, driver: Coordinator[Rows], epoch: int | None = None) -> None:
        """A batch, or a roll, that ends at a failpoint."""
        failpoints.arm(f"{point}=raise")
        try:
            if epoch is None:
                driver.roll(every=True)
            else:
                self.plan(epoch)
                driver.run(epoch, [epoch])
        except OSError:
            return
        finally:
            failpoints.arm("")
        sys.exit(f"{point} was not reached")


def in_doubt() -> Made:
    """A snapshot with totals and open parts; a roll that is done; a seal; two attempts that wait."""
    stream = Made()
    first = stream.begun()
    stream.run(first, *range(5))
    first.journal.compact(first.journal.read(), retain=1, slack=0)
    stream.die("before-prepared", first, 5)
    second = stream.begun()
    stream.run(second, 5, 6)
    second.roll(every=True)
    stream.run(second, 7)
    stream.die("after-prepared", second, 8)
    stream.die("after-prepared", stream.begun(), 8)
    return stream


def decided() -> Made:
    """An epoch whose winner is chosen between two attempts, and that no sink shows."""
    stream = in_doubt()
    stream.commit(8)
    driver = stream.begun()
    failpoints.arm("before-commit=raise")
    try:
        driver.settle()
    except (OSError, CommitFailed):
        return stream
    finally:
        failpoints.arm("")
    sys.exit("nothing was to commit")


def rolled() -> Made:
    """A roll that is recorded and not carried out, after one that is."""
    stream = Made()
    first = stream.begun()
    stream.run(first, 0)
    first.roll(every=True)
    stream.run(first, 1, 2)
    stream.die("after-roll", first)
    return stream


def closed() -> Made:
    """A journal that was closed with an epoch in doubt, and the one after it."""
    stream = Made()
    first = stream.begun()
    stream.run(first, 0, 1, 2)
    stream.die("after-prepared", first, 3)
    stream.rewind(keep=0)
    again = stream.start(*stream.sinks(), new=f"{TAG}@2")
    stream.run(again, 1)
    return stream


def main(folder: Path) -> None:
    """Write every journal, and beside it what it says."""
    for name, stream, incarnations in (
        ("in-doubt", in_doubt(), (1,)),
        ("decided", decided(), (1,)),
        ("rolled", rolled(), (1,)),
        ("closed", closed(), (1, 2)),
    ):
        for incarnation in incarnations:
            journal = stream.journal(incarnation)
            where = folder / (name if len(incarnations) == 1 else f"{name}-{incarnation}")
            where.mkdir(parents=True)
            for record in stream.files.names(journal.path):
                (where / record).write_bytes(stream.files.read(f"{journal.path}/{record}"))
            said: Json = facts(journal.read())
            where.with_suffix(EXPECTED).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")
            print(where, " ".join(kinds(where.glob("*.json"))))


def kinds(records: Iterable[Path]) -> list[str]:
    return sorted({json.loads(path.read_bytes())["record"]["kind"] for path in records})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
