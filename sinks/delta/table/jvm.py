"""A table through Delta's own code in Spark's JVM: every table that it can write, on every file system.

Rows are read from the staged files and written once more, by Delta, which enforces whatever the
table asks for. A transaction id makes a repeat a no-op. A session of our own keeps the settings
that some of this needs away from other queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from epochal.sinks.delta.table.gate import TableState
from epochal.sinks.spark.values import quoted
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP_ID = "spark.databricks.delta.write.txnAppId"
APP_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
CATALOG = "spark.sql.catalog.spark_catalog"
CONCURRENT = (
    "ConcurrentAppend",
    "ConcurrentDelete",
    "ConcurrentTransaction",
    "ConcurrentWrite",
    "DELTA_CONCURRENT_",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "MetadataChanged",
    "ProtocolChanged",
)


class SparkTable:
    """One table, in a session."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark.newSession()
        # Delta would store a merge's rows once more, in case they change meanwhile; staged files do not.
        self._spark.conf.set("spark.databricks.delta.merge.materializeSource", "none")
        self._path = path
        self._jvm: Any = spark._jvm
        self._snapshot: Any = None
        if lack := lacks(spark):
            raise Refused(
                f"{path}: this table, or mode, needs Delta's own code, and the Spark session has no {lack}. Use "
                "epochal.session(...), or build your session with the settings of epochal.delta_settings()"
            )

    def runs_in(self, session: SparkSession) -> bool:
        """Whether it belongs to this session's Spark, and that is still running."""
        return self._spark.sparkContext is session.sparkContext and session.sparkContext._jsc is not None

    def state(self) -> TableState | None:
        """The table as it is now; None if there is none."""
        if not self._jvm.io.delta.tables.DeltaTable.isDeltaTable(self._spark._jsparkSession, self._path):
            return None
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)
        empty = self._jvm.scala.Option.empty()
        snapshot = self._snapshot = log.update(False, empty, empty)
        metadata = json.loads(snapshot.metadata().json())["metaData"]
        protocol = json.loads(snapshot.protocol().json())["protocol"]
        return TableState(
            version=int(snapshot.version()),
            reader=protocol["minReaderVersion"],
            writer=protocol["minWriterVersion"],
            reader_features=frozenset(protocol.get("readerFeatures") or ()),
            writer_features=frozenset(protocol.get("writerFeatures") or ()),
            schema=json.loads(metadata["schemaString"]),
            partition_by=tuple(metadata["partitionColumns"]),
            properties=dict(metadata.get("configuration") or {}),
        )

    def last(self, lineage: str) -> int | None:
        """The last epoch of a lineage, as of the state that was read."""
        found = self._snapshot.transactions().get(lineage)
        return int(found.get()) if found.isDefined() else None

    def commits(self, limit: int | None = None) -> Iterator[tuple[int, str | None]]:
        """(version, userMetadata), the newest first."""
        table = self._table()
        history = table.history(limit) if limit else table.history()
        for row in history.select("version", "userMetadata").collect():
            yield int(row["version"]), row["userMetadata"]

    def live(self) -> list[tuple[str, int]]:
        """(path, bytes) of every file that readers see, as of the state that was read."""
        from pyspark.sql import DataFrame as SparkDataFrame

        found = SparkDataFrame(self._snapshot.allFiles().toDF(), self._spark).select("path", "size").collect()
        return [(row["path"], int(row["size"])) for row in found]

    def at(self, version: int) -> DataFrame:
        """The table as a version left it."""
        return self._spark.read.format("delta").option("versionAsOf", version).load(self._path)

    def create(self, schema: Mapping[str, Any], partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        """Make the table, empty. No error if another driver was first."""
        from pyspark.sql.types import StructType

        # Not CREATE TABLE: to Delta a folder that is there is a table that is there, and ours holds _epochal/ by now.
        empty = self._spark.createDataFrame([], StructType.fromJson(dict(schema)))
        own = {key: value for key, value in properties.items() if not key.startswith("delta.")}
        writer = empty.write.format("delta").mode("ignore").partitionBy(*partition_by)
        for key in properties.keys() - own.keys():
            writer = writer.option(key, properties[key])
        writer.save(self._path)
        if own:
            given = ", ".join(f"{_literal(key)} = {_literal(value)}" for key, value in own.items())
            self._spark.sql(f"ALTER TABLE delta.{quoted(self._path)} SET TBLPROPERTIES ({given})")

    def understand(self, settings: Mapping[str, str]) -> None:
        """Take over the settings under which an epoch was staged; the session is ours alone."""
        for key, value in settings.items():
            self._spark.conf.set(key, value)

    def rows(self, files: Sequence[str], schema: Mapping[str, Any]) -> DataFrame:
        """What was staged."""
        from pyspark.sql.types import StructType

        kind = StructType.fromJson(dict(schema))
        if not files:
            return self._spark.createDataFrame([], kind)
        names = [quoted(field.name) for field in kind.fields]
        # One by one, or Spark would take the names of staging folders for partitions of the data.
        return self._spark.read.schema(kind).parquet(*files).select(*names)

    def write(
        self, rows: DataFrame, mode: str, lineage: str, epoch: int, note: str, *, add_columns: bool = False
    ) -> None:
        """Append the rows, or put them in place of all there are; nothing if the epoch is in."""
        writer = rows.write.format("delta").mode(mode)
        writer = writer.option("txnAppId", lineage).option("txnVersion", str(epoch)).option("userMetadata", note)
        if mode == "overwrite":
            writer = writer.option("partitionOverwriteMode", "static")
        if add_columns:
            writer = writer.option("mergeSchema", "true")
        writer.save(self._path)

    def merge(
        self, rows: DataFrame, keys: Sequence[str], lineage: str, epoch: int, note: str, *, deletes: bool
    ) -> None:
        """Update, insert and delete by key; nothing if the epoch is in."""
        same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
        merge = self._table().alias("t").merge(rows.alias("s"), same)
        if deletes:
            gone = f"s.{quoted(DELETED)}"
            columns = {quoted(c): f"s.{quoted(c)}" for c in rows.columns if c != DELETED}
            merge = merge.whenMatchedDelete(gone).whenMatchedUpdate(set=columns)
            merge = merge.whenNotMatchedInsert(f"NOT {gone}", values=columns)
        else:
            merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
        settings = {APP_ID: lineage, APP_VERSION: str(epoch), USER_METADATA: note}
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        try:
            merge.execute()
        finally:
            for key in settings:
                self._spark.conf.unset(key)

    def _table(self) -> Any:
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self._spark, self._path)


DELETED = "_epochal_deleted"  # a staged column: the row says that its key is to go


def is_concurrent(fault: BaseException) -> bool:
    """Whether another writer came first, and a try on the table's new state may succeed."""
    return any(name in str(fault) or name in type(fault).__name__ for name in CONCURRENT)


def is_refusal(fault: BaseException) -> bool:
    """Whether Delta has looked at the rows and will not have them; to try again would change nothing."""
    from pyspark.errors import AnalysisException

    return isinstance(fault, AnalysisException) or "[DELTA_" in str(fault)


def brief(fault: BaseException) -> str:
    """The one line of a Java error that says what is wrong. Values of rows are left out."""
    text = str(fault)
    start = text.find("[DELTA_")
    return text[max(start, 0) :].partition("\n")[0].partition(" with values")[0].rstrip(". :")


def _literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def lacks(spark: SparkSession) -> str | None:
    """What a session needs for Delta's own code and does not have."""
    if not _has_delta(spark._jvm):
        return "jars of Delta (spark.jars)"
    if spark.conf.get(CATALOG, "builtin") == "builtin":
        return f"catalog of Delta ({CATALOG})"
    return None


def _has_delta(jvm: Any) -> bool:
    from py4j.java_gateway import JavaClass

    return isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass)
