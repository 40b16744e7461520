"""The contract of participants, kept by a Kafka topic."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal import KafkaSink
from epochal.testing.contract import ConnectContract, ParticipantContract
from epochal.testing.servers import KafkaCluster
from epochal.txn.model import Json
from integration_tests.behind_a_wrapper import SampledBehindAWrapper
from integration_tests.kafka_sink.consuming import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class TestKafka(SampledBehindAWrapper, ParticipantContract[Any], ConnectContract[Any]):
    rounds = 2  # Spark takes its time to stage
    topics = itertools.count(1)

    @pytest.fixture(autouse=True)
    def _empty_store(self, spark: SparkSession, running_broker: KafkaCluster, tmp_path: Path) -> None:
        self.spark, self.staging = spark, tmp_path / "staged"
        self.target = Target(running_broker.bootstrap, f"numbers{next(self.topics)}-{uuid.uuid4().hex[:8]}")
        running_broker.create_topic(self.target.topic, partitions=2)

    def participant(self) -> KafkaSink:
        return self.target.sink(key="CAST(number AS STRING)", staging=str(self.staging))

    def rebuilt(self, description: dict[str, Json]) -> KafkaSink:
        return KafkaSink.from_description(description)

    def rows(self, numbers: Sequence[int]) -> DataFrame:
        return self.spark.createDataFrame([(n, n % 2) for n in numbers], "number long, odd long").coalesce(1)

    def visible(self) -> list[int]:
        return [json.loads(message.value() or b"")["number"] for message in self.target.messages()]
