"""Spark Connect: what the client refuses, what goes to the server, and how its process proves its checkpoint."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import threading
import time
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("grpc", reason="needs epochal[connect]")

from prometheus_client import CollectorRegistry
from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import epochal
from epochal import (
    BadRows,
    Bucket,
    CassandraSink,
    Connection,
    DeltaSink,
    EpochWriter,
    NotSettled,
    OptionError,
    Refused,
    Rolling,
    RollingFileSink,
    UnsupportedQuery,
)
from epochal.metrics.prometheus import PrometheusMetrics
from epochal.sinks.storage import connect
from epochal.sinks.storage.connect import resolving
from epochal.sinks.storage.hadoop import resolve
from epochal.spark_plugins.remote import batches, calls, settling, started
from epochal.spark_plugins.remote.commits import CommitsWatch
from epochal.spark_plugins.remote.query import RemoteEpochQuery, raised_in
from epochal.spark_plugins.remote.settling import RemoteSettling, Unsettled
from epochal.spark_plugins.remote.started import RemoteQuery
from epochal.txn.errors import TwoJournals

DEADLINE = 30.0
V = epochal.__version__


def stream(**trigger: Any) -> Any:
    """A query that has not started, as a Connect session makes it."""
    from pyspark.sql.connect.plan import Range
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    writer = DataStreamWriter(Range(0, 1, 1), SimpleNamespace())  # type: ignore[arg-type]  # no server is asked
    return writer.trigger(**trigger) if trigger else writer


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a server were asked where paths are."""
    monkeypatch.setattr(started, "full_path", lambda _, path: f"file:{path}")


@pytest.mark.parametrize(
    ("trigger", "reason"),
    [({"continuous": "1 second"}, "no micro-batches"), ({"realTime": "5 minutes"}, "before the checkpoint")],
)
def test_triggers_that_break_the_order_are_refused_by_name(trigger: dict[str, str], reason: str) -> None:
    with pytest.raises(UnsupportedQuery, match=reason):
        started.prepared(stream(**trigger).option("checkpointLocation", "/c"))


def test_asynchronous_progress_tracking_is_refused_by_name() -> None:
    query = stream().option("checkpointLocation", "/c").option("AsyncProgressTrackingEnabled", "true")

    with pytest.raises(UnsupportedQuery, match="asyncProgressTrackingEnabled"):
        started.prepared(query)


def test_a_query_without_a_checkpoint_of_its_own_is_refused() -> None:
    with pytest.raises(Refused, match=r"\.option\('checkpointLocation'"):
        started.prepared(stream())


def test_a_checkpoint_that_no_python_client_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "full_path", lambda _, path: path)

    with pytest.raises(Refused, match="only local disks and HDFS"):
        started.prepared(stream().option("checkpointLocation", "viewfs://shop/c"))


@pytest.mark.usefixtures("resolved")
def test_a_query_is_known_by_its_name_and_gets_one_if_it_has_none() -> None:
    named = stream(availableNow=True).option("checkpointLocation", "/c").queryName("orders").outputMode("Complete")
    nameless = [stream().option("checkpointLocation", "/c") for _ in range(2)]

    assert started.prepared(named) == RemoteQuery("orders", "file:/c", "complete")
    first, second = (started.prepared(query).name for query in nameless)
    assert first == nameless[0]._write_proto.query_name
    assert first != second


def test_what_needs_a_jvm_is_refused_in_one_error() -> None:
    sinks: list[Any] = [
        RollingFileSink("a", format="avro", rolling=Rolling(max_rows=3), name="avro"),
        RollingFileSink("b", format="xml", options={"rowTag": "row"}, name="xml"),
        RollingFileSink("c", format="json", options={"pretty": "true"}, name="pretty"),
        RollingFileSink("c", format="csv", options={"lineSep": ";"}, name="lines"),
        RollingFileSink("d", options={"parquet.encryption.footer.key": "k"}, name="encrypted"),
        DeltaSink("e", mode="upsert", keys=["id"], name="upsert"),
        DeltaSink("f", evolve="add_columns", name="evolve"),
        DeltaSink("hdfs://host/g", name="far"),
        CassandraSink("shop.orders", staging="hdfs://host/h", name="staging"),
        CassandraSink("shop.o", dead_letters=RollingFileSink("i", format="xml", options={"rowTag": "r"}, name="bad")),
    ]

    with pytest.raises(OptionError) as raised:
        started.check_sinks(EpochWriter(*sinks).sinks)

    refused = [fault.split("'")[1] for fault in raised.value.faults]
    assert refused == ["avro", "xml", "pretty", "lines", "encrypted", "upsert", "evolve", "far", "staging", "bad"]


def test_a_sink_that_does_not_know_of_spark_connect_is_refused() -> None:
    with pytest.raises(OptionError, match="'own': it is not known to work on Spark Connect"):
        started.check_sinks([SimpleNamespace(name="own", connect=None)])


def test_observers_that_cannot_be_sent_are_refused_by_name() -> None:
    started.check_observers([lambda event: None])

    with pytest.raises(OptionError, match=r"epochal's metrics for Prometheus cannot be sent to the server: .*metrics="):
        started.check_observers([PrometheusMetrics(CollectorRegistry())])


def test_a_password_does_not_go_to_the_server() -> None:
    sink = CassandraSink("shop.orders", connection=Connection(user="writer", password="hunter2"))

    with pytest.raises(OptionError, match="EPOCHAL_CASSANDRA_PASSWORD in the environment of the server") as raised:
        started.check_sinks([sink])

    assert "hunter2" not in str(raised.value)


def test_the_sinks_that_can_are_not_refused() -> None:
    started.check_sinks(
        [
            *(RollingFileSink(f, format=f, name=f) for f in ("parquet", "orc", "avro", "json", "csv", "text")),
            *(
                RollingFileSink(f, format=f, rolling=Rolling(max_rows=3), name=f)
                for f in ("parquet", "orc", "json", "csv", "text")
            ),
            DeltaSink("lake", partition_by=["day"]),
            DeltaSink("lake", mode="complete", name="all"),
            CassandraSink("shop.orders", mode="accumulate", totals={"amount": "sum"}),
        ]
    )


def test_a_writer_goes_to_the_server_with_its_options_and_without_what_it_has_open(tmp_path: Path) -> None:
    letters = RollingFileSink(str(tmp_path / "letters"), name="letters", rolling=Rolling(max_bytes="64 MB"))
    writer = EpochWriter(
        RollingFileSink(str(tmp_path / "files"), bucket_by=["day", Bucket("n", lambda frame: frame["n"] % 2)]),
        CassandraSink("shop.orders", contact_points=["db1"], order_by=["at"], dead_letters=letters),
        DeltaSink(str(tmp_path / "lake"), properties={"delta.checkpointInterval": "3"}),
        settle_timeout=7,
        adopt="1f0c9a2e@41",
    )
    writer.sinks[0].describe()  # it has resolved its path

    arrived = pickle.loads(dumps(writer))  # type: ignore[no-untyped-call]  # pyspark's copy

    assert repr(arrived) == repr(writer)
    assert arrived.sinks[0]._bound is None
    assert arrived.sinks[0].describe() == writer.sinks[0].describe()
    assert arrived.sinks[1].cluster == writer.sinks[1].cluster  # type: ignore[attr-defined]
    assert arrived.sinks[1].dead_letters is arrived.sinks[3].inner
    assert (arrived._settings.settle_timeout, arrived._settings.choices) == (7.0, writer._settings.choices)
    assert arrived._runs is not writer._runs


class Session:
    """What a batch's process asks a Connect session."""

    def __init__(self, *queries: tuple[str, str]) -> None:
        found = [SimpleNamespace(name=name, id=id_, runId=f"run-{id_}") for name, id_ in queries]
        self.streams = SimpleNamespace(active=found)
        self.conf = SimpleNamespace(get=lambda _: "false")


ID = "1f0c9a2e-0000-4000-8000-000000000001"


def planned(tmp_path: Path, epochs: int) -> str:
    """The checkpoint of a query that has committed all but the last of its epochs."""
    for folder, count in (("offsets", epochs), ("commits", epochs - 1)):
        (tmp_path / folder).mkdir()
        for epoch in range(count):
            (tmp_path / folder / str(epoch)).touch()
    (tmp_path / "metadata").write_text(f'{{"id":"{ID}"}}')
    return f"file:{tmp_path}"


def test_a_batch_is_bound_to_the_query_of_its_name(tmp_path: Path) -> None:
    checkpoint = planned(tmp_path, 3)
    session: Any = Session(("other", "x"), ("orders", ID))

    found = batches.bound(session, RemoteQuery("orders", checkpoint, "update"), 2)

    assert (found.query_id, found.run_id) == (ID, f"run-{ID}")
    assert found.output_mode == "update"


def test_the_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    checkpoint = planned(tmp_path, 3)
    session: Any = Session(("orders", "another"))

    with pytest.raises(Refused, match=f"is the checkpoint of query {ID}"):
        batches.bound(session, RemoteQuery("orders", checkpoint, "append"), 2)


@pytest.mark.parametrize("epoch", [1, 3], ids=["committed there", "not planned there"])
def test_a_copy_of_the_checkpoint_that_stands_at_another_epoch_is_refused(tmp_path: Path, epoch: int) -> None:
    checkpoint = planned(tmp_path, 3)
    session: Any = Session(("orders", ID))

    with pytest.raises(Refused, match="is not where this query writes its checkpoint"):
        batches.bound(session, RemoteQuery("orders", checkpoint, "append"), epoch)


def test_a_batch_of_a_query_that_the_writer_did_not_start_is_refused() -> None:
    session: Any = Session()

    with pytest.raises(UnsupportedQuery, match=r"writer\.start"):
        batches.bound(session, None, 0)


class ConnectSession(Session):
    """As far as its module tells."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_a_frame_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    writer = EpochWriter(RollingFileSink(str(tmp_path / "target")))
    writer = writer._sent(RemoteQuery("orders", planned(checkpoint, 1), "append"))
    schema = StructType().add("_epochal_id", "long")
    frame: Any = SimpleNamespace(sparkSession=ConnectSession(("orders", ID)), columns=schema.names, schema=schema)
    frame.drop = lambda *_: frame

    with pytest.raises(BadRows, match="'_epochal_id'"):
        writer(frame, 0)

    assert not (tmp_path / "target").exists()
    assert not (checkpoint / "epochal").exists()


def test_two_versions_of_epochal_are_refused() -> None:
    session: Any = Session()

    with pytest.raises(Refused, match=f"the client has epochal 0.0.1, the server {epochal.__version__}"):
        batches.bound(session, RemoteQuery("orders", "file:/c", "append", "0.0.1"), 0)


def test_a_query_that_is_gone_is_refused(tmp_path: Path) -> None:
    session: Any = Session(("other", "x"))

    with pytest.raises(UnsupportedQuery, match="'orders' is not active"):
        batches.bound(session, RemoteQuery("orders", f"file:{tmp_path}", "append"), 0)


class Commits:
    """A checkpoint's commits/, and who is notified of them."""

    def __init__(self) -> None:
        self.highest, self.looks = -1, 0
        self.looked, self.told = threading.Event(), threading.Event()

    def committed(self) -> int:
        self.looks += 1
        self.looked.set()
        return self.highest


def test_the_settler_is_woken_when_the_expected_epoch_is_committed() -> None:
    commits = Commits()
    watch = CommitsWatch(commits.committed, commits.told.set)
    watch.expect(0)
    assert commits.looked.wait(DEADLINE)
    assert not commits.told.is_set()
    commits.highest = 0

    assert commits.told.wait(DEADLINE)
    watch.remove()


def test_commits_are_not_looked_at_while_no_epoch_is_prepared() -> None:
    commits = Commits()
    commits.highest = 5
    watch = CommitsWatch(commits.committed, commits.told.set)
    watch.expect(5)
    assert commits.told.wait(DEADLINE)
    watch.remove()
    watch._thread.join(DEADLINE)

    assert commits.looks == 1


def test_a_fault_of_the_file_system_does_not_end_the_watch() -> None:
    commits = Commits()
    faults = [OSError("away")]

    def committed() -> int:
        if faults:
            raise faults.pop()
        return 0

    watch = CommitsWatch(committed, commits.told.set)
    watch.expect(0)

    assert commits.told.wait(DEADLINE)
    watch.remove()


def test_a_process_that_is_told_to_stop_twice_settles_and_leaves_at_once(tmp_path: Path) -> None:
    program = (
        "import atexit, sys\n"
        f"atexit.register(open, {str(tmp_path / 'late')!r}, 'w')\n"  # as Spark's own, which may call a dead server
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from epochal.spark_plugins.remote.batches import settle_when_stopped\n"
        "class Run:\n"
        "    def halt(self):\n"
        f"        open({str(tmp_path / 'settling')!r}, 'w').close()\n"
        "        sys.stdin.readline()\n"
        "        with ThreadPoolExecutor() as pool:\n"  # as WebHDFS does, and Cassandra's driver
        f"            pool.submit(open, {str(tmp_path / 'settled')!r}, 'w').result().close()\n"
        "        print('nobody reads this')\n"
        "def batch():\n"  # whose variables are gone at the exit, as those of Spark's worker
        "    settle_when_stopped(Run())\n"
        "batch()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    until = time.monotonic() + DEADLINE
    while not (tmp_path / "settling").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)  # Spark sends it twice, and closes the pipes
    process.stdout.close()
    process.stdin.write("\n")
    process.stdin.close()

    assert process.wait(DEADLINE) == 0
    assert (tmp_path / "settled").exists()
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize("adopt", [None, "1f0c9a2e.g2@2"])
def test_a_choice_that_the_check_accepts_is_not_refused_by_settling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, resolved: None, adopt: str | None
) -> None:
    def settle(*_: object) -> None:
        raise TwoJournals("the target was claimed by another copy. Choose: adopt='1f0c9a2e.g2@2'")

    monkeypatch.setattr(started, "columns_of", lambda _: ["id"])
    monkeypatch.setattr(started, "start", lambda *_: SimpleNamespace(id="1f0c9a2e", runId="1"))
    monkeypatch.setattr(RemoteSettling, "check", lambda _: Unsettled("1f0c9a2e", (2,)))
    monkeypatch.setattr(RemoteSettling, "settle", settle)
    writer = EpochWriter(RollingFileSink(str(tmp_path / "target"), format="json"), adopt=adopt)
    query = stream().option("checkpointLocation", str(tmp_path / "checkpoint"))

    if adopt is None:
        with pytest.raises(TwoJournals):
            writer.start(query)
    else:
        assert writer.start(query).id == "1f0c9a2e"


def asked(checkpoint: str, writer: EpochWriter, **arguments: Any) -> dict[str, Any]:
    """What a client sends to its server."""
    pickled = b64encode(dumps(writer)).decode()  # type: ignore[no-untyped-call]  # pyspark's copy
    folders = {"/": "file:/", "": "file:/home/spark/"}
    return {"checkpoint": checkpoint, "journal": None, "writer": pickled, "folders": folders, **arguments}


def answer_to(function: str, arguments: dict[str, Any], version: str = V) -> dict[str, Any]:
    return calls.answer_to({"function": function, "arguments": arguments, "version": version, "id": ""})


def test_a_client_of_another_version_gets_no_answer_but_why() -> None:
    answer = answer_to("check", {}, "0.0.1")

    assert answer["error"] == "Refused"
    assert "the client has epochal 0.0.1" in answer["text"]


def test_the_server_checks_the_checkpoint_with_its_own_files(tmp_path: Path) -> None:
    target, checkpoint = tmp_path / "target", tmp_path / "checkpoint"
    checkpoint.mkdir()
    writer = EpochWriter(RollingFileSink(str(target), format="json"))

    assert answer_to("check", asked(planned(checkpoint, 3), writer)) == {"returned": {"query": ID, "epochs": []}}
    assert answer_to("check", asked(f"file:{tmp_path}/new", writer)) == {"returned": {"query": "", "epochs": []}}
    assert answer_to("check", asked(f"file:{tmp_path}", writer))["error"] == "Refused"  # the target is inside of it
    assert not target.exists()


def test_paths_without_a_scheme_mean_there_what_they_mean_in_the_session_and_nothing_afterwards() -> None:
    with resolving({"/": "hdfs://host/", "": "file:/home/spark/"}):
        assert resolve("lake/orders")[1] == "/home/spark/lake/orders"
        with pytest.raises(Refused, match="hdfs://host/lake: on Spark Connect HDFS is reached by WebHDFS"):
            resolve("/lake")

    assert resolve("/lake")[1] == "/lake"


def test_a_server_that_does_not_reach_the_checkpoint_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPOCHAL_WEBHDFS", raising=False)

    answer = answer_to("check", asked("hdfs://host/c", EpochWriter(RollingFileSink("/target", format="json"))))

    assert "Set EPOCHAL_WEBHDFS to its HTTP address" in answer["text"]


def test_a_store_that_is_away_when_the_server_checks_is_an_error_of_the_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def away(*_: object) -> None:
        raise ConnectionRefusedError("Cassandra at 127.0.0.1, port 9042 does not answer")

    writer = EpochWriter(RollingFileSink("/target", format="json"))
    arguments = asked(planned(tmp_path, 3), writer)
    monkeypatch.setattr(EpochWriter, "check_place", away)
    answer = answer_to("check", arguments)
    schema = calls.ServerCall(
        {"request": json.dumps({"function": "check", "arguments": arguments, "version": V})}
    ).schema()
    reader = SimpleNamespace()
    reader.format = reader.option = lambda *_: reader
    reader.load = lambda: SimpleNamespace(schema=schema)
    session: Any = SimpleNamespace(read=reader)
    monkeypatch.setattr(calls, "_register", lambda _: None)

    assert answer == json.loads(schema[0].metadata["answer"])
    with pytest.raises(OSError, match="on the server: Cassandra at"):
        calls.call(session, "check", **arguments)


def test_only_the_checkpoint_of_the_query_is_settled(tmp_path: Path) -> None:
    writer = EpochWriter(RollingFileSink("/target", format="json"))

    answer = answer_to("settle", asked(planned(tmp_path, 3), writer, query="another", timeout=1.0))

    assert answer["error"] == "Refused"
    assert f"is the checkpoint of query {ID}, not of another" in answer["text"]


def test_a_process_that_is_killed_while_it_settles_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[Exception] = [PySparkException("Python worker exited unexpectedly"), NotSettled("the store is away")]
    calls_made = []

    def call(*_: object, **arguments: Any) -> None:
        calls_made.append(arguments["timeout"])
        if faults:
            raise faults.pop(0)

    monkeypatch.setattr(settling, "call", call)
    monkeypatch.setattr(connect, "folders", lambda _: {})
    session: Any = None
    RemoteSettling(session, "file:/c", None, journal=None, timeout=30).settle(ID)

    assert len(calls_made) == 3
    assert max(calls_made) <= settling.LONGEST


def test_a_server_that_does_not_answer_is_not_taken_for_one_that_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*_: object, **__: object) -> None:
        raise PySparkException("the server is gone\n\tat org.apache.spark")

    monkeypatch.setattr(settling, "call", call)
    monkeypatch.setattr(connect, "folders", lambda _: {})
    session: Any = None

    with pytest.raises(
        NotSettled, match=r"the server is gone\. They are safe\. Run `epochal recover /c` on the server"
    ):
        RemoteSettling(session, "file:/c", None, journal=None, timeout=30).settle(ID, 0.1)


def test_an_error_of_the_servers_process_is_the_clients_too() -> None:
    text = (
        "Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] Found error\n"
        "Traceback (most recent call last):\n"
        "epochal.txn.errors.BadRows: the frame does not fit the sinks:\n  - sink 'a': no\n\nJVM stacktrace:\nx"
    )

    error = raised_in(text)

    assert isinstance(error, epochal.BadRows)
    assert str(error) == "the frame does not fit the sinks:\n  - sink 'a': no"
    assert raised_in("Traceback:\nValueError: epochal.txn.errors.BadRows: no") is None
    assert raised_in("epochal.txn.errors.NoSuchError: no") is None


def test_the_handle_tells_the_error_of_the_servers_process_as_ours() -> None:
    theirs = PySparkException("Traceback:\nepochal.txn.errors.FencedOut: generation 3 was superseded\n")
    unused: Any = None
    ended, ended_well, failed = (
        RemoteEpochQuery(cast(Any, SimpleNamespace(exception=lambda fault=fault: fault)), unused, unused).exception()
        for fault in (theirs, None, PySparkException("a column is missing"))
    )

    assert isinstance(ended, epochal.FencedOut)
    assert ended.__cause__ is theirs
    assert ended_well is None
    assert isinstance(failed, PySparkException)
