"""Jars for Spark are fetched once, with nothing but Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epochal import Refused, delta_settings, kafka_settings, s3_settings
from epochal.spark_plugins import jars, kafka, s3

pytestmark = pytest.mark.spark


def test_jars_are_fetched_into_an_empty_cache_and_found_there_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    first = delta_settings()
    said = capsys.readouterr().err
    again = delta_settings()

    assert "fetching Delta's jars" in said
    assert capsys.readouterr().err == ""
    assert first == again
    assert {path.name for path in (tmp_path / "jars").iterdir()} == set(jars.DELTA.names)
    assert all(Path(jar).stat().st_size > 100_000 for jar in first["spark.jars"].split(","))


@pytest.mark.matrix
def test_those_of_kafkas_source_are_fetched_in_the_same_way_and_added_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    found = kafka_settings({"spark.jars": "/mine.jar"})["spark.jars"].split(",")

    assert found[0] == "/mine.jar"
    assert {Path(jar).name for jar in found[1:]} == {*kafka.SOURCE.names, *kafka.TOKENS.names}
    assert all(Path(jar).stat().st_size > 50_000 for jar in found[1:])


@pytest.mark.matrix
def test_those_of_s3a_are_fetched_in_the_same_way_without_those_of_all_of_amazons_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    found = [Path(jar) for jar in s3_settings({"spark.jars": "/mine.jar"})["spark.jars"].split(",")]

    assert found[0] == Path("/mine.jar")
    assert {jar.name for jar in found[1:-2]} == {*s3.S3A.names}
    assert sorted(jar.name.rpartition("-")[0] for jar in found[-2:]) == ["epochal-checkpoints", "epochal-staging"]
    assert sum(jar.stat().st_size for jar in found[1:]) < 20 << 20


def test_jars_that_cannot_be_had_are_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path))
    missing = replace(jars.DELTA, packages=("io.delta:delta-spark:0.0.0",))

    with pytest.raises(Refused, match=r"Without network, put delta-spark-0\.0\.0\.jar into"):
        jars.fetched(missing)
    assert list((tmp_path / "jars").iterdir()) == []
