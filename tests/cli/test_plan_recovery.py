"""``epochal plan-recovery``, with rates that were measured before: no Spark is started."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epochal.cli import main
from epochal.cli.plan_recovery import to_text
from epochal.spark_plugins.recovery import calibration
from epochal.spark_plugins.recovery import rates as kept
from epochal.spark_plugins.recovery.knobs import Costs, Load, Setting
from epochal.spark_plugins.recovery.model import Rates
from epochal.spark_plugins.recovery.names import Provider
from epochal.spark_plugins.recovery.planning import propose
from tests.cli.test_schemas import check
from tests.spark_plugins.recovery.written import Written, archive, lz4, rows, untagged


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    kept.save(Rates(measured="2026-11-18T00:00:00Z"), Costs())
    written = Written(tmp_path / "checkpoint", partitions=4)
    written.operator()
    for partition in range(4):
        written.put(f"state/0/{partition}/1.zip", archive(250_000, {"a.sst": 3_500_000}))
        for version in (2, 3):
            written.put(f"state/0/{partition}/{version}.changelog", lz4(untagged(rows(0, 5000))))
    for epoch in range(3):
        written.commit(epoch)
    return written.path


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    found = json.loads(capsys.readouterr().out)
    check("plan-recovery", found)
    return found


def test_the_cheapest_setting_that_holds_is_proposed(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan-recovery", checkpoint, "--interval", "1 s", "--cores", "2", "--json", "--objective"]
    assert main([*command, "40 s"]) == 0
    relaxed = answer(capsys)
    assert main([*command, "19 s"]) == 0
    strict = answer(capsys)

    assert relaxed["load"] == {
        "interval_seconds": 1.0,
        "updates": 20_000,
        "rows": 1_000_000,
        "bytes": relaxed["load"]["bytes"],
    }
    assert strict["proposed"]["total_seconds"] <= 19 * 0.8
    assert strict["proposed"]["cpu"] >= relaxed["proposed"]["cpu"]


def test_a_budget_gets_the_quickest_recovery_within_it(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan-recovery", checkpoint, "--budget", "40 %", "--interval", "1 s", "--json"]) == 0
    assert answer(capsys)["proposed"]["cpu"] <= 0.4


def test_an_objective_that_nothing_holds_is_an_exit_code(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan-recovery", checkpoint, "--objective", "1 s"]) == 2
    assert "No setting holds it" in capsys.readouterr().out


def test_the_proposal_can_be_pasted_and_is_drawn(
    checkpoint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "plan.svg"
    assert main(["plan-recovery", checkpoint, "--objective", "60", "--plot", str(plot)]) == 0

    assert "spark.sql.streaming.stateStore.providerClass=" in capsys.readouterr().out
    assert plot.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("current", "chosen", "wanted", "unwanted"),
    [
        ((Provider.ROCKSDB, 4), (Provider.ROCKSDB, 8), "epochal rescale --partitions 8", "new checkpoint"),
        ((Provider.ROCKSDB, 4), (Provider.ROCKSDB, 4), "restart it", "partitions"),
        ((Provider.HDFS_BACKED, 4), (Provider.ROCKSDB, 8), "shuffle.partitions=8 for its first start", "rescale"),
        (
            (Provider.HDFS_BACKED, 4),
            (Provider.HDFS_BACKED, 8),
            "a checkpoint keeps its number of partitions",
            "rescale",
        ),
        ((Provider.HDFS_BACKED, 4), (Provider.HDFS_BACKED, 4), "restart it", "new checkpoint"),
        ((Provider.ROCKSDB, 4), (Provider.HDFS_BACKED, 4), "a checkpoint keeps its provider", "rescale"),
    ],
)
def test_only_what_is_possible_with_the_provider_is_offered(
    current: tuple[Provider, int], chosen: tuple[Provider, int], wanted: str, unwanted: str
) -> None:
    before, after = (Setting(provider=provider, partitions=partitions) for provider, partitions in (current, chosen))
    load = Load(interval=1.0, updates=1000, rows=10_000, bytes=1e6)
    proposal = propose(load, before, Rates(), Costs(), cores=2, budget=1.0, partitions=[chosen[1]])
    assert proposal.chosen is not None
    text = to_text(
        "checkpoint",
        replace(proposal, chosen=replace(proposal.chosen, setting=after)),
        Rates(),
        None,
        1.0,
        2,
        None,
    ).partition("set before")[2]

    assert wanted in text
    assert unwanted not in text
    assert "rewrite" not in text


def test_a_query_without_state_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = Written(tmp_path)
    written.commit(0)

    assert main(["plan-recovery", written.path, "--objective", "9 s", "--json"]) == 2
    check("error", json.loads(capsys.readouterr().out))


@pytest.fixture
def unmeasured(checkpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "empty"))
    return checkpoint


def test_it_says_first_what_is_measured_also_into_a_pipe(
    unmeasured: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before: list[str] = []

    def calibrate(**_: object) -> tuple[Rates, Costs]:
        before.append(capsys.readouterr().err)
        return Rates(measured="2026-11-18T00:00:00Z"), Costs()

    monkeypatch.setattr(calibration, "calibrate", calibrate)
    command = ["plan-recovery", unmeasured, "--objective", "60", "--cores", "2", "--json"]
    assert main(command) == main(command) == 0
    (told,) = before
    assert told.startswith("measuring this machine: 10 scratch streams are built and recovered")
    assert "on 2 cores. This takes some minutes" in told
    assert told.count("\n") == 1


@pytest.fixture
def default_handlers() -> Iterator[None]:
    """The suite may run under nohup, where SIGHUP is ignored."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_what_it_has_started_and_removes_its_scratch_folders(
    unmeasured: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    scratch, started = tmp_path / "scratch", tmp_path / "started"
    scratch.mkdir()
    trial = tmp_path / "trial"
    # A trial whose JVM goes on by itself, and which is under way when the signal comes.
    trial.write_text(
        f"#!/bin/sh\nsleep 600 &\necho $! > {started}\nls {scratch} >> {started}\nkill -{int(number)} $PPID\nwait\n"
    )
    trial.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(sys, "executable", str(trial))
    handlers = signal.getsignal(number)

    with pytest.raises(SystemExit) as ended:
        main(["plan-recovery", unmeasured, "--objective", "60"])
    pid, folder = started.read_text().split()
    assert ended.value.code == 128 + number
    assert folder.startswith("epochal-calibration-")
    assert list(scratch.iterdir()) == []
    assert is_gone(int(pid))
    assert signal.getsignal(number) is handlers


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent, which is not this one, may not have noticed."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if not Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False
