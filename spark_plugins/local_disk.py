"""A local disk that costs nothing: Hadoop's local file system without a process for each file it makes.

Hadoop sets permissions by chmod and looks at links by readlink, each in a process of its own, some thirty times in each
micro-batch. The classes in ``java/`` do the same by java.nio, and their rename has one winner. Spark's own compiler
compiles them when they are first needed; the jar is kept in the cache. No JDK is needed.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from epochal.spark_plugins.jars import cache
from epochal.txn.errors import OptionError, Refused
from epochal.txn.files import LocalFiles

log = logging.getLogger("epochal")

SWITCH = "spark.epochal.localDisk"
CLASSES = {
    "spark.hadoop.fs.file.impl": "epochal.LocalDiskFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "epochal.LocalDiskFs",
}
HADOOPS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}
CLASS_PATHS = ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
# A front of Janino, with which Spark compiles its queries; it is in the jars that every Spark has.
COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
NEEDED = ("hadoop-client-api-*.jar", "slf4j-api-*.jar")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
TIMEOUT = 120


def local_disk_settings(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a SparkSession needs for a local disk without forked processes; compiles the jar if this is the first time.

    For people who build their session themselves, before its JVM starts::

        builder = SparkSession.builder.appName("orders")
        for key, value in epochal.local_disk_settings().items():
            builder = builder.config(key, value)

    Class paths of your own are kept: those in `given`, else those of ``spark-defaults.conf``. For ``spark-submit`` give
    them as ``--conf``: ``python -m epochal.spark_plugins.local_disk`` prints them so. All executors must see the jar
    under the same path, as those on this machine do. Refused if the jar cannot be made.
    """
    jar, theirs = str(compiled()), {**_defaults(), **(given or {})}
    paths = {key: os.pathsep.join(filter(None, [jar, theirs.get(key)])) for key in CLASS_PATHS}
    return {**CLASSES, **paths}


def settings_for(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The same for `session`: nothing where it is switched off or cannot be, which is said once."""
    try:
        if not wanted(master, {**_defaults(), **given}):
            # A JVM that was started with it has it in every session, unless told.
            is_there = not any(key in given for key in CLASSES) and _jvm_has_it()
            return dict(HADOOPS) if is_there else {}
        settings = local_disk_settings(given)
        _check_reach(settings)
    except Refused as fault:
        log.warning("local files go through Hadoop's own file system, which is slower: %s", fault)
        return {}
    return settings


def wanted(master: str, given: Mapping[str, str]) -> bool:
    """Whether a session on this master should have it: all of its processes must be on this machine.

    >>> wanted("local[2]", {}), wanted("spark://etl:7077", {}), wanted("local[2]", {"spark.epochal.localDisk": "false"})
    (True, False, False)
    """
    switch = str(given.get(SWITCH, "true")).lower()
    if switch not in ("true", "false"):
        raise OptionError("epochal.session", [f"{SWITCH}={given[SWITCH]!r}: true or false"])
    if switch == "false" or any(key in given for key in CLASSES):
        return False
    return master.startswith("local") or _is_here(master)


def compiled() -> Path:
    """The jar in the cache."""
    sources = {
        source.name: source.read_bytes()
        for source in importlib.resources.files("epochal.spark_plugins").joinpath("java").iterdir()
        if source.name.endswith(".java")
    }
    jars = _spark_home() / "jars"
    needed = [path for pattern in NEEDED for path in jars.glob(pattern)]
    if len(needed) < len(NEEDED):
        raise Refused(f"{jars} has no {' or no '.join(NEEDED)}: is SPARK_HOME right?")
    # Classes are for the Hadoop that they were compiled with.
    known = [name.encode() + text for name, text in sorted(sources.items())] + [path.name.encode() for path in needed]
    name = f"epochal-local-disk-{hashlib.sha256(bytes(1).join(known)).hexdigest()[:16]}.jar"
    try:
        jar = cache() / name
        if not zipfile.is_zipfile(jar):  # not there, or a machine went down while it was written
            _compile(sources, jars, needed, jar)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as fault:  # RuntimeError: there is no home
        raise Refused(f"{name} could not be made: {fault}") from fault
    if os.pathsep in str(jar):
        raise Refused(f"{jar} has a {os.pathsep!r} in its path, which no class path can hold: set EPOCHAL_CACHE")
    return jar


def _compile(sources: Mapping[str, bytes], jars: Path, needed: list[Path], jar: Path) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix="compiling-") as name:
        folder = Path(name)
        for source, text in sources.items():
            (folder / source).write_bytes(text)
        command = [
            *(_java(), "-XX:TieredStopAtLevel=1", "-cp", str(jars / "*"), COMPILER, "-d", str(folder / "classes")),
            *("-encoding", "UTF-8", "-classpath", os.pathsep.join(map(str, needed))),
            *(str(folder / source) for source in sorted(sources)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        classes = sorted((folder / "classes").rglob("*.class"))
        if done.returncode or len(classes) < len(sources):
            words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise Refused(f"{jar.name} could not be compiled (exit code {done.returncode}): {words}")
        whole = folder / jar.name
        with zipfile.ZipFile(whole, "w") as archive:
            for path in classes:
                # With a fixed date: whoever compiles it gets the same bytes.
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder / "classes"))), path.read_bytes())
        whole.chmod(0o644)
        LocalFiles().sync(str(whole))
        os.replace(whole, jar)  # whole or not at all, whoever else does the same


def _defaults() -> dict[str, str]:
    """The settings of ``spark-defaults.conf``: what is given by code would take their place, not come beside them."""
    place = os.environ.get("SPARK_CONF_DIR") or str(_spark_home() / "conf")
    try:
        text = Path(place, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}  # as for Spark, which goes without it
    lines = (line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if not line.startswith(("#", "!")))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _java() -> str:
    """The command that Spark's launcher would run."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise Refused("there is no Java: set JAVA_HOME, or put java on the PATH")
    return found


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def _check_reach(settings: Mapping[str, str]) -> None:
    """Refuse settings that cannot reach the JVM: it may run since before this was asked, or get another class path."""
    if not _jvm_runs():
        if "--driver-class-path" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
            jar = settings[CLASS_PATHS[0]]
            raise Refused(f"PYSPARK_SUBMIT_ARGS gives the driver another class path; add {jar} to it")
    elif not _jvm_has_it():
        raise Refused(
            "the JVM runs already, without epochal's jar. Give epochal.local_disk_settings() to what started it"
        )


def _jvm_runs() -> bool:
    """Whether there is a JVM already: this process's own, or spark-submit's."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _jvm_has_it() -> bool:
    """Whether there is a JVM that has the classes."""
    from pyspark import SparkContext

    if not _jvm_runs():
        return False
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    return loader.getResource("epochal/LocalDiskFs.class") is not None


def _is_here(master: str) -> bool:
    """Whether a standalone master is on this machine's loopback: its workers are then, too."""
    parts = urlsplit(master)
    return parts.scheme == "spark" and parts.hostname in LOCAL_HOSTS


if __name__ == "__main__":
    sys.stdout.write("".join(f"--conf {key}={value} " for key, value in local_disk_settings().items()) + "\n")
