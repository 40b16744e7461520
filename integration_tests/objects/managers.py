"""Spark's checkpoint managers, called as Spark calls them: a file is created, written, and closed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from epochal.sinks.storage.paths import spark_path
from epochal.testing.processes import in_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
OURS = "epochal.StoreCheckpoints"
SPARKS = (f"{PACKAGE}.FileContextBasedCheckpointFileManager", f"{PACKAGE}.FileSystemBasedCheckpointFileManager")
TAKEN = "FileAlreadyExistsException"


class Manager:
    """One manager, as one driver has it. With an endpoint it has a client of its own."""

    def __init__(self, spark: SparkSession, kind: str, folder: str, endpoint: str = "") -> None:
        jvm: Any = spark._jvm
        self._jvm, self._folder = jvm, spark_path(folder)
        conf = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        conf.set("fs.s3a.impl.disable.cache", "true")
        conf.set("fs.AbstractFileSystem.s3a.impl", "org.apache.hadoop.fs.s3a.S3A")
        if endpoint:
            conf.set("fs.s3a.endpoint", endpoint)
        loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        made = loader.loadClass(kind).getConstructors()[0]
        gateway: Any = spark.sparkContext._gateway
        arguments = gateway.new_array(jvm.Object, 2)
        arguments[0], arguments[1] = self._path(""), conf
        self._manager: Any = made.newInstance(arguments)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._folder}/{name}")

    def make_folder(self) -> None:
        """What Spark does first."""
        self._manager.mkdirs(self._path(""))

    def begin(self, name: str, data: bytes, *, overwrite: bool = False) -> Any:
        """A file that is written, and not yet closed."""
        stream = self._manager.createAtomic(self._path(name), overwrite)
        stream.write(bytearray(data))
        return stream

    def write(self, name: str, data: bytes, *, overwrite: bool = False) -> bool:
        """A file; False if Spark is told that it exists."""
        try:
            self.begin(name, data, overwrite=overwrite).close()
        except Py4JJavaError as fault:
            if _is_taken(fault):
                return False
            raise
        return True


def race(managers: list[Manager], name: str) -> list[bool]:
    """Each writes a file of one name, all closed at once. Who was told that it has written it."""
    streams = []
    for number, manager in enumerate(managers):
        streams.append(manager.begin(name, b"%d" % number))
    told = in_threads([partial(_close, stream) for stream in streams])
    faults = [answer for answer in told if isinstance(answer, Exception)]
    assert not faults, faults
    return [bool(answer) for answer in told]


def _close(stream: Any) -> bool:
    try:
        stream.close()
    except Py4JJavaError as fault:
        if _is_taken(fault):
            return False
        raise
    return True


def _is_taken(fault: Py4JJavaError) -> bool:
    """Whether it is the exception by which Spark learns of another driver."""
    return str(fault.java_exception.getClass().getName()) == f"org.apache.hadoop.fs.{TAKEN}"
