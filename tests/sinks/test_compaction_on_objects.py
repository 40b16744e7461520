"""Compaction of a target on an object store, by several processes at once, while its requests fail."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from epochal.sinks.files.compaction import records
from epochal.sinks.files.layout import Layout
from epochal.sinks.storage.objects import ObjectSinkFiles
from epochal.sinks.storage.objects.patience import Patience
from epochal.testing.processes import in_threads
from tests.sinks.compacting import below_home, compactor, name_of, publish, rows_by_manifest, rows_of_folder, visible
from tests.sinks.object_memory import Memory, MemoryClient

URL = "s3://bucket"
TARGET = f"{URL}/orders"
QUICK = Patience(tries=60, first=0.0, sleep=lambda _: None)
EPOCHS = 30


def files_on(memory: Memory, *, seed: int = 0, share: float = 0.0, copies: bool = True) -> ObjectSinkFiles:
    return ObjectSinkFiles(URL, MemoryClient(memory, seed=seed, share=share), lambda: copies, patience=QUICK)


@pytest.mark.parametrize("copies", [True, False], ids=["copied-by-the-store", "copied-through-memory"])
@pytest.mark.parametrize("seed", range(8))
def test_compactions_that_meet_on_a_failing_store_keep_every_row_once(seed: int, copies: bool) -> None:
    memory = Memory()
    files = files_on(memory)
    for epoch in range(EPOCHS):
        publish(files, epoch, {f"day={epoch % 2}/{name_of(epoch)}": b"%d\n" % epoch}, target=TARGET)
    failing = [files_on(memory, seed=10 * seed + number, share=0.25, copies=copies) for number in range(3)]

    told = in_threads([partial(compactor(one, target=TARGET, max_bytes=20).run) for one in failing])
    while memory.late:
        memory.late.pop()()
    compactor(files, target=TARGET, max_bytes=20).run()

    assert not [answer for answer in told if isinstance(answer, Exception) and not isinstance(answer, OSError)], told
    rows = Counter(b"%d" % epoch for epoch in range(EPOCHS))
    assert rows_by_manifest(files, TARGET) == rows
    assert rows_of_folder(files, TARGET) == rows
    assert len(visible(files, TARGET)) < EPOCHS
    assert below_home(files, "compacting", TARGET) == []
    known = records.read(files, Layout(TARGET))
    assert known.removed == set(range(1, known.last + 1))
