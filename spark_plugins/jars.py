"""Delta's jars: fetched once by Spark's own resolver, kept in a cache, never shipped.

Two jars suffice. What else their descriptions ask for, thirty jars, would put older Hadoop, Jackson
and Parquet classes before those of Spark.
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
# All groups that the two ask for but their own.
LEFT_OUT = (
    "org.*:*,com.*:*,net.*:*,io.unitycatalog:*,io.netty:*,io.dropwizard*:*,javax*:*,jakarta*:*,commons*:*,dev.*:*"
)
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
TIMEOUT = 600


def is_installed() -> bool:
    """Whether ``epochal[delta]`` is."""
    return find_spec("delta") is not None and find_spec("deltalake") is not None


def delta_settings() -> dict[str, str]:
    """What a SparkSession needs for Delta's own code; fetches its jars if this is the first time.

    For people who build their session themselves::

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
    """The jars in the cache."""
    home = cache()
    jars = [home / name for name in JARS]
    if not all(jar.exists() for jar in jars):
        _fetch(home)
    return jars


def cache() -> Path:
    """Where jars are kept."""
    return cache_root() / "jars"


def cache_root() -> Path:
    """Where everything is kept that is fetched once: ``EPOCHAL_CACHE``, or the user's own cache folder."""
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
        command = resolver(JARS.values(), LEFT_OUT, Path(folder))
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        for name in JARS:
            found = Path(folder, "ivy", "jars", f"io.delta_{name}")
            if not found.exists():
                raise Refused(
                    f"Delta's jars could not be fetched (Spark's resolver ended with {done.returncode}): "
                    f"{last_words(done.stderr)}. Without network, put {' and '.join(JARS)} into {home}"
                )
            os.replace(found, home / name)  # whole or not at all, whoever else does the same


def resolver(packages: Iterable[str], left_out: str, folder: Path) -> list[str]:
    """The command by which Spark fetches packages and what they ask for into ``ivy/jars`` of a folder."""
    script = folder / "nothing.py"
    script.write_text("")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    submit = shutil.which("spark-submit", path=str(Path(spec.origin).parent / "bin"))
    assert submit is not None, "pyspark has no bin/spark-submit"
    return [
        *(submit, "--master", "local[1]", "--packages", ",".join(packages)),
        *("--exclude-packages", left_out, "--conf", f"spark.jars.ivy={folder / 'ivy'}", str(script)),
    ]


def last_words(text: str) -> str:
    """The line of the resolver's output that says why."""
    lines = [line.strip() for line in text.splitlines() if "Exception" in line or "not found" in line]
    return lines[-1] if lines else "it said nothing"
