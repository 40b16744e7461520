"""Options, statements, sending and adding, without a server."""

from __future__ import annotations

import json
from collections import deque
from decimal import Decimal
from typing import Any

import pytest
from cassandra import DriverException, InvalidRequest, OperationTimedOut, Unavailable
from cassandra.cluster import NoHostAvailable

from epochal import CassandraSink, Connection, OptionError, RollingFileSink
from epochal.sinks.cassandra.cluster.cql import parse
from epochal.sinks.cassandra.cluster.endpoint import PASSWORD, USER, Endpoint
from epochal.sinks.cassandra.cluster.faults import brief, is_away, translated
from epochal.sinks.cassandra.commit.statements import adding, write_plan
from epochal.sinks.cassandra.commit.totals import added
from epochal.sinks.cassandra.commit.writer import Pipe
from epochal.sinks.cassandra.handle import StagedEpoch
from epochal.sinks.cassandra.options import seconds
from epochal.sinks.cassandra.table import Table, misfits, unsortable
from epochal.txn.errors import Refused, StoreAway
from epochal.txn.model import Attempt, Batch

SECRET = "hunter2"  # it is to be looked for
ONE = Connection(consistency="ONE")


def test_all_faults_come_in_one_error() -> None:
    with pytest.raises(OptionError) as raised:
        CassandraSink(
            "orders; DROP",
            contact_points="localhost",
            port=0,
            mode="upsret",  # type: ignore[arg-type]  # that is the point
            nulls="none",  # type: ignore[arg-type]
            ttl="soon",
            order_by="at",
            totals={"amount": "sum"},
        )

    text = str(raised.value)
    assert len(raised.value.faults) == 8
    assert "keyspace.table" in text
    assert "did you mean 'upsert'?" in text
    assert "ttl='soon'" in text


def test_all_faults_of_a_connection_come_in_one_error_and_no_secret_is_told() -> None:
    with pytest.raises(OptionError) as raised:
        Connection(
            contact_points="localhost",
            port=0,
            consistency="LOCAL_QUORUN",  # type: ignore[arg-type]  # that is the point
            password=SECRET,
            ca_file="ca.pem",
        )

    assert len(raised.value.faults) == 5
    assert "did you mean 'LOCAL_QUORUM'?" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_what_moved_into_a_group_is_told_with_its_place() -> None:
    moved: dict[str, Any] = {"user": "me", "password": SECRET, "in_flight": 8}

    with pytest.raises(OptionError) as raised:
        CassandraSink("shop.orders", **moved)

    assert raised.value.faults == (
        "user: now in connection=Connection(user=...)",
        "password: now in connection=Connection(password=...)",
        "in_flight: now in tuning=Tuning(in_flight=...)",
    )


def test_where_the_cluster_is_may_be_told_in_short_but_not_twice() -> None:
    short = CassandraSink("shop.orders", contact_points=["db1"], port=9043)
    with pytest.raises(OptionError) as raised:
        CassandraSink("shop.orders", port=9043, connection=Connection(contact_points=["db1"]))

    assert short.cluster == Connection(contact_points=["db1"], port=9043)
    assert raised.value.faults == ("port: not together with connection=; use connection=Connection(port=...)",)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"mode": "accumulate"}, "totals: mode='accumulate' needs them"),
        ({"mode": "accumulate", "totals": {"n": "average"}}, "totals['n']='average'"),
        (
            {"mode": "accumulate", "totals": {"n": "sum"}, "connection": Connection(consistency="ONE")},
            "totals are read before",
        ),
        ({"mode": "accumulate", "totals": {"n": "sum"}, "ttl": 9}, "ttl: only for mode='upsert'"),
        ({"ttl": 9, "expires_at": "at"}, "only one of them"),
        ({"delete_when": " "}, "delete_when"),
        ({"dead_letters": "folder"}, "dead_letters='folder': a sink"),
    ],
)
def test_options_that_do_not_go_together_are_faults(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(OptionError) as raised:
        CassandraSink("shop.orders", **options)
    assert fault in str(raised.value)


def test_secrets_are_in_no_description_and_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(user="me", password=SECRET)
    sink = CassandraSink("shop.orders", connection=connection, staging="/tmp/staged")
    monkeypatch.setenv(USER, "me")
    monkeypatch.setenv(PASSWORD, SECRET)
    endpoint = Endpoint(contact_points=("a",)).with_secrets()

    assert endpoint.password == SECRET
    for text in (repr(sink), json.dumps(sink.describe()), repr(endpoint), repr(connection)):
        assert SECRET not in text


def test_a_sink_outside_of_a_writer_says_that_it_has_no_folder_to_stage_in() -> None:
    batch: Batch[Any] = Batch(attempt=Attempt("1f0c9a2e", 0, 1), rows=None, offsets="")

    with pytest.raises(Refused, match="no folder to stage in"):
        CassandraSink("shop.orders").stage(batch)
    with pytest.raises(Refused, match="no folder to stage in"):
        CassandraSink("shop.orders").leftovers("1f0c9a2e")


def test_a_description_names_a_folder_only_if_the_user_has_named_one() -> None:
    assert "staging" not in CassandraSink("shop.orders").describe()
    assert CassandraSink("shop.orders", staging="/tmp/staged").describe()["staging"] == "/tmp/staged"


def test_dead_letters_are_a_sink_of_the_writer() -> None:
    from epochal import EpochWriter

    letters = RollingFileSink("bad", name="bad")
    writer = EpochWriter(CassandraSink("shop.orders", dead_letters=letters))

    assert [sink.name for sink in writer.sinks] == ["cassandra", "bad"]


def test_durations_are_seconds_or_texts() -> None:
    assert [seconds(v) for v in ("90 s", "5 min", "2 hours", "1 day", 7)] == [90, 300, 7200, 86_400, 7]
    assert [seconds(v) for v in ("", "5", "-1 day", 0, True, None, 1.5)] == [None] * 7


def staged(**changes: Any) -> StagedEpoch:
    plain: dict[str, Any] = {
        "table": "shop.orders",
        "mode": "upsert",
        "columns": ("id", "a"),
        "key": ("id",),
        "files": (("f", 9, 1),),
        "stamp": 10,
        "expiry": None,
        "expires": False,
        "whole": True,
        "totals": {},
        "limits": {},
        "mark": "epochal",
        "offsets": "x",
    }
    return StagedEpoch(**{**plain, **changes})


def test_names_are_quoted_and_values_are_bound() -> None:
    found = write_plan("shop", 'or"ders', staged(columns=("id", 'a"; DROP')), 1, 1)

    assert found.insert == 'INSERT INTO "shop"."or""ders" ("id", "a""; DROP") VALUES (?, ?) USING TIMESTAMP ?'
    assert found.delete == 'DELETE FROM "shop"."or""ders" USING TIMESTAMP ? WHERE "id" = ?'


def test_totals_go_with_their_columns_whatever_order_the_journal_keeps() -> None:
    epoch = staged(mode="accumulate", columns=("id", "z", "a"), totals={"a": "max", "z": "sum"})
    found = adding("k", "t", epoch, ["ours"], Attempt("ours", 3, 1))

    assert found.select == 'SELECT "z", "a", "epochal" FROM "k"."t" WHERE "id" = ?'
    assert list(found.totals) == ["z", "a"]
    assert write_plan("k", "t", epoch, 1, 1).insert.startswith('INSERT INTO "k"."t" ("id", "z", "a", "epochal") VALUES')


def test_a_row_that_is_over_goes_whole_only_if_it_was_written_whole() -> None:
    whole = write_plan("k", "t", staged(expires=True), 1, 1)
    part = write_plan("k", "t", staged(expires=True, whole=False), 1, 1)

    assert whole.forget == whole.delete
    assert part.forget == 'DELETE "a" FROM "k"."t" USING TIMESTAMP ? WHERE "id" = ?'
    assert whole.insert.endswith("USING TIMESTAMP ? AND TTL ?")


def test_a_handle_comes_back_as_it_was_and_a_newer_one_is_refused() -> None:
    handle = staged(totals={"a": "sum"}).handle()
    text = json.loads(json.dumps(handle.to_json()))
    back = type(handle).from_json(text)

    assert StagedEpoch.read(back) == staged(totals={"a": "sum"})
    with pytest.raises(Refused, match="another epochal"):
        StagedEpoch.read(type(handle)(99, handle.body))


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        ({"id": "long"}, None),
        ({"id": "long", "t": "string", "f": {"type": "array", "elementType": "integer"}}, None),
        ({"t": "string"}, "id: part of the primary key, and not in the frame"),
        ({"id": "long", "T": "string"}, "T: not in the table (but 't': names must be spelled alike)"),
        ({"id": "long", "tt": "string"}, "tt: not in the table; did you mean 't'?"),
        ({"id": "string"}, "id: string in the frame, bigint in the table"),
        ({"id": "long", "t": "timestamp_ntz"}, "t: timestamp_ntz in the frame, text in the table"),
        ({"id": "long", "l": {"type": "array", "elementType": "integer"}}, "l: list<int> is not frozen"),
        ({"id": "long", "s": "integer"}, "s: a static column"),
        ({"id": "long", "f": {"type": "array", "elementType": "string"}}, "f.element: string in the frame, int"),
    ],
)
def test_a_frame_is_compared_column_by_column(frame: dict[str, Any], fault: str | None) -> None:
    columns = {"id": "bigint", "t": "text", "l": "list<int>", "f": "frozen<list<int>>", "s": "int"}
    table = Table(
        "k", "t", {n: parse(k, lambda _: ((), ())) for n, k in columns.items()}, ("id",), (), frozenset("s"), 0
    )
    schema = {"fields": [{"name": name, "type": kind} for name, kind in frame.items()]}

    found = misfits(table, schema)

    assert len(found) == (0 if fault is None else 1)
    assert fault is None or found[0].startswith(fault)
    assert unsortable(schema, ["nowhere"]) == ["order_by: 'nowhere' is not in the frame"]


class Future:
    def __init__(self, answers: deque[Exception | None]) -> None:
        self._answers = answers

    def result(self) -> list[Any]:
        answer = self._answers.popleft() if self._answers else None
        if answer is not None:
            raise answer
        return []


class Server:
    """A session whose answers are written down beforehand; beyond them all is well."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = deque(answers)
        self.session = self
        self.sent: list[str] = []

    def execute_async(self, statement: str) -> Future:
        self.sent.append(statement)
        return Future(self._answers)

    def execute(self, statement: str) -> list[Any]:
        return self.execute_async(statement).result()


def pipe(server: Any, **options: Any) -> tuple[Pipe, list[float]]:
    slept: list[float] = []
    return Pipe(server, 2, clock=lambda: sum(slept), sleep=slept.append, **options), slept


AWAY = [
    Unavailable("a"),
    OperationTimedOut(),
    NoHostAvailable("none", {"h": OSError("refused")}),
    DriverException("Table metadata was not refreshed"),
]


@pytest.mark.parametrize("fault", AWAY, ids=lambda fault: type(fault).__name__)
def test_what_may_pass_is_sent_again_until_it_is_acknowledged(fault: Exception) -> None:
    server = Server(fault, fault)
    sending, slept = pipe(server)
    sending.send("one")
    sending.send("two")
    sending.drain()

    assert server.sent.count("one") == 3
    assert server.sent.count("two") == 1
    assert slept == [0.05, 0.1]


def test_patience_ends_and_says_what_it_was() -> None:
    sending, slept = pipe(Server(*[Unavailable("not enough")] * 99), patience=3.0)
    sending.send("one")

    with pytest.raises(StoreAway, match="not enough"):
        sending.drain()
    assert sum(slept) <= 3.0


def test_what_is_wrong_for_good_is_raised_at_once() -> None:
    server = Server(InvalidRequest("unknown column"))
    sending, slept = pipe(server)
    sending.send("one")

    with pytest.raises(InvalidRequest):
        sending.drain()
    assert (server.sent, slept) == (["one"], [])


def test_an_unreachable_cluster_is_told_by_what_its_hosts_said() -> None:
    fault = NoHostAvailable("Unable to connect", {"a": OSError("refused"), "b": OSError("refused")})

    assert is_away(fault)
    assert brief(fault) == "OSError: refused"


def test_a_table_that_no_server_describes_is_said_in_other_words_than_see_the_log() -> None:
    fault = DriverException("Table metadata was not refreshed. See log for details.")

    assert str(translated(fault, "the description of shop.orders")) == (
        "the description of shop.orders: no server answers"
    )


@pytest.mark.parametrize(
    ("how", "before", "more", "after"),
    [
        ("sum", None, 4, 4),
        ("sum", 3, 4, 7),
        ("count", 3, 1, 4),
        ("min", 3, 4, 3),
        ("max", 3, 4, 4),
        ("max", 3, None, 3),
        ("sum", Decimal(10**37), Decimal("0.01"), Decimal("10000000000000000000000000000000000000.01")),
    ],
)
def test_totals_are_added(how: str, before: Any, more: Any, after: Any) -> None:
    assert added(how, before, more) == after


def test_totals_that_come_again_in_each_epoch_are_refused_or_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    sums = CassandraSink("shop.totals", mode="accumulate", totals={"n": "sum", "most": "max"})
    largest = CassandraSink("shop.totals", mode="accumulate", totals={"most": "max"})
    for sink, mode in ((sums, "append"), (largest, "complete"), (CassandraSink("shop.orders"), "complete")):
        sink.check_output_mode(mode)
    assert caplog.messages == []

    with pytest.raises(Refused, match=r"adds each epoch's rows to n, and the output mode complete"):
        sums.check_output_mode("complete")
    sums.check_output_mode("update")
    assert "adds up n" in caplog.messages[0]
