"""Jars for Spark, of Delta and of Spark's Kafka source: fetched once by Spark's own resolver and cached, never shipped.

A few jars are enough. Their dozens of dependencies would put older Hadoop, Jackson and Parquet classes before those of
Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from epochal.txn.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that belong together."""

    title: str
    size: str
    packages: tuple[str, ...]  # group:name:version
    excluded: str  # the groups of all their other dependencies

    @property
    def names(self) -> Mapping[str, str]:
        """The file names in the cache, each with the name that Spark's resolver gives it."""
        parts = [package.split(":") for package in self.packages]
        return {f"{name}-{version}.jar": f"{group}_{name}-{version}.jar" for group, name, version in parts}


DELTA = JarSet(
    title="Delta",
    size="10 MB",
    packages=("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    excluded=(
        "org.*:*,com.*:*,net.*:*,io.unitycatalog:*,io.netty:*,io.dropwizard*:*,javax*:*,jakarta*:*,commons*:*,dev.*:*"
    ),
)
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
TIMEOUT = 600


def is_installed() -> bool:
    """Whether ``epochal[delta]`` is installed."""
    return find_spec("delta") is not None and find_spec("deltalake") is not None


def delta_settings() -> dict[str, str]:
    """The settings of a SparkSession that has Delta's own code. The first call fetches its jars.

    If you build the session yourself::

        builder = SparkSession.builder.appName("orders")
        for key, value in epochal.delta_settings().items():
            builder = builder.config(key, value)
    """
    return {
        "spark.jars": ",".join(str(jar) for jar in fetched(DELTA)),
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
    }


def fetched(wanted: JarSet) -> list[Path]:
    """The jars in the cache; fetched if they are not there."""
    home = cache()
    jars = [home / name for name in wanted.names]
    if not all(jar.exists() for jar in jars):
        _fetch(wanted, home)
    return jars


def cache() -> Path:
    """The folder of the cached jars."""
    return cache_root() / "jars"


def cache_root() -> Path:
    """The folder for everything that is fetched once: ``EPOCHAL_CACHE``, or the user's cache folder."""
    given = os.environ.get("EPOCHAL_CACHE")
    return (
        Path(given).absolute()
        if given
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "epochal"
    )


def _fetch(wanted: JarSet, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"epochal: fetching {wanted.title}'s jars ({wanted.size}, once)\n")
    with tempfile.TemporaryDirectory(dir=home) as folder:
        command = resolver(wanted.packages, wanted.excluded, Path(folder))
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        for name, resolved in wanted.names.items():
            jar = Path(folder, "ivy", "jars", resolved)
            if not jar.exists():
                raise Refused(
                    f"{wanted.title}'s jars could not be fetched (Spark's resolver ended with {done.returncode}): "
                    f"{failure_reason(done.stderr)}. Without network, put {' and '.join(wanted.names)} into {home}"
                )
            os.replace(jar, home / name)  # atomic: another process may do the same


def resolver(packages: Iterable[str], excluded: str, folder: Path) -> list[str]:
    """The command by which Spark fetches packages and their dependencies into ``ivy/jars`` of a folder."""
    script = folder / "nothing.py"
    script.write_text("")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    submit = shutil.which("spark-submit", path=str(Path(spec.origin).parent / "bin"))
    assert submit is not None, "pyspark has no bin/spark-submit"
    return [
        *(submit, "--master", "local[1]", "--packages", ",".join(packages)),
        *("--exclude-packages", excluded, "--conf", f"spark.jars.ivy={folder / 'ivy'}", str(script)),
    ]


def failure_reason(text: str) -> str:
    """The line of the resolver's output that names the error."""
    lines = [line.strip() for line in text.splitlines() if "Exception" in line or "not found" in line]
    return lines[-1] if lines else "it printed no error"
