"""What a drill says of the times that its trials measured. Real trials: integration_tests/spark/test_state.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from epochal.cli import main
from epochal.cli.drill import to_text
from epochal.spark_plugins.recovery import trial
from epochal.spark_plugins.recovery.drill import Query, drill
from epochal.spark_plugins.recovery.model import Rates
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal
from epochal.txn.model import Handle, Json, Staged
from epochal.txn.records import GenerationStarted, Prepared
from tests.cli.test_schemas import check
from tests.spark_plugins.recovery.written import Written, stateful
from tests.txn.memory import MemoryFiles

ANSWERS: Mapping[str, Mapping[str, float]] = {
    "stores": {"session": 6.0, "state": 2.0},
    "stream": {"session": 6.5, "begun": 9.0, "epoch": 14.0},
    "journal": {"sinks": 0.25, "predicted": 0.2, "entries": 3},
}


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Mapping[str, Any]]:
    """The tasks that trials were given. They answer as if they had run."""
    given: list[Mapping[str, Any]] = []

    def run(task: Mapping[str, Any]) -> Mapping[str, float]:
        given.append(task)
        return ANSWERS[task["kind"]]

    monkeypatch.setattr(trial, "run", run)
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    return given


def three_epochs(root: Path) -> Written:
    """So that the one before the last can be restored."""
    written = stateful(root)
    written.commit(1)
    return written


def test_what_is_left_of_the_first_epoch_is_the_epoch(tasks: list[Mapping[str, Any]], tmp_path: Path) -> None:
    written = three_epochs(tmp_path / "checkpoint")
    query = Query(file="orders.toml", stream="orders")
    found = drill(LocalFiles(), written.path, query=query, journal=str(tmp_path), cores=2, rates=Rates())

    assert [task["kind"] for task in tasks] == ["stores", "stream", "journal"]
    assert tasks[1]["epoch"] == found.epoch == 2
    assert found.state.version == 2
    assert (found.session, found.query, found.first, found.sinks) == (6.5, 2.5, 3.0, 0.25)
    assert found.load + found.replay == pytest.approx(2.0)
    assert found.total == 14.25
    assert found.error is not None


@pytest.mark.parametrize(
    ("alone", "measured_at", "shown"),
    [(2.0, None, "3.00 s"), (6.0, None, "not measurable"), (2.0, "YYYY-MM-DD", "3.00 s")],
)
def test_the_text_says_what_was_predicted_by_what_and_what_cannot_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: float, measured_at: str | None, shown: str
) -> None:
    monkeypatch.setattr(trial, "run", lambda task: {**ANSWERS[task["kind"]], "state": alone})
    written = three_epochs(tmp_path / "checkpoint")
    rates = Rates(measured=measured_at)
    query = Query(file="orders.toml", stream="orders")
    found = drill(LocalFiles(), written.path, query=query, journal=str(tmp_path), cores=2, rates=rates)
    text = to_text(written.path, found, 2)

    epoch = next(line for line in text.splitlines() if line.startswith("first epoch"))
    assert shown in epoch
    assert "predicted 1" in text
    assert "s, took 14.2 s (1.0 x)" in text
    assert ("by guesses: `epochal plan-recovery` measures" in text) is (measured_at is None)


def test_a_journal_that_is_not_on_a_local_disk_is_copied_and_restored_too(
    monkeypatch: pytest.MonkeyPatch, tasks: list[Mapping[str, Any]], tmp_path: Path
) -> None:
    written = three_epochs(tmp_path / "checkpoint")
    remote = "hdfs://nn/orders/epochal"
    state: Mapping[str, Json] = {"part": {"files": 2}}
    files = MemoryFiles()
    journal = Journal(files, remote)
    journal.claim(GenerationStarted(1, "query", base=0))
    journal.prepare(Prepared(0, 1, "offsets", {"sink": Staged(Handle(1, {}), 1, changes=state)}))
    journal.decide(0, 1)
    journal.finish(0, 1)
    found: list[Mapping[str, Json]] = []

    def run(task: Mapping[str, Any]) -> Mapping[str, float]:
        if task["kind"] == "journal":
            found.append(Journal(LocalFiles(), task["journal"]).read().sink_state("sink"))
        return ANSWERS[task["kind"]]

    monkeypatch.setattr(trial, "run", run)
    drilled = drill(AlsoThere(files), written.path, journal=remote, cores=2, rates=Rates())

    assert [{**one} for one in found] == [state]
    assert drilled.sinks == 0.25


class AlsoThere(LocalFiles):
    """Local files, and those of another file system."""

    def __init__(self, others: MemoryFiles) -> None:
        super().__init__()
        self._others = others

    def names(self, path: str) -> tuple[str, ...]:
        return self._others.names(path) if path.startswith("hdfs:") else super().names(path)

    def read(self, path: str) -> bytes:
        return self._others.read(path) if path.startswith("hdfs:") else super().read(path)


def test_a_query_that_is_not_known_is_not_run(tasks: list[Mapping[str, Any]], tmp_path: Path) -> None:
    written = three_epochs(tmp_path / "checkpoint")
    found = drill(LocalFiles(), written.path, cores=2)

    assert [task["kind"] for task in tasks] == ["stores"]
    assert (found.query, found.first, found.total, found.error) == (None, None, None, None)


def test_the_answer_fits_its_schema(
    tasks: list[Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = three_epochs(tmp_path / "checkpoint")

    assert main(["drill", written.path, "--json", "--cores", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    check("drill", answer)
    assert (answer["how"], answer["parts"]["total"]["measured_seconds"]) == ("stores", None)
    assert main(["drill", written.path, "--cores", "2"]) == 0
    assert "name it by --file" in capsys.readouterr().out
    assert len(tasks) == 2


def test_a_stream_without_a_file_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", str(tmp_path), "--stream", "orders"]) == 2
    assert "--file" in capsys.readouterr().err


def settings(root: Path, checkpoint: str) -> str:
    file = root / "live.toml"
    file.write_text(
        f'[streams.orders]\ncheckpoint = "{checkpoint}"\nsource.format = "rate"\n'
        '[streams.orders.sinks.out]\ntype = "files"\n'
    )
    return str(file)


@pytest.mark.parametrize(
    ("name", "hint"), [("ordres", "did you mean 'orders'?"), ("payments", "there is 'orders'")], ids=["near", "far"]
)
def test_a_stream_that_the_file_does_not_have_is_refused_at_once(
    tasks: list[Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    written = three_epochs(tmp_path / "checkpoint")
    file = settings(tmp_path, written.path)

    assert main(["drill", written.path, "--file", file, "--stream", name]) == 2
    assert f"--stream {name}: {file} has no such stream; {hint}" in capsys.readouterr().err
    assert tasks == []


def test_a_file_of_another_checkpoint_is_refused_and_both_are_named(
    tasks: list[Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = three_epochs(tmp_path / "checkpoint")
    link = tmp_path / "link"
    link.symlink_to(written.path)

    assert main(["drill", written.path, "--file", settings(tmp_path, str(tmp_path / "other"))]) == 2
    err = capsys.readouterr().err
    assert f"the checkpoint of stream 'orders' in {tmp_path}/live.toml is {tmp_path}/other, not {written.path}." in err
    assert tasks == []
    assert main(["drill", str(link), "--file", settings(tmp_path, written.path), "--json"]) == 0
    assert [task["kind"] for task in tasks] == ["stores", "stream"]


def test_a_stream_with_one_epoch_has_nothing_to_restore(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.commit(0)

    with pytest.raises(Refused, match="only epoch 0"):
        drill(LocalFiles(), written.path, cores=2)


def test_a_trial_that_fails_says_why() -> None:
    with pytest.raises(Refused, match="KeyError: 'nothing'"):
        trial.run({"kind": "nothing"})
