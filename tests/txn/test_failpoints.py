from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochal.txn import failpoints
from epochal.txn.failpoints import Failpoint, arm, parse

ROOT = Path(__file__).parents[2]
ENDLESS = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, leader of its group, that says what it has done."""
    return subprocess.run(
        [sys.executable, "-c", f"from epochal.txn import failpoints\n{code}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("", ()),
        (" ; ", ()),
        ("after-done=kill", (Failpoint("after-done", "kill"),)),
        ("after-done=kill@3", (Failpoint("after-done", "kill", at=3),)),
        ("before-abort=pause:/tmp/a b@2", (Failpoint("before-abort", "pause", at=2, argument="/tmp/a b"),)),
        (
            "before-seal=raise; after-seal=raise@2;",
            (Failpoint("before-seal", "raise"), Failpoint("after-seal", "raise", at=2)),
        ),
    ],
)
def test_failpoints_are_read_from_text(text: str, points: tuple[Failpoint, ...]) -> None:
    assert parse(text) == points


@pytest.mark.parametrize("text", ["nowhere=kill", "=kill", "done=kill", "before-done@2=kill"])
def test_a_name_that_does_not_exist_is_an_error_that_lists_those_that_do(text: str) -> None:
    with pytest.raises(ValueError, match=r"EPOCHAL_FAILPOINTS: no failpoint is called .*before-generation"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "before-done",
        "before-done=",
        "before-done=explode",
        "before-done=kill@",
        "before-done=kill@x",
        "before-done=kill@-1",
        "before-done=kill@0",
        "before-done=pause",
        "before-done=pause:",
    ],
)
def test_an_action_that_does_not_exist_is_an_error_that_says_how_to_write_it(text: str) -> None:
    form = "NAME=kill|raise|pause:FILE, with or without @HIT at the end"
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is not {form}")):
        parse(text)


def test_steps_come_in_pairs() -> None:
    assert len(failpoints.names()) == 2 * len(failpoints.steps())
    assert failpoints.names(failpoints.PROTOCOL)[:2] == ("before-generation", "after-generation")


def test_every_step_of_the_protocol_has_its_pair_in_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "txn").rglob("*.py"))
    hit = re.findall(r'failpoints\.hit\("([a-z-]+)"\)', code)

    assert sorted(hit) == sorted(failpoints.names(failpoints.PROTOCOL))


@pytest.mark.parametrize("sink", ["files", "delta", "cassandra"])
def test_every_step_of_a_sink_has_its_pair_in_the_code(sink: str) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sinks" / sink).rglob("*.py"))
    hit = set(re.findall(r'failpoints\.hit\("([a-z-]+)"\)', code))
    importlib.import_module(f"epochal.sinks.{sink}")
    known = {*failpoints.names(sink), *(failpoints.names("compaction") if sink == "files" else ())}

    by_argument = {"before-rename", "after-rename", "before-marker", "after-marker"} if sink == "files" else set()
    assert hit | by_argument == known


def test_steps_that_belong_to_no_stream_are_armed_by_the_same_variable_and_stand_apart() -> None:
    (point,) = parse("after-compact-plan=kill@2")

    assert point.name in failpoints.names("compaction")
    assert not {*failpoints.names("files")} & {*failpoints.names("compaction")}


def test_a_sink_registers_failpoints_of_its_own() -> None:
    failpoints.register("a store", {"upload": "the epoch's object is uploaded"})

    assert parse("before-upload=raise")[0].name == "before-upload"


def test_off_means_a_function_that_does_nothing() -> None:
    arm("after-done=raise")
    arm("")

    failpoints.hit("after-done")

    assert failpoints.hit is failpoints._nothing


def test_a_process_without_the_variable_has_none() -> None:
    child = run("failpoints.hit('before-done'); print(failpoints.hit is failpoints._nothing)", EPOCHAL_FAILPOINTS="")

    assert child.stdout == "True\n"


def test_raise_is_an_oserror_that_names_the_failpoint() -> None:
    arm("before-commit=raise")

    failpoints.hit("after-commit")
    with pytest.raises(OSError, match="failpoint before-commit"):
        failpoints.hit("before-commit")


def test_only_the_given_hit_acts() -> None:
    arm("before-commit=raise@2")

    failpoints.hit("before-commit")
    with pytest.raises(OSError, match="failpoint before-commit"):
        failpoints.hit("before-commit")
    failpoints.hit("before-commit")


def test_hits_are_counted_in_a_file(tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    arm("", str(counts))

    for name in ("before-done", "after-done", "before-done"):
        failpoints.hit(name)

    assert counts.read_text().split() == ["before-done", "after-done", "before-done"]


def test_pause_waits_until_its_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = tmp_path / "gate"
    waits = []

    def wait(seconds: float) -> None:
        waits.append(gate.exists())
        if len(waits) == 3:
            gate.unlink()

    monkeypatch.setattr(time, "sleep", wait)
    arm(f"before-decided=pause:{gate}")

    failpoints.hit("before-decided")

    assert waits == [True, True, True]


def test_kill_ends_the_process_at_once() -> None:
    code = """
try:
    for number in range(5):
        print(number, flush=True)
        failpoints.hit("after-prepared")
finally:
    print("cleaned up", flush=True)
"""
    child = run(code, EPOCHAL_FAILPOINTS="after-prepared=kill@2")

    assert child.returncode == -signal.SIGKILL
    assert child.stdout.split() == ["0", "1"]


def test_kill_takes_the_children_of_a_group_leader_with_it() -> None:
    # The grandchild holds stdout: `run` returns only when it is gone too.
    child = run(f"{ENDLESS}\nfailpoints.hit('before-done')", EPOCHAL_FAILPOINTS="before-done=kill")

    assert child.returncode == -signal.SIGKILL


def test_a_wrong_action_stops_the_process_that_has_it() -> None:
    child = run("", EPOCHAL_FAILPOINTS="before-done=die")

    assert child.returncode == 1
    assert "'before-done=die' is not NAME=kill|raise|pause:FILE" in child.stderr


def test_a_name_that_no_sink_has_registered_stops_a_driver_at_its_start(tmp_path: Path) -> None:
    start = f"""
from epochal.testing import DirectoryParticipant, StandInQuery
from epochal.txn.coordinator import Coordinator
from epochal.txn.files import LocalFiles
from epochal.txn.journal import Journal

files = LocalFiles()
query = StandInQuery(files, {str(tmp_path / "checkpoint")!r})
Coordinator(
    journals=lambda incarnation: Journal(files, {str(tmp_path / "journal")!r}),
    checkpoint=query.checkpoint,
    participants=[DirectoryParticipant({str(tmp_path / "target")!r})],
).begin()
"""
    known, unknown = (run(start, EPOCHAL_FAILPOINTS=f"{name}=kill@9") for name in ("before-rename", "nowhere"))

    assert known.returncode == 0, known.stderr
    assert unknown.returncode == 1
    assert "no failpoint is called 'nowhere'" in unknown.stderr
