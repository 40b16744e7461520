"""The command that runs a broker: a small heap, a quick start, and nothing written outside its folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from epochal.testing.servers.java import QUICK, Java

GOOD = (17, 21)  # Kafka 4 needs 17; tried on 17
BROKER = "kafka.Kafka"
STORAGE = "kafka.tools.StorageTool"
JVM = (
    "-Xms64m",
    "-Xmx256m",
    "-Xss512k",
    *QUICK,
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)


def format_arguments(cluster: str, file: Path) -> list[str]:
    """The arguments of `STORAGE` for a new folder. As one word: an id may begin with a hyphen."""
    return ["format", f"--cluster-id={cluster}", "--config", str(file)]


def command(java: Java, jars: Sequence[Path], folder: Path, options: Sequence[str], main: str, *rest: str) -> list[str]:
    """A whole command. The given options come last, so they override those here."""
    jvm = (*JVM, f"-Djava.io.tmpdir={folder / 'tmp'}", *options)
    return [str(java.command), *jvm, "-cp", os.pathsep.join(str(jar) for jar in jars), main, *rest]
