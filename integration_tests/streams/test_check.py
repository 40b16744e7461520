"""What a check of configured streams finds with Spark, and that it writes nothing."""

from __future__ import annotations

import os
import runpy
import socket
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal import EpochWriter, RollingFileSink
from epochal.spark_plugins.streams.checking import check_settings, check_with_spark
from epochal.spark_plugins.streams.reading import from_file
from epochal.spark_plugins.streams.report import AWAY, FAULTS, OK
from integration_tests.examples import EXAMPLES
from integration_tests.spark.world import World
from integration_tests.streams.texts import checked, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder, with size and time."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for root, folders, files in os.walk(folder)
        for path in [Path(root), *(Path(root, name) for name in (*folders, *files))]
    }


def only_faults(spark: SparkSession, world: World, text: str) -> list[str]:
    return checked(spark, world.root, text).report.all_faults


@pytest.fixture
def fed(world: World) -> World:
    world.feed(1)
    return world


def test_a_good_stream_has_no_faults_and_its_columns_are_known(spark: SparkSession, fed: World) -> None:
    text = stream(fed, "good", 'sql = "SELECT id, upper(word) AS loud FROM source WHERE id > 1;"')
    found = checked(spark, fed.root, text)
    before = everything(fed.root)
    again = checked(spark, fed.root, text)

    assert found.report.code == again.report.code == OK
    assert found.report.streams[0].columns == ["id bigint", "loud string"]
    assert found.report.streams[0].state == "new"
    settings = str(fed.root / "streams.toml")  # the test writes it anew
    assert {k: v for k, v in everything(fed.root).items() if k != settings} == {
        k: v for k, v in before.items() if k != settings
    }
    assert sorted(path.name for path in fed.root.iterdir()) == ["source", "streams.toml"]


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("SELECT 1; SELECT 2", "[PARSE_SYNTAX_ERROR]"),
        ("SELECT * FROM source; DROP TABLE x", "[PARSE_SYNTAX_ERROR]"),
        ("SELECT 1) UNION (SELECT * FROM source", "[PARSE_SYNTAX_ERROR]"),
        ("CREATE TABLE made USING parquet AS SELECT 1 AS a", "other statements and several of them are refused"),
        ("INSERT INTO made SELECT * FROM source", "other statements and several of them are refused"),
        ("SET spark.sql.ansi.enabled=false", "other statements and several of them are refused"),
        ("DROP VIEW source", "other statements and several of them are refused"),
        ("SELEC * FROM source", "[PARSE_SYNTAX_ERROR]"),
        ("SELECT 1 AS one", "the query reads no stream"),
        ("SELECT * FROM sorce", "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("SELECT wrd FROM source", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("WITH source AS (SELECT 1 AS a) SELECT * FROM source", "the query reads no stream"),
        ("SELECT word, count(*) AS n FROM source GROUP BY word", "streaming aggregations"),
    ],
)
def test_sql_that_is_no_query_over_the_source_is_refused_and_not_carried_out(
    spark: SparkSession, fed: World, sql: str, fault: str
) -> None:
    (found,) = only_faults(spark, fed, stream(fed, "orders", f'sql = "{sql}"'))

    assert found.startswith("streams.orders.")
    assert fault in found
    assert "\n" not in found
    assert not spark.catalog.tableExists("made")
    assert not spark.catalog.tableExists("source")  # the view is gone


def test_a_table_that_the_view_shadows_can_be_named_in_full(spark: SparkSession, fed: World) -> None:
    spark.sql(f"CREATE TABLE source USING parquet LOCATION '{fed.root}/rates' AS SELECT 'one' AS word, 2 AS rate")
    try:
        sql = "SELECT s.id, r.rate FROM source s JOIN default.source r USING (word)"
        found = checked(spark, fed.root, stream(fed, "orders", f'sql = "{sql}"'))
    finally:
        spark.sql("DROP TABLE default.source")

    assert found.report.all_faults == []
    assert found.report.streams[0].columns == ["id bigint", "rate int"]


def test_all_faults_of_sources_sql_and_sinks_come_in_one_report(spark: SparkSession, fed: World) -> None:
    unloadable = stream(fed, "unloadable").replace('"parquet"', '"parqet"')
    missing = stream(fed, "missing").replace(f'path = "{fed.source}"', f'path = "{fed.root}/nowhere"')
    late = stream(fed, "late", '[streams.late.watermark]\ncolumn = "tme"\ndelay = "1 hour"')
    soon = stream(fed, "soon", '[streams.soon.watermark]\ncolumn = "id"\ndelay = "soon"')
    columns = stream(fed, "columns", 'sql = "SELECT id AS _epochal_id, word FROM source"') + 'bucket_by = ["kind"]\n'
    typo = stream(fed, "typo", 'sql = "SELECT wrd FROM source"') + 'fromat = "json"\n'
    file = fed.root / "a-file"
    file.touch()
    blocked = stream(fed, "blocked", checkpoint=file, target=file / "below")

    report = checked(spark, fed.root, unloadable + missing + late + soon + columns + typo + blocked).report

    found = {one.name: one.faults for one in report.streams}
    assert report.code == FAULTS
    assert "parqet" in found["unloadable"][0]
    assert "Did you mean 'parquet'?" in found["unloadable"][0]
    assert "[PATH_NOT_FOUND]" in found["missing"][0]
    assert found["late"][0].startswith("streams.late.watermark.column='tme': the source has no such column")
    assert "streams.soon.watermark" in found["soon"][0]
    assert any("_epochal_id" in fault for fault in found["columns"])
    assert any(fault.startswith("sink 'out'") and "kind" in fault for fault in found["columns"])
    assert "did you mean 'format'?" in found["typo"][0]  # and the SQL, though the sink could not be made
    assert "UNRESOLVED_COLUMN" in found["typo"][1]
    assert any("checkpoint" in fault and "is not a folder" in fault for fault in found["blocked"])
    assert any("sink 'out'" in fault and "is not a folder" in fault for fault in found["blocked"])


def test_a_fault_hides_no_other_that_can_be_known_without_it(spark: SparkSession, fed: World) -> None:
    file = fed.root / "a-file"
    file.touch()
    sql = stream(fed, "sql", 'sql = "SELECT wrd FROM source"', checkpoint=file, target=file / "below")
    second = '[streams.sql.sinks.second]\ntype = "files"\npath = "{}"\nfromat = "json"\n'.format(fed.root / "x")
    source = stream(fed, "source", 'sql = "DROP TABLE x"', target=file / "below").replace('"parquet"', '"parqet"')
    late = stream(
        fed, "late", 'sql = "SELECT wrd FROM source"\n[streams.late.watermark]\ncolumn = "tme"\ndelay = "1 hour"'
    )
    options = stream(fed, "options", 'sql = "SELECT wrd FROM source"', trigger="once", checkpoint=file)
    taken = stream(fed, "taken", '[streams.taken.watermark]\ncolumn = "tme"\ndelay = "1 hour"', target=file / "below")

    report = checked(spark, fed.root, sql + second + source + late + options + taken).report

    def of(stream: str, *parts: str) -> bool:
        faults = {one.name: one.faults for one in report.streams}[stream]
        return len(faults) == len(parts) and all(any(part in fault for fault in faults) for part in parts)

    blocked = f"{file} is not a folder"
    assert of("sql", "did you mean 'format'?", "UNRESOLVED_COLUMN", f"sink 'out': {blocked}", f"checkpoint: {blocked}")
    assert of("source", "parqet", "other statements and several of them are refused", f"sink 'out': {blocked}")
    assert of("late", "watermark.column='tme'", "UNRESOLVED_COLUMN")
    assert of("options", "trigger='once'", "UNRESOLVED_COLUMN", f"checkpoint: {blocked}")
    assert of("taken", "watermark.column='tme'", f"sink 'out': {blocked}")


def test_two_streams_on_one_checkpoint_or_target_are_a_fault_however_they_are_spelled(
    spark: SparkSession, fed: World
) -> None:
    one = stream(fed, "one", checkpoint=fed.root / "c", target=fed.root / "t")
    two = stream(fed, "two", checkpoint=Path(f"file://{fed.root}") / "x" / ".." / "c", target=fed.root / "t")
    two = two.replace("file:/", "file:///", 1)

    faults = checked(spark, fed.root, one + two.replace("/x/../c", "/c")).report.faults

    assert faults == [
        f"streams 'one', 'two' have the same checkpoint, {fed.root}/c; give each its own",
        f"streams 'one', 'two' have the same target, {fed.root}/t; give each its own",
    ]


def test_a_store_that_is_away_is_no_fault_and_exit_code_1(spark: SparkSession, fed: World) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        sink = f'[streams.orders.sinks.serving]\ntype = "cassandra"\ntable = "a.b"\nport = {taken.getsockname()[1]}\n'
        report = checked(spark, fed.root, stream(fed, "orders") + sink).report

    assert report.all_faults == []
    assert report.code == AWAY
    assert any("serving" in text for text in report.streams[0].away)
    assert report.streams[0].verdict.endswith("unchecked")


def test_what_a_start_would_refuse_is_found_for_old_and_for_new_checkpoints(spark: SparkSession, fed: World) -> None:
    target, checkpoint = fed.root / "t", fed.root / "c"
    frame = spark.readStream.schema("id long").parquet(str(fed.source))
    EpochWriter(RollingFileSink(str(target), name="out")).start(
        frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    ).awaitTermination()
    before = everything(fed.root)

    same = checked(spark, fed.root, stream(fed, "same", checkpoint=checkpoint, target=target)).report
    (other,) = only_faults(spark, fed, stream(fed, "other", target=target))
    (fed.root / "streams.toml").unlink()

    assert same.all_faults == []
    assert same.streams[0].state == "existing"
    assert "adopt='" in other
    assert {k: v for k, v in everything(fed.root).items() if k != str(fed.root)} == {
        k: v for k, v in before.items() if k != str(fed.root)
    }


def test_the_example_of_properties_has_no_faults_and_names_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLES / "quickstart.py"))["put_sample_orders"](tmp_path / "incoming")
    text = (EXAMPLES / "orders.properties").read_text()
    for relative in (" incoming\n", " properties/"):  # Spark runs in another folder
        assert relative in text
        text = text.replace(relative, f" {tmp_path}/{relative.strip()}" + relative[len(relative.rstrip()) :])
    settings = tmp_path / "orders.properties"
    settings.write_text(text)
    report = check_with_spark(spark, check_settings(from_file(str(settings)))).report

    assert report.all_faults == []
    assert report.streams[0].columns == ["order_id bigint", "customer string", "amount decimal(10,2)", "day date"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["incoming", "orders.properties"]


@pytest.fixture
def _sqlite_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`examples/sqlite-sink`, found by the entry point of its own pyproject.toml, as if it were installed."""
    package = EXAMPLES / "sqlite-sink"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of_group.items())
        for group, of_group in project["entry-points"].items()
    )
    info = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.syspath_prepend(str(package))


@pytest.mark.usefixtures("_sqlite_sink")
def test_a_sink_of_another_package_is_checked_against_its_own_store(spark: SparkSession, fed: World) -> None:
    database = fed.root / "shop.db"
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE words (id INTEGER, word TEXT)")
    text = stream(fed, "shop", 'sql = "SELECT id, word FROM source"').replace(
        f'type = "files"\npath = "{fed.root}/shop"', f'type = "sqlite"\npath = "{database}"\ntable = "words"'
    )
    good = checked(spark, fed.root, text).report
    wrong = only_faults(spark, fed, text.replace("SELECT id, word", "SELECT id, kind"))
    misspelled = only_faults(spark, fed, text.replace('table = "words"', 'table = "words"\ntabel = "words"'))

    assert (good.code, good.all_faults, good.streams[0].sinks) == (OK, [], ["out"])
    assert any("kind: the table has no such column" in fault for fault in wrong)
    assert any("word: the frame lacks this column of the table" in fault for fault in wrong)
    assert any("tabel: no option of a sqlite sink; did you mean 'table'?" in fault for fault in misspelled)
