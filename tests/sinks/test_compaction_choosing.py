"""Which files are joined."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from epochal.sinks.files.compaction.choosing import Choice, LiveFile, Unfit, choose, live_files
from epochal.sinks.files.compaction.joinable import Format, format_of
from epochal.sinks.files.layout import ending_of
from epochal.sinks.files.manifest import PublishedEpoch
from tests.sinks.compacting import LINEAGE, name_of

LIMIT = 100


def small(epoch: int, size: int = 10, *, bucket: str = "", ending: str = ".json", lineage: str = LINEAGE) -> LiveFile:
    name = name_of(epoch, ending=ending, lineage=lineage)
    return LiveFile(f"{bucket}/{name}" if bucket else name, size, lineage, f"{epoch:012d}", epoch)


def chosen(
    *files: LiveFile, missing: frozenset[int] = frozenset(), keys: Mapping[int, str | None] | None = None
) -> Choice:
    def key(file: LiveFile, _: Format) -> str:
        found = (keys or {}).get(file.epoch, "")
        if found is None:
            raise Unfit("encrypted")
        return found

    there = {file.name: file.bytes for file in files if file.epoch not in missing}
    return choose(files, LIMIT, lambda _: there, key)


def epochs(choice: Choice) -> list[list[int]]:
    return [[file.epoch for file in group.files] for group in choice.groups]


def test_neighbours_fill_one_file_after_the_other_up_to_the_limit() -> None:
    assert epochs(chosen(*(small(epoch, 30) for epoch in range(8)))) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert epochs(chosen(small(0, 50), small(1, 50), small(2, 1))) == [[0, 1]]


def test_one_alone_is_not_joined() -> None:
    assert epochs(chosen(small(0))) == []
    assert epochs(chosen(small(0, 60), small(1, 60), small(2, 60))) == []


def test_a_large_file_stays_and_keeps_its_place() -> None:
    assert epochs(chosen(small(0), small(1), small(2, 100), small(3), small(4), small(5, 500), small(6))) == [
        [0, 1],
        [3, 4],
    ]


def test_buckets_endings_and_lineages_stay_apart() -> None:
    files = [
        small(epoch, bucket=bucket, ending=ending, lineage=lineage)
        for epoch in range(2)
        for bucket in ("b=1", "b=2")
        for ending in (".json", ".json.gz")
        for lineage in (LINEAGE, "other")
    ]

    choice = chosen(*files)

    assert len(choice.groups) == 8
    for group in choice.groups:
        assert len({(f.bucket, ending_of(f.path), f.lineage) for f in group.files}) == 1


def test_a_missing_file_is_named_and_its_neighbours_are_not_joined_over_it() -> None:
    choice = chosen(*(small(epoch) for epoch in range(5)), missing=frozenset({2}))

    assert epochs(choice) == [[0, 1], [3, 4]]
    assert choice.missing == [name_of(2)]


def test_a_file_of_another_length_than_recorded_is_as_if_missing() -> None:
    files = [small(0), small(1), small(2)]
    choice = choose(files, LIMIT, lambda _: {f.name: 10 + f.epoch // 2 for f in files}, lambda *_: "")

    assert epochs(choice) == [[0, 1]]
    assert choice.missing == [name_of(2)]


def test_what_has_another_key_begins_a_new_file() -> None:
    choice = chosen(*(small(epoch) for epoch in range(5)), keys={0: "a", 1: "a", 2: "b", 3: "b", 4: "a"})

    assert epochs(choice) == [[0, 1], [2, 3]]
    assert [group.key for group in choice.groups] == ["a", "b"]


def test_what_cannot_be_joined_is_named_with_the_reason() -> None:
    choice = chosen(*(small(epoch) for epoch in range(5)), keys={2: None})

    assert epochs(choice) == [[0, 1], [3, 4]]
    assert choice.unfit == [(name_of(2), "encrypted")]


def test_nothing_is_asked_of_files_that_stand_alone() -> None:
    def never(*_: object) -> str:
        raise AssertionError

    choose([small(0), small(1, 200), small(2)], LIMIT, never, never)  # type: ignore[arg-type]


def test_other_endings_are_counted() -> None:
    odd = LiveFile("odd", 1, LINEAGE, "000000000000", 0)
    choice = chosen(small(0, ending=".xml"), small(1, ending=".xml"), small(2, ending=".json.zst"), odd)

    assert choice.groups == []
    assert choice.other == {".xml": 2, ".json.zst": 1, "": 1}


def test_files_come_in_the_order_of_epochs_and_of_the_rolls_after_them() -> None:
    def entry(epoch: int, generation: int = 1, roll: int = 0) -> PublishedEpoch:
        return PublishedEpoch(LINEAGE, epoch, generation, "", 0, ((f"{epoch}.{generation}.{roll}", 1),), roll)

    given = [entry(2), entry(1, 3, 1), entry(1, 2, 2), entry(1, 2, 1), entry(1), entry(10)]

    assert [file.path for file in live_files(given)] == ["1.1.0", "1.2.1", "1.2.2", "1.3.1", "2.1.0", "10.1.0"]


@pytest.mark.parametrize(
    ("ending", "name", "codec"),
    [
        (".json", "json", None),
        (".txt.bz2", "text", "bzip2"),
        (".csv.gz", "csv", "gzip"),
        (".parquet", "parquet", "none"),
        (".lz4raw.parquet", "parquet", "lz4_raw"),
        (".zlib.orc", "orc", "zlib"),
        (".avro", "avro", None),
    ],
)
def test_an_ending_tells_the_format_and_the_codec(ending: str, name: str, codec: str | None) -> None:
    assert format_of(ending) == Format(name, codec)


@pytest.mark.parametrize("ending", [".xml", ".json.snappy", ".br.parquet", "", ".tsv", ".json.json"])
def test_other_endings_are_left_alone(ending: str) -> None:
    assert format_of(ending) is None


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("part-000000000042-00000-1f0c9a2e.snappy.parquet", ".snappy.parquet"),
        ("b=x.json/part-000000000042.3.1-00000-1f0c9a2e~2.csv", ".csv"),
        ("part-000000000042.c12-00000-1f0c9a2e.json.gz", ".json.gz"),
        ("part-42-0-1f0c9a2e.json", ""),
        ("notes.json", ""),
    ],
)
def test_the_ending_of_a_published_file(name: str, ending: str) -> None:
    assert ending_of(name) == ending
