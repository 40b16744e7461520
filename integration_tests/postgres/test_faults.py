"""A server that is killed, an answer that is lost, locks, a full disk, a failover: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from epochal import PostgresSink
from epochal.participant import (
    Attempt,
    BadRows,
    Claim,
    DataLost,
    FencedOut,
    Handle,
    Outcome,
    Refused,
    Rewound,
    StoreAway,
)
from epochal.sinks.postgres import connection
from epochal.testing import servers
from epochal.testing.servers import PostgresServer, postgres_programs
from integration_tests.postgres.cutting import AnswerCutter
from integration_tests.postgres.tables import LINEAGE, Space, space_on, stage, write
from integration_tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SMALL, LARGE = 5, 20_000  # rows: stored in one piece, and in a table of their own


@pytest.fixture
def mortal(mortal_postgres: PostgresServer) -> Iterator[Space]:
    with space_on(mortal_postgres) as made:
        yield made


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("id", "concat('word', id) AS word")


def table_of(space: Space, constraint: str = "") -> str:
    return space.table("numbers", f"id bigint {constraint}, word text")


def sink_that_stages(space: Space, form: str) -> PostgresSink:
    """For a table of numbers; large epochs are staged as text, or in columns, which the digest needs."""
    table = space.table("numbers", "id bigint, word text, epoch bigint")
    return space.sink(table, **({} if form == "text" else {"epoch_column": "epoch", "digest": True}))


def staged_table(space: Space) -> str:
    """The table that has the rows of a large epoch."""
    (relation,) = [name for (name,) in space.staged() if name.startswith("staged_")]
    return f'{space.ledger}."{relation}"'


def shown(space: Space) -> tuple[int, int]:
    """The rows that a reader sees, and how many of them are different."""
    (found,) = space.execute(f"SELECT count(*), count(DISTINCT id) FROM {space.name}.numbers")
    return found[0], found[1]


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_what_is_staged_survives_the_death_of_the_server(spark: SparkSession, mortal: Space, rows: int) -> None:
    """Between PREPARED and the commit. An unlogged table would be empty now."""
    sink = mortal.sink(table_of(mortal))
    attempt, handle = stage(sink, 0, numbers(spark, rows))
    (node,) = mortal.server.nodes
    node.kill()
    with pytest.raises(StoreAway):
        sink.commit(attempt, handle)
    with pytest.raises(StoreAway, match="sink 'postgres'"):
        sink.open(LINEAGE)
    node.start()

    assert shown(mortal) == (0, 0)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert shown(mortal) == (rows, rows)
    node.kill()
    node.start()
    assert sink.commit(attempt, handle) is Outcome.ALREADY_COMMITTED
    assert shown(mortal) == (rows, rows)


def test_an_answer_to_commit_that_is_lost_is_a_commit(spark: SparkSession, space: Space) -> None:
    table = table_of(space)
    attempt, handle = stage(space.sink(table), 0, numbers(spark, SMALL))
    with AnswerCutter(space.server) as cutter:
        sink = space.sink(table, hosts=["127.0.0.1"], port=cutter.port)
        cutter.cut = 1
        with pytest.raises(StoreAway):
            sink.commit(attempt, handle)

        assert cutter.lost == 1
        assert shown(space) == (SMALL, SMALL)
        assert sink.commit(attempt, handle) is Outcome.ALREADY_COMMITTED
    assert shown(space) == (SMALL, SMALL)


def test_answers_that_are_lost_while_rows_are_staged_double_nothing(spark: SparkSession, space: Space) -> None:
    """The tasks and the driver have their commits carried out and do not learn of it: the epoch is staged again."""
    table = table_of(space)
    stage(space.sink(table), 0, numbers(spark, 1))
    with AnswerCutter(space.server) as cutter:
        sink = space.sink(table, hosts=["127.0.0.1"], port=cutter.port)
        for lost in range(1, 5):
            # Each time one commit later is lost; the first are those that read the table.
            with pytest.raises(StoreAway):
                _stage_after(sink, numbers(spark, LARGE), cutter, passed=lost)
    write(space.sink(table), 0, numbers(spark, LARGE))

    assert shown(space) == (LARGE, LARGE)
    assert space.sink(table).leftovers(LINEAGE) == []


def _stage_after(sink: PostgresSink, rows: DataFrame, cutter: AnswerCutter, *, passed: int) -> tuple[Attempt, Handle]:
    """Stage, with the answer lost to the commit after so many."""
    cutter.cut, cutter.pass_first = 1, passed
    return stage(sink, 0, rows)


def test_a_lock_that_another_holds_is_waited_for(
    spark: SparkSession, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SETTINGS", connection.SETTINGS.replace("'30s'", "'200ms'"))
    table = table_of(space)
    sink = space.sink(table)
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    with space.connect(autocommit=False) as other:
        other.execute(f"LOCK TABLE {table}")
        with pytest.raises(StoreAway, match="55P03"):
            sink.commit(attempt, handle)

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert shown(space) == (SMALL, SMALL)


def test_a_driver_that_stalls_in_its_transaction_is_cut_off_by_the_server(space: Space) -> None:
    table = table_of(space)
    sink = space.sink(table)
    assert sink.claim(Claim(lineage=LINEAGE, generation=1, start="a", journal="/j"), version=0)
    settings = connection.SETTINGS.replace("'60s'", "'200ms'")
    with space.connect(autocommit=False) as stalled:
        stalled.execute(settings)
        stalled.execute(f"SELECT * FROM {space.ledger}.claims FOR UPDATE")

        assert sink.claim(Claim(lineage=LINEAGE, generation=2, start="b", journal="/j"), version=1)
        with pytest.raises(psycopg.Error):
            stalled.execute("SELECT 1")
        stalled.close()


@pytest.mark.parametrize("constraint", ["PRIMARY KEY", "UNIQUE DEFERRABLE INITIALLY DEFERRED", "CHECK (id < 4)"])
def test_what_only_the_insert_can_know_is_known_before_the_epoch_is_decided(
    spark: SparkSession, space: Space, constraint: str
) -> None:
    table = table_of(space, constraint)
    sink = space.sink(table)
    write(sink, 0, numbers(spark, 4))
    for count in (SMALL, LARGE):
        with pytest.raises(BadRows, match=r"numbers.*(23505|23514).*constraint 'numbers_(pkey|id_key|id_check)'"):
            stage(sink, 1, numbers(spark, count))

    assert shown(space) == (4, 4)
    assert sink.leftovers(LINEAGE) == []


def test_a_row_that_another_program_inserts_meanwhile_holds_the_epoch_and_loses_nothing(
    spark: SparkSession, space: Space
) -> None:
    table = table_of(space, "PRIMARY KEY")
    sink = space.sink(table)
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    space.execute(f"INSERT INTO {table} VALUES (3, 'foreign')")
    with pytest.raises(StoreAway, match=r"UniqueViolation.*numbers_pkey") as raised:
        sink.commit(attempt, handle)
    assert "foreign" not in str(raised.value)
    assert "(3)" not in str(raised.value)
    space.execute(f"DELETE FROM {table}")

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert shown(space) == (SMALL, SMALL)


def test_a_backend_that_is_killed_amid_the_commit_commits_nothing(spark: SparkSession, mortal: Space) -> None:
    """The postmaster then restarts all backends: every connection is lost."""
    sink = mortal.sink(table_of(mortal))
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    with mortal.connect(autocommit=False) as other:
        other.execute(f"LOCK TABLE {mortal.name}.numbers")
        answer_of = in_a_thread(lambda: sink.commit(attempt, handle))
        query = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'epochal commits' AND wait_event_type = 'Lock'"
        )
        wait_until(lambda: mortal.execute(query) != [], "the commit to wait for the lock")
        os.kill(mortal.execute(query)[0][0], signal.SIGKILL)
        (answer,) = answer_of()
        other.close()
    wait_until(lambda: is_up(mortal), "the server to have restarted its backends")

    assert isinstance(answer, StoreAway)
    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert shown(mortal) == (SMALL, SMALL)


def in_a_thread(call: Any) -> Any:
    """Start a call in a thread; a function that waits for its answer."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as fault:  # noqa: BLE001  # the test checks it
            answers.append(fault)

    thread = threading.Thread(target=run)
    thread.start()

    def answer() -> list[Any]:
        thread.join()
        return answers

    return answer


def is_up(space: Space) -> bool:
    try:
        return space.execute("SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


def test_a_stream_that_begins_on_a_table_under_a_new_name_learns_who_has_written_it(
    spark: SparkSession, space: Space
) -> None:
    table = table_of(space)
    write(space.sink(table), 0, numbers(spark, SMALL))
    space.execute(f"ALTER TABLE {table} RENAME TO renamed")

    assert space.sink(f"{space.name}.renamed").open("another").others == {LINEAGE: 0}
    assert space.sink(table_of(space)).open("another").others == {LINEAGE: -1}  # its claim is on the name


def test_who_has_waited_for_the_fence_sees_what_was_written_meanwhile(
    spark: SparkSession, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the user's transactions see the database as it was when they began."""
    monkeypatch.setattr(connection, "IDLE", 0.0)  # the setting is for new connections
    sink = space.sink(table_of(space))
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    database = space.execute("SELECT current_database()")[0][0]
    space.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
    outcomes: list[Outcome] = []
    commits = [threading.Thread(target=lambda: outcomes.append(sink.commit(attempt, handle))) for _ in range(2)]
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'epochal%'"
    )
    try:
        with space.connect(autocommit=False) as fence:
            fence.execute(f"SELECT FROM {space.ledger}.claims FOR UPDATE")
            for one in commits:
                one.start()
            wait_until(lambda: space.execute(waiting) == [(2,)], "both commits to wait for the fence")
        for one in commits:
            one.join(60)
    finally:
        space.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")

    assert {*outcomes} == {Outcome.COMMITTED, Outcome.ALREADY_COMMITTED}
    assert shown(space) == (SMALL, SMALL)


def test_a_table_that_was_dropped_and_created_again_is_noticed(spark: SparkSession, space: Space) -> None:
    table = table_of(space)
    sink = space.sink(table)
    write(sink, 0, numbers(spark, SMALL))
    attempt, handle = stage(sink, 1, numbers(spark, SMALL))
    space.execute(f"DROP TABLE {table}; CREATE TABLE {table} (id bigint, word text)")

    with pytest.raises(Rewound):
        sink.commit(Attempt(LINEAGE, 1, 1, after=0), handle)
    assert sink.open(LINEAGE).last == -1
    assert shown(space) == (0, 0)
    assert attempt.epoch == 1


def test_a_column_whose_type_was_changed_meanwhile_is_refused_and_changed_back_it_goes_on(
    spark: SparkSession, space: Space
) -> None:
    table = table_of(space)
    sink = space.sink(table)
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    space.execute(f"ALTER TABLE {table} ALTER word TYPE varchar(2)")
    with pytest.raises(Refused, match="word was text and is character varying"):
        sink.commit(attempt, handle)
    space.execute(f"ALTER TABLE {table} ALTER word TYPE text")

    assert sink.commit(attempt, handle) is Outcome.COMMITTED


@pytest.mark.parametrize(
    "mode",
    ["small", "accumulate", *(pytest.param(mode, marks=pytest.mark.matrix) for mode in ("append", "upsert"))],
)
def test_a_trigger_that_is_made_after_staging_and_drops_rows_is_refused_and_without_it_the_epoch_is_whole(
    spark: SparkSession, space: Space, mode: str
) -> None:
    table = space.table("late", "id bigint PRIMARY KEY, total bigint, epoch bigint")
    options: dict[str, dict[str, Any]] = {
        "small": {},
        "append": {"digest": True, "epoch_column": "epoch"},
        "upsert": {"mode": "upsert", "keys": ["id"]},
        "accumulate": {"mode": "accumulate", "keys": ["id"], "totals": {"total": "sum"}},
    }
    sink, rows = space.sink(table, **options[mode]), spark.range(1, 8).selectExpr("id", "id AS total").coalesce(1)
    attempt, handle = stage(sink, 0, rows)
    space.execute(f"""CREATE FUNCTION {space.name}.odd() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END $$;
        CREATE TRIGGER odd BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {space.name}.odd()""")
    with pytest.raises(Refused, match=r"a trigger of .*late.* drops rows of epoch 0.*4 of 7 would be written"):
        sink.commit(attempt, handle)
    assert space.execute(f"SELECT count(*) FROM {table}") == [(0,)]
    space.execute(f"DROP TRIGGER odd ON {table}")

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert space.execute(f"SELECT count(*), sum(total) FROM {table}") == [(7, 28)]


def test_what_a_trigger_leaves_in_its_session_reaches_no_other_transaction(spark: SparkSession, space: Space) -> None:
    leaky, other = table_of(space), space.table("other", "id bigint, word text")
    space.execute(f"""CREATE FUNCTION {space.name}.leak() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM set_config('search_path', '', false), pg_advisory_lock(4711); RETURN NEW; END $$;
        CREATE TRIGGER leak AFTER INSERT ON {leaky} EXECUTE FUNCTION {space.name}.leak();
        CREATE FUNCTION {space.name}.path() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.word := current_setting('search_path'); RETURN NEW; END $$;
        CREATE TRIGGER path BEFORE INSERT ON {other} FOR EACH ROW EXECUTE FUNCTION {space.name}.path()""")
    write(space.sink(leaky), 0, numbers(spark, SMALL))
    locked = space.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711")
    write(space.sink(other), 0, numbers(spark, SMALL))

    assert locked == [(0,)]
    assert space.execute(f"SELECT DISTINCT word FROM {other}") == space.execute("SHOW search_path")


def test_a_stream_whose_place_was_taken_shows_nothing_more(spark: SparkSession, space: Space) -> None:
    sink = space.sink(table_of(space))
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    version = sink.open(LINEAGE).version
    assert sink.claim(
        Claim(lineage="other", generation=1, start="z", journal="/z", replaces=(LINEAGE,)), version=version
    )

    with pytest.raises(FencedOut):
        sink.commit(attempt, handle)
    assert shown(space) == (0, 0)


@pytest.mark.parametrize("form", ["text", "columns"])
def test_a_speculative_or_late_task_changes_nothing(spark: SparkSession, space: Space, form: str) -> None:
    """Rows of parts that Spark has not reported are in the table, and are not shown."""
    sink = sink_that_stages(space, form)
    attempt, handle = stage(sink, 0, numbers(spark, LARGE))
    relation = staged_table(space)
    space.execute(
        f"INSERT INTO {relation} SELECT 17, {'number, data' if form == 'text' else 'c0, c1, c2'} FROM {relation}"
    )

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert shown(space) == (LARGE, LARGE)


@pytest.mark.parametrize(
    ("form", "harm", "message"),
    [
        ("columns", "DELETE FROM {} WHERE c0 = 7", rf"of the {LARGE} rows that .* epoch 0, {LARGE - 1} are in"),
        ("text", "DELETE FROM {} WHERE number = 0", r"of the \d+ bytes of rows that .* epoch 0, \d+ are in"),
        ("text", "UPDATE {} SET data = substr(data, 1, 100)", r"of the \d+ bytes of rows that .* epoch 0, 200 are in"),
        ("text", "DROP TABLE {}", r"of the \d+ rows that .* epoch 0, 0 are in"),
    ],
)
def test_staged_rows_that_another_program_has_removed_stop_the_query(
    spark: SparkSession, space: Space, form: str, harm: str, message: str
) -> None:
    sink = sink_that_stages(space, form)
    attempt, handle = stage(sink, 0, numbers(spark, LARGE))
    space.execute(harm.format(staged_table(space)))

    with pytest.raises(DataLost, match=message):
        sink.commit(attempt, handle)
    assert shown(space) == (0, 0)


def test_a_connection_that_the_server_has_ended_meanwhile_is_replaced(spark: SparkSession, space: Space) -> None:
    sink = space.sink(table_of(space))
    attempt, handle = stage(sink, 0, numbers(spark, SMALL))
    idle = "FROM pg_stat_activity WHERE application_name LIKE 'epochal%' AND state = 'idle'"
    assert space.execute(f"SELECT count(pg_terminate_backend(pid)) {idle}") >= [(1,)]
    wait_until(lambda: space.execute(f"SELECT {idle}") == [], "the idle connections to end")

    assert sink.commit(attempt, handle) is Outcome.COMMITTED
    assert shown(space) == (SMALL, SMALL)


def test_a_task_that_hangs_amid_its_copy_does_not_hold_the_commit(spark: SparkSession, space: Space) -> None:
    sink = space.sink(table_of(space))
    attempt, handle = stage(sink, 0, numbers(spark, LARGE))
    with space.connect(autocommit=False) as hanging:
        hanging.execute(f"INSERT INTO {staged_table(space)} VALUES (17, 1, '')".encode())

        assert sink.commit(attempt, handle) is Outcome.COMMITTED
        assert sink.leftovers(LINEAGE) == [attempt]
    sink.abort(attempt, handle)
    assert shown(space) == (LARGE, LARGE)
    assert space.staged() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_holds_the_epoch_until_there_is_room(spark: SparkSession, space: Space) -> None:
    if not space.server.owned:
        pytest.skip("the server is not on this machine")
    folder = Path(tempfile.mkdtemp(prefix="epochal-small-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let root mount")
    try:
        inside = folder / "space"
        inside.mkdir()
        folder.chmod(0o755)
        owner = Path(space.execute("SELECT current_setting('data_directory')")[0][0]).stat()
        os.chown(inside, owner.st_uid, owner.st_gid)
        with space.connect() as admin:
            admin.execute(f"CREATE TABLESPACE {space.name} LOCATION '{inside}'".encode())
        space.execute(f"CREATE TABLE {space.name}.filler (t text) TABLESPACE {space.name}")
        space.execute(f"CREATE TABLE {space.name}.numbers (id bigint, word text) TABLESPACE {space.name}")
        space.execute(f"INSERT INTO {space.name}.filler SELECT repeat('x', 1000) FROM generate_series(1, 2800)")
        sink = space.sink(f"{space.name}.numbers")
        attempt, handle = stage(sink, 0, numbers(spark, 2 * LARGE))
        with pytest.raises(StoreAway, match="53100"):
            sink.commit(attempt, handle)
        assert shown(space) == (0, 0)
        space.execute(f"DROP TABLE {space.name}.filler")

        assert sink.commit(attempt, handle) is Outcome.COMMITTED
        assert shown(space) == (2 * LARGE, 2 * LARGE)
    finally:
        space.execute(f"DROP TABLE IF EXISTS {space.name}.filler, {space.name}.numbers")
        with space.connect() as admin:
            admin.execute(f"DROP TABLESPACE IF EXISTS {space.name}".encode())
        subprocess.run(["umount", str(folder)], check=True)
        shutil.rmtree(folder)


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_a_standby_that_is_promoted_has_what_was_staged_and_what_was_shown(spark: SparkSession, rows: int) -> None:
    copy = postgres_programs.find() / "pg_basebackup"
    if not copy.exists():
        pytest.skip("there is no pg_basebackup to make a standby with")
    home = Path(tempfile.mkdtemp(prefix="epochal-standby-"))
    waits = {"synchronous_standby_names": "*", "synchronous_commit": "local"}
    try:
        with servers.postgres(settings=waits) as first:
            data = home / "server" / "data"
            data.parent.mkdir()
            copied: list[str | Path] = [copy, "-d", first.dsn, "-D", data, "-R", "-X", "stream", "-c", "fast"]
            subprocess.run(copied, check=True, capture_output=True)
            _give_to(data, first)
            space = Space(first, "moved")
            space.execute("CREATE SCHEMA moved")
            with servers.postgres(folder=home, settings={"hot_standby": "on"}) as second:
                space.execute(f"ALTER ROLE {first.user} SET synchronous_commit = 'remote_apply'")
                sink = space.sink(table_of(space))
                identity = sink.open(LINEAGE).identity
                write(sink, 0, numbers(spark, rows))
                attempt, handle = stage(sink, 1, numbers(spark, rows))
                first.nodes[0].kill()
                with psycopg.connect(second.dsn, autocommit=True) as there:
                    there.execute("SELECT pg_promote()")
                moved = Space(second, space.name)
                again = moved.sink(f"{space.name}.numbers")

                assert again.open(LINEAGE).identity == identity
                assert again.commit(attempt, handle) is Outcome.COMMITTED
                assert again.commit(attempt, handle) is Outcome.ALREADY_COMMITTED
                assert shown(moved) == (2 * rows, rows)
    finally:
        shutil.rmtree(home)


def _give_to(data: Path, server: PostgresServer) -> None:
    """The copy belongs to whom the server runs as."""
    if os.geteuid() != 0:
        return
    with psycopg.connect(server.dsn) as db:
        row = db.execute("SELECT current_setting('data_directory')").fetchone()
    assert row is not None
    owner = Path(row[0]).stat()
    for path in (data.parent, data, *data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
