from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from epochal.spark_plugins.java_command import launcher_java

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_java.py"


def fake_java(home: Path, version: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return command


def check_java(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script as `make` does before anything is installed."""
    command = [sys.executable, "-I", "-S", str(SCRIPT)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_java_home_comes_before_the_path_and_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, path = fake_java(tmp_path / "home", "17.0.15"), fake_java(tmp_path / "path", "21.0.1")
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert launcher_java() == home

    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert launcher_java() is None
    monkeypatch.delenv("JAVA_HOME")
    assert launcher_java() == path


def test_the_script_accepts_a_java_that_is_new_enough_without_any_package_installed(tmp_path: Path) -> None:
    fake_java(tmp_path, "17.0.15")

    checked = check_java(JAVA_HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_script_names_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "1.8.0_392")

    for environment, what in (
        ({"JAVA_HOME": str(tmp_path)}, f"{old} is Java 8"),
        ({"JAVA_HOME": "/nonexistent"}, "JAVA_HOME is /nonexistent, which has no bin/java"),
        ({"PATH": "/nonexistent"}, "JAVA_HOME is not set and PATH has no java"),
    ):
        checked = check_java(**{"PATH": "/usr/bin:/bin", **environment})
        assert checked.returncode == 1
        assert what in checked.stderr
        assert checked.stderr.count("\n") == 1
