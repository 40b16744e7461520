"""Hadoop's local file system without a forked process for each file it makes.

Hadoop sets permissions by chmod and reads links by readlink, each in a process of its own, about thirty times in each
micro-batch. The classes in ``java/`` use java.nio instead, and when several rename to one name, exactly one succeeds.
Spark's own compiler compiles them at first use, and the jar stays in the cache. No JDK is needed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from epochal.spark_plugins import java_jars
from epochal.txn.errors import OptionError, Refused

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
NEEDED = ("hadoop-client-api-*.jar", "slf4j-api-*.jar")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


def local_disk_settings(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of a SparkSession for a local disk without forked processes. The first call compiles the jar.

    If you build the session yourself, apply them before its JVM starts::

        builder = SparkSession.builder.appName("orders")
        for key, value in epochal.local_disk_settings().items():
            builder = builder.config(key, value)

    Your own class paths stay in effect: those in `given`, else those of ``spark-defaults.conf``. For ``spark-submit``,
    ``python -m epochal.spark_plugins.local_disk`` prints the settings as ``--conf`` arguments. All executors must see
    the jar under the same path, as those on this machine do. Raises `Refused` if the jar cannot be made.
    """
    return _settings({**spark_defaults(), **(given or {})})


def _settings(configured: Mapping[str, str]) -> dict[str, str]:
    jar = str(compiled())
    paths = {key: os.pathsep.join(filter(None, [jar, configured.get(key)])) for key in CLASS_PATHS}
    return {**CLASSES, **paths}


def settings_for(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The same for `session`. Empty if it is switched off, or impossible, which is logged."""
    try:
        configured = {**spark_defaults(), **given}
        if not wanted(master, configured):
            # A JVM that was started with the classes uses them in every session unless the settings name others.
            must_undo = not any(key in given for key in CLASSES) and _jvm_has_classes()
            return dict(HADOOPS) if must_undo else {}
        settings = _settings(configured)
        _check_reach(settings)
    except Refused as fault:
        log.warning("local files were left to Hadoop's own file system, which is slower: %s", fault)
        return {}
    return settings


def wanted(master: str, given: Mapping[str, str]) -> bool:
    """Whether a session on this master should use it: all of its processes must be on this machine.

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
    """The jar in the cache; compiled if it is not there."""
    return java_jars.compiled("java", "local-disk", NEEDED)


def spark_defaults() -> dict[str, str]:
    """The settings of ``spark-defaults.conf``. A setting given in code replaces the one there."""
    folder = os.environ.get("SPARK_CONF_DIR") or str(java_jars.spark_home() / "conf")
    try:
        text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}  # Spark ignores a missing file too
    lines = (line.strip() for line in re.sub(r"\\\n\s*", "", text).splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if not line.startswith(("#", "!")))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _check_reach(settings: Mapping[str, str]) -> None:
    """Refuse settings that cannot reach the JVM: it may be running already, or get another class path."""
    if not _jvm_runs():
        if "--driver-class-path" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
            jar = settings[CLASS_PATHS[0]]
            raise Refused(f"PYSPARK_SUBMIT_ARGS sets --driver-class-path, which replaces epochal's; add {jar} to it")
    elif not _jvm_has_classes():
        raise Refused(
            "the JVM is already running without epochal's jar. Pass epochal.local_disk_settings() to what starts it"
        )


def _jvm_runs() -> bool:
    """Whether a JVM is running already: this process's own, or that of spark-submit."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _jvm_has_classes() -> bool:
    """Whether a JVM is running that has the classes."""
    from pyspark import SparkContext

    if not _jvm_runs():
        return False
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    return loader.getResource("epochal/LocalDiskFs.class") is not None


def _is_here(master: str) -> bool:
    """Whether a standalone master is on this machine's loopback: then its workers are here too."""
    parts = urlsplit(master)
    return parts.scheme == "spark" and parts.hostname in LOCAL_HOSTS


if __name__ == "__main__":
    sys.stdout.write("".join(f"--conf {key}={value} " for key, value in local_disk_settings().items()) + "\n")
