"""Jars are fetched once, whole or not at all. A script stands in for Maven."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from epochal.testing.processes import in_processes
from epochal.testing.servers import ServerFailed, artifacts
from epochal.testing.servers.artifacts import CASSANDRA, Artifact
from epochal.testing.servers.java import Java

JAVA = Java(Path("/nowhere/bin/java"), 17)
PUTS = """
for argument; do case $argument in -DoutputDirectory=*) out=${argument#*=};; esac; done
mkdir -p "$out"
echo once >> "$EPOCHAL_CACHE/../calls"
"""
JAR = "cassandra-all-5.0.9.jar"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPOCHAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(artifacts, "resolver", lambda *_: ["false"])  # Spark's is tried with the real server
    return tmp_path / "cache"


def maven(cache: Path, script: str) -> None:
    command = cache.parent / "mvn"
    command.write_text(f"#!/bin/sh\n{PUTS}{script}\n")
    command.chmod(0o755)


def fetch() -> list[str]:
    return [jar.name for jar in artifacts.jars(CASSANDRA, JAVA)]


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


def test_jars_are_fetched_once_and_that_is_reported(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maven(cache, f'touch "$out/{JAR}" "$out/b.jar"')

    assert fetch() == ["b.jar", JAR]
    assert fetch() == ["b.jar", JAR]
    assert capsys.readouterr().err == "epochal: fetching Cassandra's jars (70 MB, once)\n"
    assert names(cache) == {"cassandra-all-5.0.9", "cassandra-all-5.0.9.lock"}
    assert (cache.parent / "calls").read_text() == "once\n"


def test_two_at_the_same_time_both_succeed_with_one_download(cache: Path) -> None:
    maven(cache, f'touch "$out/{JAR}"; for i in $(seq 2000); do :; done; touch "$out/b.jar"')

    assert in_processes([fetch, fetch, fetch]) == [["b.jar", JAR]] * 3
    assert (cache.parent / "calls").read_text() == "once\n"


def test_a_killed_download_leaves_nothing_that_looks_whole(cache: Path) -> None:
    maven(cache, f'touch "$out/{JAR}"; kill -9 $PPID; touch "$out/b.jar"')  # it dies with one jar of two
    (killed,) = in_processes([fetch])
    assert f"{-signal.SIGKILL}" in str(killed)
    assert "cassandra-all-5.0.9" not in names(cache)

    maven(cache, f'touch "$out/{JAR}" "$out/b.jar"')

    assert fetch() == ["b.jar", JAR]
    assert names(cache) == {"cassandra-all-5.0.9", "cassandra-all-5.0.9.lock"}  # and the pieces are gone


@pytest.mark.parametrize("script", ["echo 'Exception: no network'; exit 1", 'touch "$out/another.jar"'])
def test_what_cannot_be_fetched_is_reported_with_what_to_do(cache: Path, script: str) -> None:
    maven(cache, script)

    with pytest.raises(ServerFailed, match=r"Without network, put cassandra-all 5\.0\.9 and its dependencies into"):
        fetch()
    assert names(cache) == {"cassandra-all-5.0.9.lock"}


def test_sparks_resolver_is_asked_where_maven_fails(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(cache, "exit 1")
    asked = []

    def resolver(packages: list[str], left_out: str, part: Path) -> list[str]:
        asked.append((packages, left_out))
        (part / "ivy" / "jars").mkdir(parents=True)
        return ["touch", str(part / "ivy" / "jars" / f"org.apache.cassandra_{JAR}")]

    monkeypatch.setattr(artifacts, "resolver", resolver)

    assert fetch() == [f"org.apache.cassandra_{JAR}"]
    assert asked == [
        (["org.apache.cassandra:cassandra-all:5.0.9"], "net.openhft:chronicle-analytics,net.openhft:compiler")
    ]


def test_jars_of_other_groups_are_asked_for_with_versions_of_their_own(cache: Path) -> None:
    maven(cache, 'for file; do case $file in *pom.xml) cp "$file" "$EPOCHAL_CACHE/../asked";; esac; done; exit 1')
    both = Artifact(title="Both", size="1 MB", group="one", name="a", version="1", also=("b",), others=("two:c:2",))

    with pytest.raises(ServerFailed):
        artifacts.jars(both, JAVA)

    asked = re.findall(
        r"<groupId>(.*?)</groupId><artifactId>(.*?)</artifactId><version>(.*?)<", (cache.parent / "asked").read_text()
    )
    assert asked[1:] == [("one", "a", "1"), ("one", "b", "1"), ("two", "c", "2")]
