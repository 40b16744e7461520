"""What Spark needs for operators of the user's own (transformWithState), checked before the first row.

Without it Spark fails in the first epoch, in the trace of a worker. By then it has planned that epoch, and the
checkpoint keeps the state store's provider for good, also a wrong one.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("epochal")

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
UNFIT = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"  # Spark's default
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
OPERATOR = "TransformWithStateInPySpark"
# What Spark's messages to the workers are made of; an older protobuf does not have it.
PROBE = "from google.protobuf import runtime_version"
MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"
TIMEOUT = 30  # seconds
INSTALL = "pip install 'epochal[state]'"


def rocksdb_settings() -> dict[str, str]:
    """The settings of a SparkSession whose queries keep their state in RocksDB, which transformWithState needs::

        spark = epochal.session("fraud", conf=epochal.rocksdb_settings())

    An epoch writes its changes only (the changelog); Spark makes snapshots of them in the background. A checkpoint
    keeps the provider that it began with.
    """
    return {PROVIDER: ROCKSDB, CHANGELOG: "true"}


def faults(spark: SparkSession, planned: Mapping[str, str] | None) -> list[Exception]:
    """What a session lacks for such operators. `planned`: the settings that the checkpoint has, if it is not new."""
    found = [
        provider_fault(str(spark.conf.get(PROVIDER, UNFIT)), planned),
        python_fault(spark.sparkContext.pythonExec),
    ]
    return [Refused(f"{fault}. Nothing was written") for fault in found if fault is not None]


def has_operators(frame: DataFrame) -> bool:
    """Whether the frame has an operator of the user's own; False if Spark does not tell."""
    try:
        return any(str(node.nodeName()) == OPERATOR for node in _nodes(frame._jdf.queryExecution().analyzed()))
    except Py4JError as fault:
        log.debug("operators not checked before the start of the query", extra={"error": repr(fault)})
        return False


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


def provider_fault(provider: str, planned: Mapping[str, str] | None) -> str | None:
    """Why the provider of the state store does not fit; None if it does, or is one that we do not know."""
    if planned is not None and planned.get(PROVIDER, UNFIT) == UNFIT:
        return (
            "transformWithState needs a state store in RocksDB, and the query's checkpoint began with another "
            f"({UNFIT}), which no setting changes later. Give the query a new checkpoint"
        )
    if planned is None and provider == UNFIT:
        return (
            "transformWithState needs a state store in RocksDB. Start the session with "
            "epochal.session(..., conf=epochal.rocksdb_settings()), or set spark.conf "
            f"{PROVIDER} = {ROCKSDB}"
        )
    return None


def python_fault(python: str) -> str | None:
    """Why the workers' interpreter cannot run such an operator; None if it can, or if it cannot be asked.

    Spark runs it on the driver's machine first. What is installed on other machines cannot be known here.
    """
    found = shutil.which(python)
    if found is None:
        return None  # Spark says so
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return _fault_here()
    try:
        done = subprocess.run([found, "-c", PROBE], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        log.debug("workers' interpreter not asked for protobuf", extra={"python": found, "error": repr(fault)})
        return None
    if done.returncode == 0:
        return None
    return (
        f"transformWithState needs the package protobuf, which the workers' interpreter {found} does not have. Set "
        f"PYSPARK_PYTHON to the driver's interpreter before the session starts ({sys.executable}), or install it "
        f"there: {INSTALL}"
    )


def _fault_here() -> str | None:
    try:
        from google.protobuf.runtime_version import VersionError
    except ImportError:
        return f"transformWithState needs the package protobuf, which is not installed: {INSTALL}"
    try:
        importlib.import_module(MESSAGES)
    except VersionError as fault:
        return f"transformWithState needs another version of the package protobuf: {fault} {INSTALL}"
    return None
