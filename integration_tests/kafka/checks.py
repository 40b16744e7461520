"""What must hold for the sinks of a topic, read from the bare files with plain Python.

Spark's offsets/N says where an epoch ends in each partition. So every row, which names its partition and offset, says
which epoch it belongs to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from integration_tests.kafka.topics import Topic
from integration_tests.spark.checks import committed, leftovers, visible_rows
from integration_tests.spark.world import Row, World

Ends = dict[int, int]  # partition -> the first offset after an epoch


def planned(world: World) -> dict[int, Ends]:
    """Where each epoch ends."""
    found = {}
    for path in (world.checkpoint / "offsets").glob("[0-9]*"):
        try:
            (ends,) = json.loads(path.read_text().splitlines()[-1]).values()
        except (ValueError, IndexError, FileNotFoundError):
            continue  # it is being written
        found[int(path.name)] = {int(partition): end for partition, end in ends.items()}
    return found


def epoch_of(row: Row, ends: dict[int, Ends]) -> int | None:
    """The epoch that a row belongs to; None if none has been planned that far."""
    offset, partition, *_ = row
    return min((epoch for epoch, end in ends.items() if end.get(partition, 0) > offset), default=None)


def early(world: World, rows: Iterable[Row]) -> list[Row]:
    """Rows that were seen before Spark had written their commits/N. To be called after looking at the target."""
    done, ends = committed(world), planned(world)
    return [row for row in rows if epoch_of(row, ends) not in done]


def check_after_a_kill(world: World) -> None:
    """Nothing is visible that is not decided, nothing twice, and no epoch before an earlier one is whole."""
    for target in world.targets:
        rows = visible_rows(target)
        ends = planned(world)
        last = max((epoch_of(row, ends) or 0 for row in rows), default=0)
        whole = {(offset, partition) for partition, end in ends.get(last - 1, {}).items() for offset in range(end)}

        assert early(world, rows) == [], f"{target.name} shows rows before their epochs are decided"
        assert max(rows.values(), default=1) == 1, f"{target.name} shows rows twice"
        missing = whole - {row[:2] for row in rows}
        assert not missing, f"{target.name} shows epoch {last}, but not {sorted(missing)} of earlier ones"


def check_at_the_end(world: World, topic: Topic, *targets: Path) -> None:
    """Every message of the topic is in every target once, everything is settled, and nothing is left lying about."""
    expected = topic.rows()
    for target in targets or world.targets:
        rows = visible_rows(target)
        assert rows == expected, f"{target.name}: {_difference(rows, expected)}"
        assert leftovers(target) == [], target.name
    view = Journal(LocalFiles(), str(world.journal)).read()
    assert view.waiting() == []
    assert view.done_through == max(committed(world))


def _difference(rows: Counter[Row], expected: Counter[Row]) -> str:
    return f"missing {sorted(expected - rows)[:5]}, too many {sorted(rows - expected)[:5]}"
