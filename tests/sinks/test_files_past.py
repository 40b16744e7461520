"""A file target at an epoch, by its manifest: which files hold the rows of the epochs up to it. No Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epochal import RollingFileSink
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.past import Past, Reading, reading_of
from epochal.sinks.storage.register import Register
from epochal.txn.errors import CutGone
from epochal.txn.model import Claim, Description
from epochal.txn.past import NoPast, SinkAt
from tests.sinks.compacting import LINEAGE, TARGET, MemoryDisk, compactor, name_of, publish

COLUMNS: Any = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
JSON = Description({"type": "files", "target": TARGET, "format": "json", "reading": {"columns": COLUMNS}})


def past(files: MemoryDisk, epoch: int, *, lineage: str = LINEAGE, description: Description = JSON) -> Past:
    return Past(files, Layout(TARGET), SinkAt("files", lineage, epoch, description, {1: description}))


def disk(*epochs: int, lineage: str = LINEAGE) -> MemoryDisk:
    files = MemoryDisk()
    for epoch in epochs:
        publish(files, epoch, {name_of(epoch, lineage=lineage): f"{epoch}\n".encode()}, lineage=lineage)
    return files


def listed(past: Past) -> list[str]:
    return [path for entry in past._entries()[0] for path, _ in entry.files]


def test_later_epochs_are_not_in_it() -> None:
    files = disk(0, 1, 2)

    assert listed(past(files, 1)) == [name_of(0), name_of(1)]
    assert past(files, 1).pin() == {"files": 2, "bytes": 4, "streams": [LINEAGE]}


def test_what_was_closed_after_an_epoch_and_before_the_next_is_in_it() -> None:
    files = disk(0, 1)
    publish(files, 0, {"rolled.json": b"early\n"}, roll=1)

    assert "rolled.json" in listed(past(files, 0))
    assert name_of(1) not in listed(past(files, 0))


def test_a_compaction_of_earlier_epochs_changes_the_files_and_not_the_rows() -> None:
    files = disk(0, 1)
    compactor(files).run()
    publish(files, 2, {name_of(2): b"2\n"})

    assert [files.read(f"{TARGET}/{path}") for path in listed(past(files, 1))] == [b"0\n1\n"]


def test_a_compaction_across_the_epoch_is_told_once_its_old_files_are_gone() -> None:
    files = disk(0, 1, 2)
    compactor(files, grace=60.0).run()
    within_grace = listed(past(files, 1))
    compactor(files, now=2000.0).run()

    assert within_grace == [name_of(0), name_of(1)]
    with pytest.raises(CutGone, match=r"epoch 1 can no longer be read: `epochal compact` has joined .* up to 2"):
        past(files, 1).pin()
    assert len(listed(past(files, 2))) == 1


def test_the_streams_whose_place_it_took_are_in_it_and_others_are_named() -> None:
    files = disk(0, 1)
    publish(files, 7, {"older.json": b"7\n"}, lineage="0000older")
    publish(files, 9, {"other.json": b"9\n"}, lineage="0000other")
    claim = Claim(lineage=LINEAGE, generation=1, start="s", journal="/j", replaces=("0000older",))
    assert Register(files, Layout(TARGET).lineages).claim(claim, version=0)

    pin = past(files, 0).pin()
    assert listed(past(files, 0)) == ["older.json", name_of(0)]
    assert pin["others"] == ["0000other"]


@pytest.mark.parametrize("lineage", [LINEAGE, f"{LINEAGE}~2"])
def test_the_streams_whose_place_those_took_or_an_earlier_incarnation_are_in_it_too(lineage: str) -> None:
    files = disk(0, lineage=lineage)
    publish(files, 7, {"older.json": b"7\n"}, lineage="0000older")
    publish(files, 8, {"oldest.json": b"8\n"}, lineage="0000oldest")
    register = Register(files, Layout(TARGET).lineages)
    for version, (stream, replaces) in enumerate(
        [("0000older", ("0000oldest",)), (LINEAGE, ("0000older",)), (lineage, ())]
    ):
        claim = Claim(lineage=stream, generation=1, start="s", journal="/j", replaces=replaces)
        assert register.claim(claim, version=version)

    assert sorted(listed(past(files, 0, lineage=lineage))) == sorted(
        ["older.json", "oldest.json", name_of(0, lineage=lineage)]
    )


def test_earlier_incarnations_of_the_query_are_in_it_and_later_ones_are_not() -> None:
    files = disk(0, 1, 2)
    publish(files, 1, {"second.json": b"1\n"}, lineage=f"{LINEAGE}~2")
    publish(files, 2, {"third.json": b"2\n"}, lineage=f"{LINEAGE}~3")

    assert listed(past(files, 1, lineage=f"{LINEAGE}~2")) == [name_of(0), name_of(1), name_of(2), "second.json"]


def test_a_text_format_needs_the_columns_that_its_start_recorded() -> None:
    files = disk(0)
    old = Description({"type": "files", "target": TARGET, "format": "json"})

    with pytest.raises(NoPast, match="an older epochal started the query"):
        past(files, 0, description=old).pin()
    parquet = Description({**old.settings, "format": "parquet"})
    with pytest.raises(NoPast, match="no files yet"):
        past(MemoryDisk(), 0, description=parquet).pin()


def test_encrypted_files_are_left_to_who_has_the_key() -> None:
    secret = Description({**JSON.settings, "reading": {"columns": COLUMNS, "encrypted": True}})

    with pytest.raises(NoPast, match="encrypted"):
        past(disk(0), 0, description=secret).pin()


def test_a_file_is_read_as_its_own_start_wrote_it() -> None:
    files = disk(0)
    publish(files, 1, {name_of(1, ending=".csv"): b"1\n"}, generation=2)
    publish(files, 2, {name_of(2, ending=".csv"): b"2\n"}, generation=4)
    csv = {"type": "files", "target": TARGET, "format": "csv"}
    tabs = Description({**csv, "reading": {"columns": COLUMNS, "options": {"sep": "\t"}}})
    bars = Description({**csv, "reading": {"columns": COLUMNS, "options": {"sep": "|"}}})
    one = past(files, 2)
    at = replace(one, at=replace(one.at, description=bars, starts={1: JSON, 3: tabs, 4: bars}))

    entries = at._entries()[0]
    readings = [at._reading(entry, path) for entry in entries for path, _ in entry.files]
    assert [(one.format, dict(one.options)) for one in readings] == [
        ("json", {}),
        ("csv", {"sep": "\t"}),  # the record of generation 2 is gone: the first one after it
        ("csv", {"sep": "|"}),
    ]


class Schema:
    def json(self) -> str:
        return (
            '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"note":"x"}},'
            '{"name":"day","type":"string","nullable":true,"metadata":{}}]}'
        )


def test_only_what_a_reader_needs_of_the_options_is_recorded() -> None:
    sink = RollingFileSink(
        "archive",
        format="csv",
        bucket_by=["day"],
        drop_bucket_columns=True,
        options={"Sep": ";", "quoteAll": "true", "some.password": "hunter2"},
    )
    schema: Any = Schema()
    found = reading_of(sink, schema)

    assert found.options == {"Sep": ";"}
    assert found.folders == ("day",)
    assert "note" not in str(found.columns)
    assert Reading.of({"format": "csv", "reading": found.to_json()}) == found
