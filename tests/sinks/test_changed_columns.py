"""Columns that change between two starts: what a target remembers, and which changes bind nobody. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, LongType, MapType, StringType, StructType

from epochal import RollingFileSink
from epochal.sinks.files.columns import KEY, Brought, ColumnHistory, FileColumns, TargetColumns
from epochal.sinks.files.formats.evolution import bare, differences
from epochal.sinks.files.layout import Layout
from epochal.sinks.files.manifest import PublishedEpoch
from epochal.sinks.storage.register import Register
from epochal.txn.errors import BadRows, JournalCorrupt
from epochal.txn.files import LocalFiles, join
from epochal.txn.model import Attempt, Claim

OURS, THEIRS = "1f0c9a2e-77", "2b0c9a2e-77"
INT = StructType().add("id", LongType()).add("amount", IntegerType())
TEXT = StructType().add("id", LongType()).add("amount", StringType())

MORE_INT, MORE_TEXT = (StructType([*INT.fields]).add("more", kind) for kind in (IntegerType(), StringType()))


class Target:
    """A target on a local disk, and the starts of streams that write to it."""

    def __init__(self, path: Path) -> None:
        self.files, self.layout = LocalFiles(sync=False), Layout(str(path))
        self.register = Register(self.files, self.layout.lineages)
        self._generation = 0

    def columns(self, schema: StructType, *, capitals_count: bool = False, **options: Any) -> TargetColumns:
        sink = RollingFileSink(self.layout.target, **options)
        return TargetColumns(sink, self.files, self.layout, schema, capitals_count)

    def start(
        self,
        schema: StructType,
        *,
        lineage: str = OURS,
        decided: int = -1,
        replaces: tuple[str, ...] = (),
        **options: Any,
    ) -> list[str]:
        """What a start is refused for; if there is nothing, it has claimed the target."""
        columns = self.columns(schema, **options)
        if found := columns.faults(self.register):
            return found
        claim = self.claim(lineage, replaces=replaces, decided=decided)
        version = self.register.read().version
        try:
            assert self.register.claim(claim, version=version, notes=lambda before: columns.noted(claim, before))
        except BadRows as refused:
            return [str(refused)]
        return []

    def claim(self, lineage: str, **facts: Any) -> Claim:
        self._generation += 1
        return Claim(lineage=lineage, generation=self._generation, start=f"s{self._generation}", journal="/j", **facts)

    def fence(self, lineage: str) -> None:
        assert self.register.claim(self.claim(lineage), version=self.register.read().version)

    def attempt(self, epoch: int, lineage: str = OURS) -> Attempt:
        return Attempt(lineage, epoch, self._generation, start=f"s{self._generation}")

    def stage(self, epoch: int, lineage: str = OURS) -> Attempt:
        attempt = self.attempt(epoch, lineage)
        self.files.create(join(self.layout.attempt(attempt), "data"), b"rows")
        return attempt

    def publish(self, epoch: int, *, rows: int = 1, lineage: str = OURS, generation: int | None = None) -> None:
        files = ((f"part-{epoch}", 10),) if rows else ()
        entry = PublishedEpoch(lineage, epoch, generation or self._generation, "offsets", rows, files)
        name = self.layout.manifest_name(Attempt(lineage, epoch, self._generation))
        assert self.files.create(join(self.layout.target, name), entry.encode())

    def brought(self) -> list[Brought]:
        return list(ColumnHistory.of(self.files, self.layout, self.register.read()).brought)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def test_another_type_is_refused_with_the_column_both_types_and_what_to_do(target: Target) -> None:
    target.start(INT)
    target.publish(0)

    (fault,) = target.start(TEXT)

    assert "amount: string, was int (of stream 1f0c9a2e, from epoch 0 on)" in fault
    assert target.layout.target in fault
    assert "changed_columns='allow'" in fault
    assert len(target.brought()) == 1


def test_the_same_columns_are_recorded_once_however_often_a_stream_starts(target: Target) -> None:
    for epoch in range(5):
        assert target.start(INT) == []
        target.publish(epoch)

    assert [(one.lineage, one.after) for one in target.brought()] == [(OURS, -1)]


def test_a_start_that_wrote_nothing_binds_nobody(target: Target) -> None:
    target.start(TEXT)
    target.publish(0, rows=0)

    assert target.start(INT) == []
    target.publish(1)
    assert [one.what.columns[1][1] for one in target.brought()] == ["integer"]  # what was never written is forgotten
    assert target.start(TEXT) != []


def test_rows_that_are_only_open_bind_others(target: Target) -> None:
    target.start(TEXT)
    target.files.create(join(target.layout.open(OURS, 0), "piece"), b"rows")

    assert target.start(INT) != []


def test_what_another_stream_has_staged_binds_until_it_is_decided_and_the_error_says_how(target: Target) -> None:
    target.start(INT, lineage=THEIRS)
    target.publish(0, lineage=THEIRS)
    target.start(MORE_TEXT, lineage=THEIRS)
    lost = target.stage(1, lineage=THEIRS)
    target.start(INT, lineage=THEIRS)  # corrected

    (fault,) = target.start(MORE_INT)
    assert "more: int, was string (of stream 2b0c9a2e, staged for epoch 1, which is in doubt: " in fault
    assert "`epochal resolve --abort`" in fault
    assert OURS not in target.register.read().claims
    target.publish(1, lineage=THEIRS)
    target.files.delete(target.layout.attempt(lost))
    assert target.start(MORE_INT) == []


def test_a_type_that_was_killed_while_staging_can_be_corrected(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(MORE_TEXT)
    target.stage(1)

    assert target.start(MORE_INT, decided=0) == []
    columns = target.columns(MORE_INT)
    columns.check_own(target.stage(1), target.register)
    target.publish(1)
    columns.check_own(target.attempt(2), target.register)
    assert "more: string, was int" in target.start(MORE_TEXT, decided=1)[0]


def test_an_older_attempt_that_wins_after_all_stops_the_corrected_stream_before_the_next_epoch(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(MORE_TEXT)
    older = target.stage(1)
    target.start(MORE_INT, decided=0)
    target.stage(1)
    target.publish(1, generation=older.generation)

    with pytest.raises(BadRows, match=r"more: int, was string \(of stream 1f0c9a2e, from epoch 1 on\)"):
        target.columns(MORE_INT).check_own(target.attempt(2), target.register)
    assert target.start(MORE_INT, decided=1) != []
    assert target.start(MORE_TEXT, decided=1) == []


def test_what_this_stream_has_staged_for_a_decided_epoch_binds_it(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(MORE_TEXT)
    target.stage(1)

    (fault,) = target.start(MORE_INT, decided=1)

    assert "staged for epoch 1, which is decided: `epochal recover`" in fault


@pytest.mark.parametrize("first_has_written", [False, True])
def test_of_two_streams_that_bring_a_column_of_different_types_the_second_is_refused(
    target: Target, first_has_written: bool
) -> None:
    for lineage in (OURS, THEIRS):
        assert target.start(INT, lineage=lineage) == []
        target.publish(0, lineage=lineage)
    assert target.start(MORE_INT) == []
    if first_has_written:
        target.publish(1)

    (fault,) = target.start(MORE_TEXT, lineage=THEIRS)

    assert "more: string, was int (of stream 1f0c9a2e" in fault
    assert target.start(MORE_INT, lineage=THEIRS) == []


def test_columns_that_were_never_written_bind_nobody_once_their_driver_is_fenced_or_replaced(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(MORE_TEXT, lineage=THEIRS)
    (fault,) = target.start(MORE_INT)
    assert "has written none yet" in fault
    assert "`epochal gc --fence`" in fault

    assert target.start(MORE_INT, replaces=(THEIRS,)) == []
    target.start(INT)
    target.start(MORE_TEXT, lineage="third")
    target.fence("third")
    assert target.start(MORE_INT) == []


def test_rows_that_were_published_by_a_roll_bind_others(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(TEXT, changed_columns="allow")
    entry = PublishedEpoch(OURS, 0, 2, "", 0, (("rolled", 10),), roll=1)
    name = target.layout.manifest_name(Attempt(OURS, 0, 2, roll=1))
    target.files.create(join(target.layout.target, name), entry.encode())

    assert target.start(INT) != []


def test_a_change_that_was_accepted_once_need_not_be_accepted_again(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    assert target.start(TEXT, changed_columns="allow") == []
    target.publish(1)

    assert target.start(TEXT) == []
    assert "amount: int, was string" in target.start(INT)[0]


def test_a_change_that_was_accepted_and_never_written_can_be_taken_back(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(TEXT, changed_columns="allow")

    assert target.start(INT) == []
    assert target.start(TEXT) != []


def test_a_change_that_another_stream_accepted_and_never_wrote_frees_nobody(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    target.start(TEXT, lineage=THEIRS, changed_columns="allow")

    assert target.start(TEXT) != []
    assert target.start(INT) == []


def test_a_column_that_left_and_comes_back_with_another_type_is_refused(target: Target) -> None:
    for epoch, schema in enumerate((INT, StructType().add("id", LongType()))):
        assert target.start(schema) == []
        target.publish(epoch)

    assert "amount: string, was int" in target.start(TEXT)[0]


def test_another_stream_is_held_to_the_columns_too_also_one_that_takes_its_place(target: Target) -> None:
    target.start(INT, lineage=THEIRS)
    target.publish(0, lineage=THEIRS)

    assert "of stream 2b0c9a2e" in target.start(TEXT)[0]
    assert target.start(INT) == []
    assert [one.lineage for one in target.brought()] == [THEIRS, OURS]


def test_of_two_streams_that_start_at_once_the_second_is_refused_when_it_claims(target: Target) -> None:
    columns = target.columns(TEXT)
    assert columns.faults(target.register) == []
    target.start(INT, lineage=THEIRS)
    target.publish(0, lineage=THEIRS)
    claim = Claim(lineage=OURS, generation=1, start="s", journal="/j")

    with pytest.raises(BadRows, match="amount: string, was int"):
        target.register.claim(
            claim, version=target.register.read().version, notes=lambda before: columns.noted(claim, before)
        )
    assert OURS not in target.register.read().claims


def test_other_formats_do_not_bind_and_other_buckets_do(target: Target) -> None:
    target.start(INT)
    target.publish(0)

    assert target.start(TEXT, format="json") == []
    assert "bucket_by: id, was none" in target.start(INT, bucket_by=["id"])[0]


def test_a_target_of_an_older_version_has_no_columns_and_goes_on(target: Target) -> None:
    claim = Claim(lineage=OURS, generation=1, start="s", journal="/j")
    target.register.claim(claim, version=0)
    target.publish(0)

    assert target.start(TEXT) == []
    target.publish(1)
    assert target.start(INT) != []


def test_a_command_that_claims_a_target_keeps_its_columns(target: Target) -> None:
    target.start(INT)
    target.publish(0)
    sink = RollingFileSink(target.layout.target)
    claim = Claim(lineage=OURS, generation=9, start="s", journal="/j")
    assert sink.claim(claim, version=target.register.read().version)
    target.register.withdraw(claim)

    assert OURS not in target.register.read().claims
    assert target.start(TEXT) != []


def frame(schema: StructType, *, case_sensitive: str = "false") -> Any:
    """What a sink asks of a frame for its columns."""
    conf = {"spark.sql.caseSensitive": case_sensitive}
    return SimpleNamespace(schema=schema, sparkSession=SimpleNamespace(conf=conf))


@pytest.mark.parametrize("spelling", ["true", "TRUE", "True", " true "])
def test_capitals_count_however_the_setting_is_spelled(target: Target, spelling: str) -> None:
    sink = RollingFileSink(target.layout.target)
    one, two = StructType().add("a", LongType()), StructType().add("a", LongType()).add("A", StringType())
    assert sink.claim(target.claim(OURS), version=0, rows=frame(one, case_sensitive=spelling))
    target.publish(0)

    version = target.register.read().version
    assert sink.claim(target.claim(OURS), version=version, rows=frame(two, case_sensitive=spelling))


def test_a_claim_compares_and_records_the_columns_that_come_with_it_and_needs_no_earlier_call(target: Target) -> None:
    first, second = (RollingFileSink(target.layout.target) for _ in range(2))
    assert first.claim(target.claim(OURS), version=0, rows=frame(INT))
    target.publish(0)

    with pytest.raises(BadRows, match=r"amount: string, was int (?s:.*)Nothing was written"):
        second.claim(target.claim(OURS), version=target.register.read().version, rows=frame(TEXT))
    assert second.claim(target.claim(OURS), version=target.register.read().version, rows=frame(MORE_INT))
    assert [dict(one.what.columns).keys() for one in target.brought()] == [
        {"id", "amount"},
        {"id", "amount", "more"},
    ]


def test_a_description_has_the_columns_that_are_given_and_none_of_an_earlier_call(target: Target) -> None:
    sink = RollingFileSink(target.layout.target)
    assert sink.claim(target.claim(OURS), version=0, rows=frame(INT))
    whole: Any = sink.describe(frame(TEXT))

    assert [one["type"] for one in whole["reading"]["columns"]["fields"]] == ["long", "string"]
    assert sink.describe() == {key: value for key, value in whole.items() if key != "reading"}


def test_columns_that_were_changed_by_hand_are_no_columns(target: Target) -> None:
    target.start(INT)
    register = target.register.read()
    half: Any = {**target.brought()[0].to_json(), "columns": [["a"]]}
    broken: list[Any] = ["text", [1], [{"lineage": OURS}], [half]]
    for columns in broken:
        changed = replace(register, notes={KEY: columns})
        with pytest.raises(JournalCorrupt, match="restore it from a copy"):
            ColumnHistory.of(target.files, target.layout, changed)


def of(**columns: Any) -> list[tuple[str, Any]]:
    return list(columns.items())


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro", "json", "xml"])
def test_new_removed_and_moved_columns_fit(format_: str) -> None:
    assert differences(format_, of(a="long", b="string"), of(c="date", a="long")) == []


@pytest.mark.parametrize(
    ("before", "now", "typed", "as_text"),
    [
        ("integer", "long", False, True),
        ("long", "integer", False, False),
        ("short", "double", False, True),
        ("double", "float", False, False),
        ("decimal(10,2)", "decimal(12,2)", False, True),
        ("decimal(10,2)", "decimal(12,4)", False, True),
        ("decimal(10,2)", "decimal(10,4)", False, False),
        ("long", "decimal(20,0)", False, True),
        ("integer", "string", False, False),
        ("date", "timestamp", False, False),
        ("string", "string", True, True),
    ],
)
def test_only_text_formats_take_wider_numbers(before: str, now: str, typed: bool, as_text: bool) -> None:
    for format_, fits in (("parquet", typed), ("orc", typed), ("avro", typed), ("json", as_text), ("csv", as_text)):
        assert (differences(format_, of(v=before), of(v=now)) == []) is fits


def test_a_change_deep_inside_is_named_by_its_place() -> None:
    before = StructType().add("n", MapType(StringType(), ArrayType(StructType().add("x", IntegerType()))))
    now = StructType().add("n", MapType(StringType(), ArrayType(StructType().add("x", StringType()))))
    kinds = [[("n", bare(one.jsonValue()["fields"][0]["type"]))] for one in (before, now)]

    assert differences("parquet", *kinds) == ["n.value.element.x: string, was int"]


def test_whether_a_value_may_be_null_changes_nothing() -> None:
    one = StructType().add("v", ArrayType(DecimalType(10, 2), containsNull=False), nullable=False)
    other = StructType().add("v", ArrayType(DecimalType(10, 2), containsNull=True), metadata={"comment": "x"})
    sink = RollingFileSink("target")

    assert FileColumns.of(sink, one) == FileColumns.of(sink, other)


def test_a_column_that_only_differs_in_case_is_a_fault() -> None:
    assert differences("parquet", of(Amount="long"), of(amount="long")) == ["amount: was spelled Amount"]


def test_where_capitals_count_two_columns_may_differ_in_them_alone(target: Target) -> None:
    both = StructType().add("a", LongType()).add("A", StringType()).add("s", StructType().add("b", LongType()))
    assert target.start(both, capitals_count=True) == []
    target.publish(0)

    assert target.start(both, capitals_count=True) == []
    assert target.start(both) == []  # the same columns, whatever counts
    swapped = StructType().add("a", StringType()).add("A", LongType())
    (fault,) = target.start(swapped, capitals_count=True)
    assert "a: string, was bigint" in fault
    assert "A: bigint, was string" in fault
    assert target.start(StructType().add("S", LongType()), capitals_count=True) == []
    assert target.start(StructType().add("ID", LongType()).add("S", LongType())) != []


def test_csv_has_its_columns_by_position_and_text_has_none() -> None:
    assert differences("csv", of(a="long", b="long"), of(a="long", b="long", c="long")) == [
        "a, b, c: were a, b, and csv has its columns by position"
    ]
    assert differences("csv", of(a="long", b="long"), of(b="long", a="long")) != []
    assert differences("csv", of(a="long", day="date"), of(a="long"), folders=["day"]) == []
    assert differences("text", of(a="string"), of(b="string")) == []
    assert differences("text", of(a="string", day="date"), of(b="string", day="long"), folders=["day"]) != []


def test_the_type_of_a_column_in_folder_names_may_become_wider() -> None:
    assert differences("parquet", of(a="long", n="integer"), of(a="long", n="long"), folders=["n"]) == []
    assert differences("parquet", of(a="long", n="integer"), of(a="long", n="string"), folders=["n"]) != []
