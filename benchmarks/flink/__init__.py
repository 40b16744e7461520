"""Flink's FileSink as a competitor: a cluster in one process, which copies Parquet files on request.

Its jars are fetched once, like those of the servers. `FileSinkRace.java` is compiled each time, which needs a JDK.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from epochal.testing.servers.artifacts import Artifact, jars
from epochal.testing.servers.errors import ServerFailed
from epochal.testing.servers.hdfs_site import text
from epochal.testing.servers.java import Java, find_java

GOOD = (17, 21)
JARS = Artifact(
    title="Flink",
    size="160 MB",
    group="org.apache.flink",
    name="flink-connector-files",
    version="2.3.0",
    also=("flink-streaming-java", "flink-parquet", "flink-table-runtime"),
    # Flink's users choose the version of Hadoop: take Spark's.
    others=("org.apache.hadoop:hadoop-client-api:3.5.0", "org.apache.hadoop:hadoop-client-runtime:3.5.0"),
)
PROGRAM = Path(__file__).parent / "FileSinkRace.java"
GENTLE = 20.0  # seconds for a clean shutdown
TAIL = 4_000


class NoFlink(Exception):
    """This machine lacks something that Flink needs; the message names it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of one job."""

    seconds: float
    checkpoints: int


class Flink:
    """A running cluster."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log
        self._answer()

    def copy(self, source: str, target: str, checkpoints: str, interval_ms: int) -> Copied:
        """Copy every row of a folder into another; returns when all are in finished files."""
        self._pipe(self._process.stdin).write(f"run\t{source}\t{target}\t{checkpoints}\t{interval_ms}\n")
        self._pipe(self._process.stdin).flush()
        answer = self._answer()
        return Copied(float(answer["seconds"]), int(answer["checkpoints"]))

    def end(self) -> None:
        """End the process by closing its input; kill it if that is not enough."""
        if self._process.poll() is None:
            self._pipe(self._process.stdin).close()
        try:
            self._process.wait(GENTLE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe(self._process.stdout).close()

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise SystemExit(f"Flink ended with {self._process.wait()}:\n{self._log.read_text()[-TAIL:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @staticmethod
    def _pipe(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@contextmanager
def flink(
    home: Path, *, memory: str, cores: int, hadoop: Mapping[str, str], tell: Callable[[str], None]
) -> Iterator[Flink]:
    """A cluster with this heap and number of slots; `hadoop` has the settings of an HDFS client."""
    try:
        java = find_java("Flink", GOOD)
        found = jars(JARS, java, tell)
    except ServerFailed as fault:
        raise NoFlink(str(fault)) from fault
    place = home / "flink"
    place.mkdir()
    _compile(java, found, place)
    (place / "hdfs-site.xml").write_text(text(hadoop))
    command = [str(java.command), f"-Xmx{memory}", f"-Djava.io.tmpdir={place}", "-cp", _class_path(place, found)]
    log = place / "log.txt"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, PROGRAM.stem, str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    running = Flink(process, log)
    try:
        yield running
    finally:
        running.end()


def _compile(java: Java, found: list[Path], place: Path) -> None:
    compiler = shutil.which("javac", path=str(java.home / "bin")) or shutil.which("javac")
    if compiler is None:
        raise NoFlink(f"Flink's job is compiled by javac, which {java.home} lacks: install a JDK (OpenJDK 17)")
    command = [compiler, "--release", "17", "-cp", _class_path(place, found), "-d", str(place), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"javac ended with {done.returncode}:\n{done.stderr[-TAIL:]}")


def _class_path(place: Path, found: list[Path]) -> str:
    return ":".join(str(part) for part in (place, *found))
