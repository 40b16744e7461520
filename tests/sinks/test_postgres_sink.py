"""Options, names, secrets, errors and statements of a PostgreSQL sink, without a server and without Spark."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import errors
from pyspark.sql.types import StringType, StructField, StructType

import epochal
from epochal import OptionError, PostgresSink
from epochal.participant import TRUSTED_HOSTS, BadRows, Handle, Refused, SinkUnavailable, StoreAway
from epochal.sinks.postgres import commit, connection
from epochal.sinks.postgres.connection import CA_FILE, PASSWORD, TLS, USER, Endpoint
from epochal.sinks.postgres.handle import StagedEpoch
from epochal.sinks.postgres.layout import quoted, staged_table
from epochal.sinks.postgres.options import names_of
from epochal.sinks.postgres.stage import copying, keys, plan
from epochal.sinks.postgres.table import LONG, Column, Table, Type, Unique
from epochal.spark_plugins.conf import writer_from_settings

SECRET = "hunter2"  # it is to be looked for
HERE = Endpoint(hosts=("db",), port=5432, database="shop")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (USER, PASSWORD, TLS, CA_FILE, TRUSTED_HOSTS, "EPOCHAL_CASSANDRA_HOSTS"):
        monkeypatch.delenv(name, raising=False)


def test_all_faults_come_in_one_error_and_no_secret_is_in_it() -> None:
    with pytest.raises(OptionError) as raised:
        PostgresSink(
            "a.b.c",
            hosts="localhost",
            port=0,
            mode="upsret",  # type: ignore[arg-type]  # that is the point
            password=SECRET,
            sslmode="off",  # type: ignore[arg-type]
            totals={"amount": "average"},  # type: ignore[dict-item]
        )

    assert len(raised.value.faults) >= 6
    assert "did you mean 'upsert'?" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"mode": "upsert"}, "keys: mode='upsert' needs them"),
        ({"mode": "accumulate", "keys": ["id"]}, "totals: mode='accumulate' needs them"),
        ({"mode": "accumulate", "keys": ["id"], "totals": {"id": "sum"}}, "keys and totals: id in both"),
        ({"keys": ["id"]}, "keys: only for mode='upsert' or 'accumulate'"),
        ({"order_by": ["at"]}, "order_by: only for mode='upsert'"),
        ({"mode": "upsert", "keys": ["id"], "epoch_column": "e"}, "epoch_column: only for mode='append'"),
        ({"digest": True}, "digest: needs epoch_column"),
        ({"mode": "upsert", "keys": ["id"], "drop": ["id"]}, "keys and drop: id in both"),
        ({"ca_file": "ca.pem", "sslmode": "disable"}, "ca_file: not with sslmode='disable'"),
    ],
)
def test_options_that_do_not_go_together_are_faults(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError) as raised:
        PostgresSink("orders", **options)

    assert fault in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"hosts": [f"writer:{SECRET}@db"]},
        {"database": f"postgresql://writer:{SECRET}@db/shop"},
        {"database": f"shop password={SECRET}"},
    ],
)
def test_a_secret_that_stands_where_none_belongs_is_refused_and_not_shown(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as raised:
        PostgresSink("orders", **options)

    assert SECRET not in str(raised.value)


def test_a_schema_that_queries_cannot_name_is_refused() -> None:
    with pytest.raises(OptionError, match="the name of a schema, without '%'"):
        PostgresSink("orders", ledger_schema="we%ird")


@pytest.mark.parametrize("name", ["a.b.c", "", "a.", ".b", 'a"b', '"a', "a.b\0"])
def test_what_names_no_table_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"table or schema\.table"):
        PostgresSink(name)


def test_names_are_taken_as_they_are_and_always_quoted() -> None:
    assert names_of('"Shop ""2""".orders; DROP TABLE x') == ('Shop "2"', "orders; DROP TABLE x")
    assert quoted('x"; DROP TABLE y; --') == '"x""; DROP TABLE y; --"'
    assert PostgresSink("Orders").target == 'postgres:127.0.0.1:5432/postgres/"public"."Orders"'


def test_a_sink_is_made_from_spark_settings() -> None:
    texts = {
        "table": "shop.orders",
        "hosts": "db1,db2",
        "port": "5433",
        "mode": "accumulate",
        "keys": "day,region",
        "totals.amount": "sum",
        "totals.orders": "count",
    }
    settings = {f"spark.epochal.orders.shop.{name}": text for name, text in texts.items()}
    writer = writer_from_settings(
        {**settings, "spark.epochal.orders.sinks": "shop", "spark.epochal.orders.shop.type": "postgres"}, "orders"
    )

    (sink,) = writer.sinks
    assert isinstance(sink, PostgresSink)
    assert (sink.name, sink.hosts, sink.port, sink.keys) == ("shop", ("db1", "db2"), 5433, ("day", "region"))
    assert sink.totals == {"amount": "sum", "orders": "count"}


def test_secrets_are_in_no_description_and_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    sink = PostgresSink("orders", user="me", password=SECRET)
    endpoint = HERE.with_secrets()

    assert endpoint.password == SECRET
    for text in (repr(sink), json.dumps(sink.describe()), repr(endpoint), repr(sink._endpoint)):
        assert SECRET not in text


def test_the_journal_rebuilds_the_sink_without_its_secrets() -> None:
    sink = PostgresSink("orders", hosts=["db1", "db2"], sslmode="require", user="me", password=SECRET)
    again = PostgresSink.from_description(json.loads(json.dumps(sink.describe())))

    assert again.describe() == sink.describe()
    assert (again.user, again.password) == (None, None)
    assert again._endpoint.from_journal
    assert not pickle.loads(pickle.dumps(sink))._endpoint.from_journal


def journal(sslmode: str = "verify-full") -> Endpoint:
    return replace(HERE, from_journal=True, sslmode=sslmode)


def test_a_password_goes_only_to_hosts_that_the_user_of_a_command_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    withheld = journal().with_secrets()
    advice = withheld.how_to_trust()
    monkeypatch.setenv(TRUSTED_HOSTS, "db:5432")

    assert (withheld.password, withheld.withheld) == (None, True)
    assert "--trust db" in advice
    assert journal().with_secrets().password == SECRET


def test_a_password_goes_without_tls_only_if_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, SECRET)
    monkeypatch.setenv(TRUSTED_HOSTS, "db")
    with pytest.raises(SinkUnavailable, match=f"{TLS}=off") as raised:
        journal("prefer").with_secrets()
    monkeypatch.setenv(TLS, "off")

    assert SECRET not in str(raised.value)
    assert journal("prefer").with_secrets().password == SECRET


def test_an_authority_in_the_environment_comes_before_the_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CA_FILE, "/mine.pem")

    found = journal("disable").with_secrets()
    assert (found.sslmode, found.ca_file) == ("verify-full", "/mine.pem")


class Told:
    """What a server says with an error."""

    def __init__(self, text: str = "", constraint: str | None = None, column: str | None = None, context: str = ""):
        self.message_primary, self.constraint_name = text, constraint
        self.column_name, self.context = column, context


def told(monkeypatch: pytest.MonkeyPatch, error: psycopg.Error, diag: Told) -> psycopg.Error:
    monkeypatch.setattr(type(error), "diag", diag)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.OperationalError("connection refused"), StoreAway),
        (psycopg.OperationalError("FATAL: the database system is starting up"), StoreAway),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "me"'), Refused),
        (errors.AdminShutdown(""), StoreAway),
        (errors.DiskFull(""), StoreAway),
        (errors.TooManyConnections(""), StoreAway),
        (errors.SerializationFailure(""), StoreAway),
        (errors.DeadlockDetected(""), StoreAway),
        (errors.LockNotAvailable(""), StoreAway),
        (errors.ReadOnlySqlTransaction(""), StoreAway),
        (errors.UniqueViolation(""), BadRows),
        (errors.RaiseException(""), BadRows),
        (errors.UndefinedTable(""), Refused),
        (errors.InsufficientPrivilege(""), Refused),
    ],
)
def test_what_waiting_may_cure_is_waited_for(error: psycopg.Error, expected: type[Exception]) -> None:
    assert type(connection.translated(error, "shop", HERE)) is expected


def test_an_error_is_shown_without_values_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    context = f'COPY staged_1, line 3, column c1: "{SECRET}"'
    error = told(monkeypatch, errors.InvalidTextRepresentation(SECRET), Told(f'invalid: "{SECRET}"', context=context))

    text = connection.brief(error)
    assert text == "InvalidTextRepresentation (22P02), column 'c1'"
    error = told(monkeypatch, errors.UniqueViolation(SECRET), Told(SECRET, constraint="orders_pkey"))
    assert connection.brief(error) == "UniqueViolation (23505), constraint 'orders_pkey'"


def test_an_error_says_what_the_server_says_where_no_value_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    error = told(monkeypatch, errors.UndefinedTable(""), Told('relation "x" does not exist'))

    assert connection.brief(error) == 'relation "x" does not exist (42P01)'


def test_what_a_trigger_raises_is_not_shown_under_any_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfATrigger(psycopg.DatabaseError):
        sqlstate = "XX123"

    error = told(monkeypatch, OfATrigger(SECRET), Told(f"{SECRET} is no value"))

    assert connection.brief(error) == "OfATrigger (XX123)"


def test_keys_that_would_be_compared_as_text_are_refused() -> None:
    """`citext` has its own `=`, which is found by the search_path. Its unique index is without regard to case."""
    columns = {}
    for name in ("public", "citext"), ("elsewhere", "ext.citext"):
        kind = Column(name[0], name[1], Type("citext"), True, False, False, None, False)
        columns[name[0]] = kind
    table = Table(
        "shop",
        "people",
        1,
        "",
        columns,
        [Unique(("public",), True), Unique(("elsewhere",), True)],
        False,
        False,
        [],
        True,
    )
    for key, expected in ("public", 0), ("elsewhere", 1):
        frame: Any = SimpleNamespace(
            schema=StructType([StructField(key, StringType()), StructField("gone", StringType())])
        )
        sink = PostgresSink("shop.people", mode="upsert", keys=[key], delete_when="gone = 'y'", drop=["gone"])
        faults = [fault for fault in plan.faults_of(frame, table, sink) if "search_path" in fault]
        assert len(faults) == expected


STAGED = StagedEpoch(mode="append", columns=(("id", "bigint"), ('a"b', "text")), keys=(), parts=(1, 2), rows=2)


def test_a_handle_goes_through_json() -> None:
    again = StagedEpoch.read(Handle.from_json(json.loads(json.dumps(STAGED.handle().to_json()))))

    assert again == STAGED


def test_only_a_handle_of_pieces_is_unknown_to_older_versions() -> None:
    old, pieces = STAGED.handle(), replace(STAGED, size=7).handle()

    assert (old.version, pieces.version) == (1, 2)
    assert "size" not in old.body
    assert StagedEpoch.read(pieces) == replace(STAGED, size=7)
    with pytest.raises(Refused, match="handle version 3"):
        StagedEpoch.read(replace(pieces, version=3))


class Recording:
    """Stands for a connection: it only hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.rowcount = 1

    def execute(self, text: str) -> Recording:
        self.heard.append(text)
        return self


def shown(epoch: StagedEpoch) -> str:
    """The statement that shows a staged epoch."""
    heard = Recording()
    commit.show(heard, TABLE, epoch, '"epochal"."staged_1"')  # type: ignore[arg-type]
    return heard.heard[0]


NUMBER = Type("int8")
TABLE = Table("Shop", "orders", 1, "", {}, [], False, False, [], True)
PARTS = "part = ANY ('{1,2}'::bigint[])"


def test_rows_are_inserted_from_the_parts_that_count() -> None:
    assert shown(STAGED) == (
        f'INSERT INTO "Shop"."orders" ("id", "a""b") SELECT c0, c1 FROM "epochal"."staged_1" WHERE {PARTS}'
    )


def test_the_last_row_of_a_key_replaces_it_or_deletes_it() -> None:
    text = shown(replace(STAGED, mode="upsert", keys=("id",), order=1, deletes=True))

    assert "SELECT DISTINCT ON (c0) *" in text
    assert "ORDER BY c0, o0 DESC NULLS LAST" in text
    assert 'DELETE FROM "Shop"."orders" t USING newest n WHERE n.deleted AND t."id" = n.c0' in text
    assert text.endswith(
        'SELECT c0, c1 FROM newest WHERE NOT deleted ON CONFLICT ("id") DO UPDATE SET "a""b" = EXCLUDED."a""b"'
    )


def test_totals_are_added_to_those_that_are_there() -> None:
    columns = (("day", "date"), ("orders", "bigint"), ("amount", "numeric"), ("least", "bigint"))
    totals = {"orders": "count", "amount": "sum", "least": "min"}
    text = shown(StagedEpoch(mode="accumulate", columns=columns, keys=("day",), totals=totals, parts=(1, 2)))

    assert 'SELECT c0 AS "day", count(*) AS "orders", coalesce(sum(c1), 0) AS "amount", min(c2) AS "least"' in text
    assert f"WHERE {PARTS} GROUP BY c0 ON CONFLICT" in text
    assert '"orders" = coalesce(t."orders", 0) + EXCLUDED."orders"' in text
    assert '"least" = least(t."least", EXCLUDED."least")' in text


def test_a_column_that_was_changed_after_staging_is_refused() -> None:
    column = Column("id", "integer", NUMBER, False, False, False, None, False)
    changed = replace(TABLE, columns={"id": column})

    with pytest.raises(Refused, match='id was bigint and is integer, a"b was text and is gone'):
        commit.check_columns("shop", changed, STAGED)


def test_only_constraints_besides_the_key_need_a_trial() -> None:
    keyed = replace(TABLE, unique=[Unique(("id", "day"), True)])

    assert not TABLE.needs_trial([])
    assert keyed.needs_trial([])
    assert not keyed.needs_trial(["day", "id"])
    assert replace(keyed, has_checks=True).needs_trial(["day", "id"])


KEYED = replace(TABLE, unique=[Unique(("id",), True, "orders_pkey", True)], has_temporary=True)
REASONS_TO_TRY = {
    "a check constraint": replace(KEYED, has_checks=True),
    "a trigger": replace(KEYED, has_triggers=True),
    "no right to read the table": replace(KEYED, lacking=["SELECT"]),
    "no right to make temporary tables": replace(KEYED, has_temporary=False),
    "an index that is deferrable or has a condition": replace(KEYED, unique=[Unique(("id",), False, "i", True)]),
    "an index that compares in its own way": replace(KEYED, unique=[Unique(("id",), True, "i", False)]),
    "a column that is computed": replace(KEYED, computes=True),
    "texts in an index": replace(KEYED, indexes_texts=True),
    "a column that the table fills": replace(KEYED, unique=[*KEYED.unique, Unique(("serial",), True, "i", True)]),
}


@pytest.mark.parametrize("reason", REASONS_TO_TRY)
def test_keys_are_compared_instead_of_tried_only_where_nothing_else_can_refuse_them(reason: str) -> None:
    assert keys.can_check(KEYED, STAGED, LONG + 1)
    assert not keys.can_check(REASONS_TO_TRY[reason], STAGED, LONG + 1)


def test_texts_that_fit_into_any_index_need_no_trial() -> None:
    indexed = replace(KEYED, indexes_texts=True)

    assert keys.can_check(indexed, STAGED, LONG)
    assert not replace(TABLE, indexes_texts=True).needs_trial([], LONG)
    assert replace(TABLE, indexes_texts=True).needs_trial([], LONG + 1)


def test_a_line_that_copy_would_not_read_is_refused_by_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LONGEST_LINE", 4)
    staging = copying.Staging(
        endpoint=Endpoint(hosts=("h",), port=1, database="d"),
        schema="s",
        relation="r",
        declared=(),
        names=(),
        row=("", "", ""),
        inline=100,
        is_text=True,
    )

    def staged(*lines: str) -> dict[str, Any]:
        batch = pa.record_batch([pa.array(lines), pa.nulls(len(lines), pa.int32())], ["line", "unfit"])
        (found,) = copying.staged(iter([batch]), staging)
        return dict(found.to_pylist()[0])

    assert staged("1\n", "123\n")["longest"] == 4
    assert json.loads(staged("1\n", "1234\n")["fault"])["text"].startswith("a row has more than 1 GiB")


def test_attempts_are_staged_apart() -> None:
    assert len({staged_table(*words) for words in (("a", "b", "c"), ("a", "b", "d"), ("a", "bc", ""))}) == 3


def test_the_sink_is_in_the_public_face() -> None:
    assert "PostgresSink" in epochal.__all__
    assert epochal.PostgresSink is PostgresSink
