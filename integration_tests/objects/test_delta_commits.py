"""Commits to Delta tables on an object store, without Spark: by delta-rs, under the store's conditions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from epochal import DeltaSink
from epochal.sinks.delta.table.native import NativeTable
from epochal.sinks.storage.objects import ObjectFiles
from epochal.sinks.storage.targets import resolve_target
from epochal.testing.contract import claim_for
from epochal.testing.processes import in_threads
from epochal.testing.servers import S3Store
from epochal.testing.store_proxy import Faults, StoreProxy
from epochal.txn.errors import DataLost, Refused
from epochal.txn.model import Outcome
from integration_tests.objects import lake
from integration_tests.objects.lake import LINEAGE, OTHER, attempt
from integration_tests.objects.stores import skip_if_signatures_count
from integration_tests.spark.children import children
from integration_tests.spark.waiting import wait_until

# Two of five requests. A 409 to a read, which S3 does not send, is final for delta-rs.
FAULTS = Faults(lost=0.12, failed=0.05, refused=0.12, late=0.05, slow=0.06, pause=0.01, read_conflicts=False)
SECRET = "wJalrXUtnFEMI-SECRET"
long = [pytest.mark.matrix, pytest.mark.timeout(3600)]


pytestmark = pytest.mark.usefixtures("reached")


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[StoreProxy | S3Store], None]:
    """From here on, everything of this process reaches the store by a proxy, or directly."""
    return lambda place: monkeypatch.setenv("AWS_ENDPOINT_URL", place.endpoint)


@pytest.fixture
def table(folder: str) -> str:
    return f"{folder}/lake"


def test_epochs_are_in_the_table_once_and_nothing_is_left_over(table: str, files: ObjectFiles) -> None:
    lake.make(table)
    for epoch in range(3):
        handle = lake.put_staged(table, attempt(epoch), [epoch, 10 + epoch], files=2)
        before = lake.rows(table)
        assert DeltaSink(table).commit(attempt(epoch), handle) is Outcome.COMMITTED
        assert DeltaSink(table).commit(attempt(epoch), handle) is Outcome.ALREADY_COMMITTED
        assert epoch not in before

    assert lake.rows(table) == [0, 1, 2, 10, 11, 12]
    assert lake.left_over(files, table) == []
    memory = DeltaSink(table).open(LINEAGE)
    assert (memory.last, memory.recent[2]) == (2, "offsets 2")


def test_complete_mode_replaces_all_rows(table: str) -> None:
    lake.make(table)
    for epoch in range(3):
        handle = lake.put_staged(table, attempt(epoch), [epoch], mode="complete")
        DeltaSink(table, mode="complete").commit(attempt(epoch), handle)

    assert lake.rows(table) == [2]


def test_a_log_checkpoint_is_written_and_read(table: str, files: ObjectFiles) -> None:
    lake.make(table)
    sink = DeltaSink(table)
    for epoch in range(12):
        sink.commit(attempt(epoch), lake.put_staged(table, attempt(epoch), [epoch]))

    assert f"{10:020d}.checkpoint.parquet" in files.names(f"{table}/_delta_log")
    assert lake.rows(table) == list(range(12))


def test_a_claim_has_one_winner_and_a_second_stream_sees_the_first(table: str) -> None:
    claim_for(DeltaSink(table), LINEAGE)

    assert DeltaSink(table).open(LINEAGE).enrolled
    assert dict(DeltaSink(table).open(OTHER).others) == {LINEAGE: -1}


def test_what_is_aborted_is_removed_and_what_is_committed_stays(table: str, files: ObjectFiles) -> None:
    lake.make(table)
    sink = DeltaSink(table)
    loser = attempt(0, generation=2)
    handle = lake.put_staged(table, attempt(0), [1])
    lake.put_staged(table, loser, [1])
    assert sorted(sink.leftovers(LINEAGE)) == sorted([attempt(0), loser])
    sink.commit(attempt(0), handle)
    sink.abort(loser, None)
    sink.abort(attempt(0), handle)

    assert sink.leftovers(LINEAGE) == []
    assert lake.rows(table) == [1]
    assert lake.left_over(files, table) == []


def test_a_staged_file_that_is_gone_stops_the_commit_and_the_table_is_untouched(table: str, files: ObjectFiles) -> None:
    lake.make(table)
    handle = lake.put_staged(table, attempt(0), [1])
    files.delete(f"{table}/_epochal/staged")

    with pytest.raises(DataLost, match="neither there nor staged"):
        DeltaSink(table).commit(attempt(0), handle)
    assert lake.rows(table) == []


def test_files_that_vacuum_removes_before_the_log_names_them_are_copied_again(
    table: str, files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.make(table)
    handle = lake.put_staged(table, attempt(0), [1])

    def meddle(name: str) -> None:
        if name == "before-log":
            (named,) = [name for name in files.names(table) if name.endswith(".parquet")]
            files.delete(f"{table}/{named}")

    with monkeypatch.context() as patch:
        patch.setattr("epochal.txn.failpoints.hit", meddle)
        DeltaSink(table).commit(attempt(0), handle)

    assert lake.rows(table) == [1]


@pytest.mark.parametrize("epochs", [pytest.param(12, id="sample"), pytest.param(220, id="long", marks=long)])
def test_while_the_store_fails_each_epoch_is_committed_once(
    epochs: int, table: str, s3: S3Store, files: ObjectFiles, through: Callable[[StoreProxy | S3Store], None]
) -> None:
    """Answers of log entries, copies and claims are lost, refused, 500, 503, 409 or late: the same rows as without."""
    lake.make(table)
    handles = [lake.put_staged(table, attempt(epoch), [epoch], files=1 + epoch % 3) for epoch in range(epochs)]
    with StoreProxy(s3.endpoint, FAULTS, seed=epochs) as proxy:
        through(proxy)
        sink = DeltaSink(table)
        outcomes, errors = zip(
            *(lake.committed(sink, attempt(epoch), handle) for epoch, handle in enumerate(handles)), strict=True
        )
    faults = proxy.injected.total()
    print(f"\n{epochs} epochs, {proxy.requests.total()} requests, {faults} faults: {dict(proxy.injected)}")
    print(
        f"{outcomes.count(Outcome.ALREADY_COMMITTED)} log entries were recognised, {sum(errors)} commits were repeated"
    )

    through(s3)
    assert lake.rows(table) == list(range(epochs))
    assert lake.opened(table).version() == epochs
    assert lake.left_over(files, table) == []


@pytest.mark.parametrize("epochs", [pytest.param(6, id="sample"), pytest.param(60, id="long", marks=long)])
def test_two_drivers_that_commit_at_once_while_the_store_fails_commit_each_epoch_once(
    epochs: int, table: str, s3: S3Store, files: ObjectFiles, through: Callable[[StoreProxy | S3Store], None]
) -> None:
    lake.make(table)
    handles = [lake.put_staged(table, attempt(epoch), [epoch]) for epoch in range(epochs)]
    with StoreProxy(s3.endpoint, FAULTS, seed=epochs) as proxy:
        through(proxy)
        sinks = [DeltaSink(table), DeltaSink(table)]
        for epoch, handle in enumerate(handles):
            told = in_threads([partial(lake.committed, sink, attempt(epoch), handle) for sink in sinks])
            assert not [answer for answer in told if isinstance(answer, Exception)], told
    print(f"\n{epochs} epochs by two, {proxy.requests.total()} requests, {proxy.injected.total()} faults")

    through(s3)
    assert lake.rows(table) == list(range(epochs))
    assert lake.opened(table).version() == epochs
    assert lake.left_over(files, table) == []


def test_two_processes_that_commit_the_same_epochs_commit_each_once(
    table: str, tmp_path: Path, files: ObjectFiles
) -> None:
    lake.make(table)
    paths = []
    for epoch in range(8):
        handle = lake.put_staged(table, attempt(epoch), [epoch])
        paths.append(tmp_path / f"{epoch:06d}.json")
        paths[-1].write_text(json.dumps(handle.to_json()))
    gate = tmp_path / "gate"
    gate.touch()
    with children("") as started:
        arguments = (table, LINEAGE, str(gate), *map(str, paths))
        running = [started.run_module("integration_tests.objects.lake", *arguments) for _ in range(2)]
        wait_until(lambda: len(list(tmp_path.glob("gate.*"))) == len(running), "both to be ready")
        gate.unlink()
        ended = [child.wait() for child in running]
    assert [one.code for one in ended] == [0, 0], ended
    outcomes = [json.loads(one.output.splitlines()[-1]) for one in ended]

    assert lake.rows(table) == list(range(8))
    assert [sum(one[epoch] == "COMMITTED" for one in outcomes) for epoch in range(8)] == [1] * 8
    assert lake.left_over(files, table) == []


@pytest.mark.usefixtures("unproven")
def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    table: str, s3: S3Store, files: ObjectFiles, through: Callable[[StoreProxy | S3Store], None]
) -> None:
    skip_if_signatures_count(s3)
    with StoreProxy(s3.endpoint, ignores_conditions=True) as proxy:
        through(proxy)
        with pytest.raises(Refused, match="ignores the condition If-None-Match"):
            claim_for(DeltaSink(table), LINEAGE)

    assert list(files.walk(table)) == []


@pytest.mark.usefixtures("unproven")
def test_so_it_is_before_the_table_is_created(
    table: str, s3: S3Store, files: ObjectFiles, through: Callable[[StoreProxy | S3Store], None]
) -> None:
    skip_if_signatures_count(s3)
    with StoreProxy(s3.endpoint, ignores_conditions=True) as proxy:
        through(proxy)
        with pytest.raises(Refused, match="ignores the condition If-None-Match"):
            lake.make(table)

    assert list(files.walk(table)) == []


def test_no_error_has_a_credential(
    table: str, s3: S3Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    lake.make(table)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    said = []
    for faults in (Faults(refused=1.0), Faults(lost=1.0), Faults(failed=1.0)):
        with StoreProxy(s3.endpoint, faults) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            native = NativeTable(table, resolve_target(table)[0])
            with pytest.raises(OSError) as error:  # noqa: PT011  # which one is not the point
                native.state()
            said.append(f"{error.value!r} {error.value.__cause__!r} {error.value.__context__!r}")
            said.append(repr(native))

    assert SECRET not in "".join(said) + caplog.text
