"""Compactors at once, a stream that goes on, and readers, in every order of their file operations."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from unittest.mock import patch

import pytest

from epochal.sinks.files import manifest
from epochal.sinks.files.compaction import live, records
from epochal.sinks.files.layout import HOME, Layout
from epochal.txn.files import join
from tests.sinks.compacting import (
    TARGET,
    MemoryDisk,
    below_home,
    compactor,
    listed,
    name_of,
    publish,
    rows_by_manifest,
    rows_of_folder,
)
from tests.sinks.interleaving import PacedDisk, Program, State, explore

EPOCHS = 2
LAYOUT = Layout(TARGET)


class _Known:
    """A unique name that is the same each time that a schedule is played."""

    def __init__(self) -> None:
        thread = threading.current_thread()
        made = getattr(thread, "made", 0)
        thread.made = made + 1  # type: ignore[attr-defined]
        self.hex = uuid.uuid5(uuid.NAMESPACE_OID, f"{thread.name} {made}").hex


def disk() -> dict[str, bytes]:
    made = MemoryDisk()
    for epoch in range(EPOCHS):
        publish(made, epoch, {name_of(epoch): b"%d\n" % epoch})
    return made.content


def compact(files: PacedDisk) -> None:
    compactor(files).run()


def compact_twice(files: PacedDisk) -> None:
    """What the first run joined is joined to what has come since."""
    compactor(files).run()
    publish(files, EPOCHS, {name_of(EPOCHS): b"%d\n" % EPOCHS})
    compactor(files).run()


def go_on(files: PacedDisk) -> None:
    """The stream commits one more epoch."""
    publish(files, EPOCHS, {name_of(EPOCHS): b"%d\n" % EPOCHS})


def rows(files: MemoryDisk) -> Counter[bytes]:
    """What the epochs of the manifest have."""
    return Counter(b"%d" % entry.epoch for entry in manifest.published(files, TARGET))


def check(state: State) -> None:
    now = MemoryDisk(state.disk)

    assert rows_by_manifest(now) == rows(now), f"a reader who lists now: {state.schedule}"
    _check_slow_readers(state)
    _check_who_comes_next(state)


def _check_slow_readers(state: State) -> None:
    """Who read the compactions at any time before and the manifests now, and opens what was ever there, is right."""
    ever: dict[str, bytes] = {}
    for disk in state.history:
        for path, data in disk.items():
            if f"/{HOME}/" not in path:
                assert ever.setdefault(path, data) == data, f"{path} has changed: {state.schedule}"
    now = MemoryDisk(state.disk)
    entries = list(manifest.published(now, TARGET))
    counts = {sum(path.endswith(".done.json") for path in disk) for disk in state.history}
    done = records.read(now, LAYOUT).done
    for count in counts:
        names = [path for entry in live.after(entries, done[:count]) for path, _ in entry.files]
        seen = Counter(line for name in names for line in ever[join(TARGET, name)].splitlines())

        assert seen == rows(now), f"a reader who read {count} compactions: {state.schedule}"


def _check_who_comes_next(state: State) -> None:
    """If all die here, the next run finishes it, and nothing is left lying about."""
    left = MemoryDisk(state.disk)
    compactor(left).run()

    check_end(left, state)


def check_end(files: MemoryDisk, state: State) -> None:
    known = records.read(files, LAYOUT)
    stray = [name for name in below_home(files, "compacting") if int(name[:12]) <= known.last]

    assert known.is_finished, state.schedule
    assert known.removed == set(range(1, known.last + 1)), state.schedule
    assert rows_by_manifest(files) == rows(files), state.schedule
    assert rows_of_folder(files) >= rows(files), state.schedule
    unlisted = rows_of_folder(files) - rows(files)  # an epoch whose manifest does not exist yet
    assert set(unlisted) <= {b"%d" % EPOCHS}, state.schedule
    assert sum(len(names) for names in listed(files).values()) == 1, state.schedule
    assert stray == [], state.schedule


def search(*programs: Program, at_reads: bool) -> int:
    """Check every state that the programs can come to; how many there were."""
    states = ends = 0
    with patch.object(uuid, "uuid4", _Known):
        for state in explore(disk(), programs, at_reads=at_reads):
            states += 1
            ends += all(state.over)
            if state.is_new:
                check(state)

    assert ends > 0
    return states


# With others getting in before each read too, and more programs: integration_tests/test_compaction_full.py.
def test_two_compactors_in_every_order_of_their_steps_show_every_row_exactly_once() -> None:
    assert search(compact, compact, at_reads=False) > 400


def test_a_compactor_beside_a_stream_shows_every_row_exactly_once() -> None:
    assert search(compact, go_on, at_reads=True) > 100


def test_the_search_sees_what_a_compactor_without_records_would_break() -> None:
    def careless(files: PacedDisk) -> None:
        """Joins, shows and removes, as a script would do it."""
        old = [join(TARGET, name_of(epoch)) for epoch in range(EPOCHS)]
        files.join_copies(join(TARGET, "joined"), old)
        for path in old:
            files.delete(path)

    with pytest.raises(AssertionError):
        search(careless, at_reads=False)
