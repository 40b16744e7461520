"""Jars of epochal's own Java classes, for what Spark loads by name: compiled once and cached, never shipped.

Spark's own compiler compiles them at first use. No JDK is needed. Classes that only the driver needs are compiled in
its JVM instead (`sinks/storage/java_code.py`).
"""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from epochal.spark_plugins.jars import cache
from epochal.spark_plugins.java_command import launcher_java
from epochal.txn.errors import Refused
from epochal.txn.files import LocalFiles

# The command line of Janino, by which Spark compiles its queries. Every Spark ships it.
COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
TIMEOUT = 120


def compiled(folder: str, title: str, needs: Sequence[str]) -> Path:
    """The jar of the classes of a folder beside this module; compiled if it is not in the cache.

    `needs` are patterns of the jars of Spark that they are compiled against.
    """
    sources = {
        source.name: source.read_bytes()
        for source in importlib.resources.files("epochal.spark_plugins").joinpath(folder).iterdir()
        if source.name.endswith(".java")
    }
    jars = spark_home() / "jars"
    needed = [path for pattern in needs for path in jars.glob(pattern)]
    if len(needed) < len(needs):
        raise Refused(f"{jars} has no {' or no '.join(needs)}: is SPARK_HOME right?")
    # The classes fit only the Hadoop and the Spark that they were compiled against.
    content = [name.encode() + text for name, text in sorted(sources.items())] + [path.name.encode() for path in needed]
    name = f"epochal-{title}-{hashlib.sha256(bytes(1).join(content)).hexdigest()[:16]}.jar"
    try:
        jar = cache() / name
        if not zipfile.is_zipfile(jar):  # missing, or cut short by a machine that went down
            _compile(sources, jars, needed, jar)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as fault:  # RuntimeError: the user has no home folder
        raise Refused(f"{name} could not be made: {fault}") from fault
    if os.pathsep in str(jar):
        raise Refused(
            f"{jar} has a {os.pathsep!r} in its path, which no class path can hold: set EPOCHAL_CACHE to another folder"
        )
    return jar


def _compile(sources: Mapping[str, bytes], jars: Path, needed: list[Path], jar: Path) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix="compiling-") as name:
        folder = Path(name)
        for source, text in sources.items():
            (folder / source).write_bytes(text)
        java = launcher_java()
        if java is None:
            raise Refused("there is no Java: set JAVA_HOME, or put java on the PATH")
        command = [
            *(str(java), "-XX:TieredStopAtLevel=1", "-cp", str(jars / "*"), COMPILER, "-d", str(folder / "classes")),
            *("-encoding", "UTF-8", "-classpath", os.pathsep.join(map(str, needed))),
            *(str(folder / source) for source in sorted(sources)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        classes = sorted((folder / "classes").rglob("*.class"))
        if done.returncode or len(classes) < len(sources):
            reason = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
            raise Refused(f"{jar.name} could not be compiled (exit code {done.returncode}): {reason}")
        whole = folder / jar.name
        with zipfile.ZipFile(whole, "w") as archive:
            for path in classes:
                # With a fixed date, so that every machine gets the same bytes.
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder / "classes"))), path.read_bytes())
        whole.chmod(0o644)
        LocalFiles().sync(str(whole))
        os.replace(whole, jar)  # atomic: another process may do the same


def spark_home() -> Path:
    """Where Spark is."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())
