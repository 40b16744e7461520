"""`epochal run` and `epochal check` as far as they need no Spark."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from epochal.cli import main
from epochal.spark_plugins.streams import sessions

BAD = '[streams.orders]\nchekpoint = "c"\n[streams.orders.sinks.out]\ntype = "fils"\n'


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(sessions.GATEWAY, raising=False)
    for name in ("session", "quiet_session"):
        monkeypatch.setattr(sessions, name, lambda *_, **__: pytest.fail("started Spark"))
    monkeypatch.chdir(tmp_path)


def test_check_lists_all_faults_and_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("orders.toml").write_text(BAD)

    assert main(["check", "orders.toml"]) == 2
    shown = capsys.readouterr().out
    assert "did you mean 'checkpoint'?" in shown
    assert "did you mean 'files'?" in shown
    assert "STREAM  SOURCE  SINKS  CHECKPOINT  VERDICT" in shown

    assert main(["check", "orders.toml", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 2
    assert found["streams"][0]["name"] == "orders"
    assert len(found["streams"][0]["faults"]) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.toml"]


def test_run_starts_nothing_if_there_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    Path("orders.toml").write_text(BAD)

    assert main(["run", "orders.toml"]) == 2
    assert "nothing was started" in capsys.readouterr().err
    assert main(["run", "orders.toml", "--check"]) == 2
    assert "VERDICT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "name a FILE, or let spark-submit give the settings"),
        (["check"], "name a FILE, or let spark-submit give the settings"),
        (["run", "none.toml"], "none.toml: 1 fault\n  - cannot be read: No such file"),
        (["run", "x.toml", "--json"], "--json: only with --check"),
        (["run", "x.toml", "--lease", "20 s", "--when-ended", "leave"], "--lease, --when-ended: only with --standby"),
        (["run", "x.toml", "--zookeeper", "127.0.0.1:2181"], "--zookeeper: only with --standby"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err + json.loads(shown.out or "{}").get("error", {}).get("message", "")


@pytest.mark.parametrize("lease", ["5s", "abc", "0", "-1"])
def test_a_lease_that_is_too_short_is_refused_at_once_with_its_limit(
    lease: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="64"):
        main(["run", "none.toml", "--standby", f"--lease={lease}"])

    assert f"argument --lease: '{lease}': 10 s or more" in capsys.readouterr().err


def test_a_lease_in_zookeeper_without_its_client_is_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)

    assert main(["run", "none.toml", "--standby", "--zookeeper", "127.0.0.1:2181"]) == 2
    message = capsys.readouterr().err
    assert "needs kazoo, which is not installed: pip install 'epochal[ha]'" in message
    assert "none.toml" not in message
    assert "zookeeper=" not in message


def test_the_path_for_spark_submit_is_a_program_that_takes_the_same_arguments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", "--path"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == "run.py"
    monkeypatch.setattr(sys, "argv", [str(path), "none.toml"])

    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(path), run_name="__main__")
    assert "none.toml: 1 fault" in capsys.readouterr().err


def test_the_program_does_not_put_its_own_folder_on_the_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", "--path"]) == 0
    path = capsys.readouterr().out.strip()
    own = str(Path(path).parent)
    (tmp_path / "sitecustomize.py").write_text(
        f"import atexit, sys\natexit.register(lambda: print('FIRST', [p for p in sys.path if p == {own!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, path, "none.toml"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(path).parents[1]}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "FIRST []" in done.stdout
