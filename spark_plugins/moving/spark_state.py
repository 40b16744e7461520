"""Spark's own state, as Spark reads and repartitions it: the part of a rescale that needs a session.

What Spark 4.2 has for it is not public yet (`spark._streamingCheckpointManager`), so it is looked for before anything
is done. State is read by Spark's ``statestore`` source. The digest of a store is the sum of a 64-bit hash of each key
with its value, so it does not depend on partitions or order.

Of the settings that say how state is written, Spark keeps most in ``offsets/N``. It does not keep the format of the
checkpoint: only the first line of ``commits/N`` tells it, and a session of another format is refused, after the epoch
of the rescale was begun. So it is set here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from epochal.sinks.storage.paths import spark_path
from epochal.spark_plugins.checkpoint import SparkCheckpoint
from epochal.spark_plugins.store_checkpoints import resolve_checkpoint
from epochal.txn.driver_facts import StateDigest
from epochal.txn.errors import Refused, SparkGone
from epochal.txn.files import join

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

MANAGER = "_streamingCheckpointManager"
NEEDED = "4.2"
INVALID = "STATE_REPARTITION"  # the conditions with which Spark refuses before it writes anything
JOIN = "symmetricHashJoin"
WITH_VARIABLES = "transformWithState"  # its names begin so, whatever the language
FOLDED = 1 << 64
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


class Engine(Protocol):
    """What a rescale needs of Spark."""

    def digests(self, checkpoint: str, epoch: int) -> tuple[StateDigest, ...]:
        """What each state store holds after an epoch."""

    def repartition(self, checkpoint: str, partitions: int) -> None:
        """Change the number of partitions, which takes an epoch. Refused if Spark cannot; nothing is written then."""


def refuse_old_spark() -> None:
    """Refuse a Spark that cannot change the partitions of its state."""
    import pyspark
    from pyspark.sql import SparkSession

    if not hasattr(SparkSession, MANAGER):
        raise Refused(
            f"Spark {pyspark.__version__} cannot change the partitions of a query's state. Nothing was changed. Run "
            f"this command with Spark {NEEDED}"
        )


@dataclass(frozen=True)
class SparkEngine:
    """A session's view of the state in checkpoints."""

    spark: SparkSession

    def digests(self, checkpoint: str, epoch: int) -> tuple[StateDigest, ...]:
        """What each state store holds after an epoch."""
        place = spark_path(checkpoint)
        with _failures(checkpoint, "read"), self._format_of(checkpoint, epoch):
            _ = self.spark.streams  # starts what state stores report to; a session that has run no query lacks it
            rows = self.spark.read.format("state-metadata").load(place).collect()
            operators = [one for _, one in sorted({row["operatorId"]: row for row in rows}.items())]
            return tuple(
                self._digest(place, epoch, operator, store, options)
                for operator in operators
                for store, options in _stores(operator)
            )

    def repartition(self, checkpoint: str, partitions: int) -> None:
        """Change the number of partitions, which takes an epoch."""
        with _failures(checkpoint, "rescale"), self._format_of(checkpoint):
            _ = self.spark.streams  # as above
            manager = getattr(self.spark, MANAGER)
            manager.repartition(spark_path(checkpoint), partitions, enforce_exactly_once_sink=True)

    @contextmanager
    def _format_of(self, checkpoint: str, epoch: int | None = None) -> Iterator[None]:
        """While this lasts, the session has the format of an epoch's commit; of the last one, if none is named."""
        files, path = resolve_checkpoint(checkpoint, self.spark)
        number = SparkCheckpoint(files, path).committed() if epoch is None else epoch
        name = join(path, "commits", str(number))
        before = self.spark.conf.get(FORMAT)
        self.spark.conf.set(FORMAT, format_of(name, files.read(name)))
        try:
            yield
        finally:
            self.spark.conf.set(FORMAT, str(before))

    def _digest(self, place: str, epoch: int, row: Row, store: str, options: Mapping[str, str]) -> StateDigest:
        from pyspark.sql import functions as F  # noqa: N812  # its usual name

        reader = self.spark.read.format("statestore").option("operatorId", row["operatorId"]).option("batchId", epoch)
        frame = reader.options(**options).load(place).drop("partition_id")
        hashed = F.xxhash64(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
        # A decimal: the sum of 64-bit numbers overflows.
        counted = frame.agg(F.count("*"), F.sum(hashed.cast("decimal(38,0)"))).collect()[0]
        digest = f"{int(counted[1] or 0) % FOLDED:016x}"
        return StateDigest(int(row["operatorId"]), str(row["operatorName"]), store, int(counted[0]), digest)


def format_of(path: str, commit: bytes) -> str:
    r"""The format of a checkpoint, from a file in ``commits/``.

    >>> format_of("commits/3", b'v2\n{"nextBatchWatermarkMs":0}')
    '2'
    """
    version = commit.partition(b"\n")[0].strip()
    if not (version.startswith(b"v") and version[1:].isdigit()):
        raise Refused(f"{path} is no file of Spark's commits/. Nothing was changed. Restore it from a copy")
    return version[1:].decode()


@contextmanager
def _failures(checkpoint: str, what: str) -> Iterator[None]:
    """Say what to do about what goes wrong in Spark."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as fault:
        text = " ".join(str(fault).partition("\nJVM stacktrace")[0].split())
        if (fault.getCondition() or "").startswith(INVALID):
            raise Refused(f"{checkpoint}: Spark refuses to rescale its state: {text} Nothing was changed") from fault
        raise Refused(
            f"{checkpoint}: Spark could not {what} its state: {text} Remove the cause and run the command again: it "
            "goes on where this one ended"
        ) from fault
    except Py4JJavaError as fault:  # one that PySpark does not translate
        text = str(fault.java_exception).partition("\n")[0]
        raise Refused(
            f"{checkpoint}: Spark could not {what} its state: {text}. Remove the cause and run the command again: it "
            "goes on where this one ended"
        ) from fault
    except Py4JError as fault:
        raise SparkGone(
            f"{checkpoint}: Spark ended while it was to {what} the state: {fault}. Run the command again: it goes on "
            "where this one ended"
        ) from fault


def _stores(operator: Row) -> Iterator[tuple[str, dict[str, str]]]:
    """The stores of an operator by a name, and how to read each."""
    name = str(operator["operatorName"])
    if name == JOIN:
        for side in ("left", "right"):
            yield side, {"joinSide": side}
    elif name.startswith(WITH_VARIABLES):
        properties = json.loads(operator["operatorProperties"] or "{}")
        yield from _variables(properties)
    else:
        yield "default", {}


def _variables(properties: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    for variable in properties.get("stateVariables") or ():
        name = str(variable["stateName"])
        if name.startswith("$"):
            continue  # Spark's own: timers are read below
        whole = variable["stateVariableType"] == "ListState"  # the order of a list is part of it
        yield name, {"stateVarName": name, **({"flattenCollectionTypes": "false"} if whole else {})}
    if properties.get("timeMode") not in (None, "NoTime"):
        yield "timers", {"readRegisteredTimers": "true"}
