"""A JVM that starts quickly: simple compiler, simple collector, and the classes from an archive.

The archive holds what a first driver loaded, ready to be mapped. Java leaves it aside if anything
about it does not fit, so a stale one costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pyspark

from epochal.spark_plugins.java_command import launcher_java
from epochal.spark_plugins.local_disk import compiled

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# So that the few seconds of a driver's life have few collections.
ROOMY = "-Xmn256m -XX:MetaspaceSize=256m"
CHEAP = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
# For drivers, which live for a few epochs: compiling expressions takes longer than going through them.
SHORT_LIVED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", QUICK),  # in a driver: as its own JVM
}


def environment(options: str) -> dict[str, str]:
    """What gives these options to every Spark that is started below; ``spark-class`` starts a small JVM first."""
    return {"SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": QUICK, "SPARK_LOCAL_IP": "127.0.0.1"}


def archived(archive: Path) -> str:
    """The options of a JVM that uses an archive, if it is there."""
    return f"{QUICK} {ROOMY} -Xshare:auto -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def archiving(archive: Path) -> str:
    """The options of a JVM that makes one when it exits."""
    return f"{QUICK} -XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_name() -> str:
    """A name that changes with Java, with Spark and with what comes before Spark on the class path."""
    java = launcher_java()
    assert java is not None, "there is no Java: set JAVA_HOME, or put java on the PATH"
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    where = str(Path(pyspark.__file__).parent).encode()
    ours = compiled().name.encode()
    return hashlib.sha256(version + pyspark.__version__.encode() + where + ours).hexdigest()[:16] + ".jsa"
