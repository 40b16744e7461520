"""Finds stolen cards in a stream of payments: three refused within ten minutes, then an accepted one.

    pip install 'epochal[delta,state]'
    python examples/fraud.py [FOLDER]

Spark's transformWithState keeps, for each card, what the pattern needs. It goes through the payments of a card in the
order of their times, however they arrive: a payment waits until the watermark has passed it. So the result does not
depend on how the payments were put into files, nor on crashes.

Each payment comes out once, with what is known of its card up to then. One writer makes two things of these rows:

    FOLDER/payments     JSON files, in buckets: alert=true/ holds the alerts
    FOLDER/totals       Delta: for each card, the row of its last payment

Kill it at any time and run it again: state, files and table go on from the same epoch.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import epochal
from epochal import DeltaSink, EpochWriter, RollingFileSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PAYMENT = "id BIGINT, card STRING, at TIMESTAMP, accepted BOOLEAN, cents BIGINT"
SCORED = "id BIGINT, card STRING, ms BIGINT, accepted BOOLEAN, cents BIGINT, alert BOOLEAN, n BIGINT, spent BIGINT"
WINDOW = 10 * 60 * 1000  # milliseconds
REFUSED = 3
DELAY = "5 minutes"  # a payment that arrives later than this after a newer one is dropped


class Card(StatefulProcessor):
    """The state of one card, and the pattern."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        payments = "payments ARRAY<STRUCT<id: BIGINT, accepted: BOOLEAN, cents: BIGINT>>"
        self.waiting = handle.getMapState("waiting", "ms BIGINT", payments)  # the watermark has not passed them
        self.refused = handle.getListState("refused", "ms BIGINT")  # within the last ten minutes
        self.totals = handle.getValueState("totals", "n BIGINT, spent BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Put payments aside until their time has come."""
        for row in rows:
            payments = self.waiting.getValue((row.ms,)) or ([],)
            self.waiting.updateValue((row.ms,), ([*payments[0], (row.id, row.accepted, row.cents)],))
            self.handle.registerTimer(row.ms)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Look at the payments of this moment, and forget refused ones that are too old. Timers go off in order."""
        now = expiredTimerInfo.getExpiryTimeInMs()
        refused = [ms for (ms,) in self.refused.get() if ms > now - WINDOW]
        n, spent = self.totals.get() or (0, 0)
        waiting = self.waiting.getValue((now,)) or ([],)
        self.waiting.removeKey((now,))
        for id_, accepted, cents in sorted(waiting[0]):
            alert = accepted and len(refused) >= REFUSED
            refused = [] if accepted else [*refused, now]
            n, spent = n + 1, spent + (cents if accepted else 0)
            yield Row(id=id_, card=key[0], ms=now, accepted=accepted, cents=cents, alert=alert, n=n, spent=spent)
        self.totals.update((n, spent))
        if refused:
            self.refused.put([(ms,) for ms in refused])
            self.handle.registerTimer(refused[0] + WINDOW)
        else:
            self.refused.clear()


def build(spark: SparkSession, source: str, checkpoint: str, target: str) -> tuple[EpochWriter, DataStreamWriter]:
    """The writer, and the stream to start it with."""
    payments = spark.readStream.schema(PAYMENT).option("maxFilesPerTrigger", 1).json(source)
    scored = (
        payments.withWatermark("at", DELAY)
        .withColumn("ms", f.unix_millis("at"))
        .groupBy("card")
        .transformWithState(Card(), SCORED, outputMode="Append", timeMode="EventTime")
        .withColumn("at", f.timestamp_millis("ms"))
        .drop("ms")
    )
    writer = EpochWriter(
        RollingFileSink(f"{target}/payments", format="json", bucket_by=["alert"]),
        DeltaSink(f"{target}/totals", mode="upsert", keys=["card"], order_by=["n"]),
    )
    return writer, scored.writeStream.option("checkpointLocation", checkpoint)


def main(folder: Path) -> None:
    """Look at all payments that have arrived, then end."""
    put_sample_payments(folder / "incoming")
    spark = epochal.session("fraud", conf=epochal.rocksdb_settings())
    writer, stream = build(spark, str(folder / "incoming"), str(folder / "checkpoint"), str(folder))
    writer.start(stream.trigger(availableNow=True)).awaitTermination()

    for row in spark.read.json(str(folder / "payments" / "alert=true")).sort("at").collect():
        print(f"{row['at']}: card {row['card']}, payment {row['id']} of {row['cents'] / 100:.2f}")
    totals = spark.read.format("delta").load(str(folder / "totals"))
    for row in totals.sort("card").collect():
        print(f"card {row['card']}: {row['n']} payments, {row['spent'] / 100:.2f} spent")


def put_sample_payments(incoming: Path, files: int = 4) -> None:
    """Write files of payments, unless they exist: of six cards, every twenty seconds, up to four minutes late."""
    if incoming.exists():
        return
    incoming.mkdir(parents=True)
    chance = random.Random(4)
    noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    arrived = sorted(range(60 * files), key=lambda n: n + chance.randrange(12))
    for file in range(files):
        payments = []
        for n in arrived[60 * file : 60 * file + 60]:
            card, at = chance.randrange(6), noon + timedelta(seconds=20 * n)
            accepted = chance.random() < (0.3 if card == 3 else 0.8)
            row = {"id": n, "card": f"c{card}", "at": at.isoformat(), "accepted": accepted, "cents": 100 + 7 * n}
            payments.append(json.dumps(row))
        (incoming / f"{file:03}.json").write_text("\n".join(payments))
        os.utime(incoming / f"{file:03}.json", (file, file))  # Spark reads the oldest first


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "fraud-example"))
