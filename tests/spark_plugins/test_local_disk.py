"""How epochal's file system for local disks gets to a JVM. What it does there: integration_tests/spark."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from epochal import OptionError, Refused, local_disk_settings
from epochal.spark_plugins import java_jars, local_disk
from epochal.spark_plugins.session import session

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.hadoop.fs.AbstractFileSystem.file.impl",
    "spark.hadoop.fs.file.impl",
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
}


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_settings_name_classes_that_are_in_the_jar_that_they_name(empty_cache: Path) -> None:
    settings = local_disk_settings()
    jar = Path(settings["spark.driver.extraClassPath"])

    assert settings.keys() == SETTINGS
    assert jar.is_relative_to(empty_cache)
    assert settings["spark.executor.extraClassPath"] == str(jar)
    names = zipfile.ZipFile(jar).namelist()
    for key, name in settings.items():
        if key.endswith(".impl"):
            assert f"{name.replace('.', '/')}.class" in names


def test_the_jar_is_compiled_once_and_nothing_is_left_beside_it(empty_cache: Path) -> None:
    first = local_disk.compiled()
    before = first.stat()
    second = local_disk.compiled()

    assert second == first
    assert (second.stat().st_ino, second.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(first.parent.iterdir()) == [first]


def test_processes_that_compile_at_once_end_with_one_whole_jar(empty_cache: Path) -> None:
    code = "from epochal.spark_plugins.local_disk import compiled; print(compiled())"
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(3)
    ]
    answer = {process.communicate()[0].strip() for process in running}

    (jar,) = answer
    assert zipfile.ZipFile(jar).testzip() is None
    assert [str(path) for path in Path(jar).parent.iterdir()] == [jar]


def test_class_paths_of_the_users_own_are_kept() -> None:
    settings = local_disk_settings({"spark.driver.extraClassPath": "/opt/drivers.jar"})

    ours, _, theirs = settings["spark.driver.extraClassPath"].partition(os.pathsep)
    assert ours == settings["spark.executor.extraClassPath"]
    assert theirs == "/opt/drivers.jar"


def test_so_are_those_of_sparks_own_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "# ours",
        "",
        "spark.driver.extraClassPath   /opt/one.jar",
        "spark.executor.extraClassPath=/opt/two.jar",
        "x",
    ]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    settings = local_disk_settings({"spark.executor.extraClassPath": "/opt/three.jar"})

    assert settings["spark.driver.extraClassPath"].endswith(f"{os.pathsep}/opt/one.jar")
    assert settings["spark.executor.extraClassPath"].endswith(f"{os.pathsep}/opt/three.jar")


def test_sparks_own_file_of_settings_may_turn_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.epochal.localDisk false\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    assert local_disk.settings_for("local[2]", {}) == {}
    assert local_disk.settings_for("local[2]", {"spark.epochal.localDisk": "true"}).keys() == SETTINGS


def test_sparks_own_file_of_settings_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(return_value={})
    monkeypatch.setattr(local_disk, "spark_defaults", read)

    assert local_disk.settings_for("local[2]", {}).keys() == SETTINGS
    read.assert_called_once()


def test_without_java_it_is_refused_by_name(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    with pytest.raises(Refused, match="there is no Java"):
        local_disk_settings()
    assert not list(empty_cache.rglob("*.jar"))


def test_a_session_that_cannot_have_it_starts_without_and_logs_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file, where a folder should be")
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    with caplog.at_level(logging.WARNING, logger="epochal"):
        settings = local_disk.settings_for("local[2]", {})

    assert settings == {}
    (line,) = caplog.messages
    assert "Hadoop's own file system, which is slower" in line
    assert str(tmp_path / "cache") in line


def test_a_path_that_no_class_path_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "a:b"))

    with pytest.raises(Refused, match="no class path can hold"):
        local_disk_settings()


def test_a_relative_cache_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EPOCHAL_CACHE", "cache")

    assert local_disk.compiled().is_relative_to(tmp_path / "cache")


def test_half_a_jar_is_made_again(empty_cache: Path) -> None:
    jar = local_disk.compiled()
    whole = jar.read_bytes()
    jar.write_bytes(whole[:100])

    assert local_disk.compiled().read_bytes() == whole


def test_another_class_path_for_the_driver_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-class-path /opt/x.jar pyspark-shell")

    assert local_disk.settings_for("local[2]", {}) == {}
    assert "PYSPARK_SUBMIT_ARGS sets --driver-class-path, which replaces epochal's" in caplog.text


def test_sources_that_do_not_compile_leave_no_jar(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_jars, "COMPILER", "no.such.Compiler")

    with pytest.raises(Refused, match=r"could not be compiled .*no.such.Compiler"):
        local_disk_settings()
    assert not list(empty_cache.rglob("*.jar"))


@pytest.mark.parametrize(
    ("master", "given", "wanted"),
    [
        ("local[*]", {}, True),
        ("local-cluster[2,1,1024]", {}, True),
        ("spark://127.0.0.1:7077", {}, True),
        ("spark://[::1]:7077", {}, True),
        ("spark://etl.example:7077", {}, False),  # its workers have no such jar
        ("yarn", {}, False),
        ("local[*]", {"spark.epochal.localDisk": "false"}, False),
        ("local[*]", {"spark.epochal.localDisk": False}, False),
        ("local[*]", {"spark.hadoop.fs.file.impl": "org.example.Mine"}, False),
    ],
)
def test_it_is_for_sessions_whose_processes_are_all_here(master: str, given: dict[str, Any], wanted: bool) -> None:
    assert local_disk.wanted(master, given) is wanted


@pytest.mark.parametrize("value", ["ja", "1", ""])
def test_a_switch_that_is_neither_true_nor_false_is_refused(value: str) -> None:
    with pytest.raises(OptionError, match=r"spark\.epochal\.localDisk"):
        session("never", conf={"spark.epochal.localDisk": value})
