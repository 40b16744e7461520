"""What Spark prints under `epochal run` and `epochal check`: hidden, bounded, and shown if it cannot start."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from epochal.cli.spark_output import LENGTH, LINES, SparkOutput, hidden
from epochal.spark_plugins.streams import sessions


def prints(output: SparkOutput, program: str) -> None:
    """Let a process print, and wait for its end."""
    subprocess.run([sys.executable, "-c", program], stdout=output.writing, stderr=output.writing, check=True)
    output.started()


def test_only_the_last_lines_are_kept_however_much_is_printed() -> None:
    with hidden() as output:
        assert output is not None
        prints(output, f"for n in range({LINES} + 500): print('line', n, 'x' * {2 * LENGTH})")
        kept = output.last(2 * LINES, within=30)

    assert len(kept) == LINES
    assert kept[-1].startswith(f"line {LINES + 499} ")
    assert {len(line) for line in kept} == {LENGTH}


def test_what_is_saved_can_be_read_by_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output, silent = SparkOutput(), SparkOutput()
    prints(output, "import sys; print('one'); print(); print('two \\xe9', file=sys.stderr)")
    prints(silent, "pass")
    output.last(1, within=30)
    saved = output.saved()

    assert saved is not None
    assert sorted(Path(saved).read_text(encoding="utf-8").split("\n")) == ["", "one", "two é"]
    assert os.stat(saved).st_mode & 0o777 == 0o600
    assert silent.saved() is None


def test_traces_of_batches_that_fail_are_kept_with_it_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("py4j.clientserver")
    with hidden() as output:
        assert output is not None
        try:
            raise ValueError("boom")
        except ValueError:
            log.exception("There was an exception")
        output.started()
        kept = output.last(10, within=30)
    log.error("later")

    assert (kept[0], kept[-1]) == ("There was an exception", "ValueError: boom")
    assert [record.getMessage() for record in caplog.records] == ["later"]


def test_verbose_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="epochal"), hidden() as output:
        assert output is None


def test_java_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Unsupported class file major version 99' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "orders.toml").write_text(
        '[spark]\n"spark.jars" = ""\n[streams.orders]\ncheckpoint = "c"\n[streams.orders.source]\nformat = "rate"\n'
        '[streams.orders.sinks.out]\ntype = "files"\npath = "t"\n'
    )

    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "NO_COLOR": "1"}
    environment.pop(sessions.GATEWAY, None)

    command = [sys.executable, "-m", "epochal.cli", "check", "orders.toml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("epochal: Refused: Spark could not start on local[2]")
    assert "Java printed: Unsupported class file major version 99" in done.stderr


def test_an_error_in_a_query_that_spark_logs_as_json_is_kept_with_it_and_not_shown(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from pyspark.logger import PySparkLogger

    with hidden() as output:
        assert output is not None
        PySparkLogger.getLogger("SQLQueryContextLogger").exception("no such column", errorClass="UNRESOLVED_COLUMN")
        output.started()
        kept = output.last(10, within=30)

    assert kept[0] == "no such column"
    assert capfd.readouterr().err == ""
