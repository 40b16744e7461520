"""Delta's jars: fetched once by Spark's own resolver and cached, never shipped.

Two jars are enough. Their thirty dependencies would put older Hadoop, Jackson and Parquet classes before
those of Spark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from epochal.txn.errors import Refused

JARS = {
    "delta-spark_4.2_2.13-4.4.0.jar": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "delta-storage-4.4.0.jar": "io.delta:delta-storage:4.4.0",
}
# The groups of all their dependencies.
EXCLUDED = (
    "org.*:*,com.*:*,net.*:*,io.unitycatalog:*,io.netty:*,io.dropwizard*:*,javax*:*,jakarta*:*,commons*:*,dev.*:*"
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
        "spark.jars": ",".join(str(jar) for jar in fetched()),
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
    }


def fetched() -> list[Path]:
    """The jars in the cache; fetched if they are not there."""
    home = cache()
    jars = [home / name for name in JARS]
    if not all(jar.exists() for jar in jars):
        _fetch(home)
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


def _fetch(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    sys.stderr.write("epochal: fetching Delta's jars (10 MB, once)\n")
    with tempfile.TemporaryDirectory(dir=home) as folder:
        command = resolver(JARS.values(), EXCLUDED, Path(folder))
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        for name in JARS:
            jar = Path(folder, "ivy", "jars", f"io.delta_{name}")
            if not jar.exists():
                raise Refused(
                    f"Delta's jars could not be fetched (Spark's resolver ended with {done.returncode}): "
                    f"{failure_reason(done.stderr)}. Without network, put {' and '.join(JARS)} into {home}"
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
