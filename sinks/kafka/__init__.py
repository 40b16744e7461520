"""Kafka topics."""

from epochal.sinks.kafka import failpoints as _failpoints  # noqa: F401  # which registers them

try:
    from epochal.sinks.kafka.sink import KafkaSink
except ModuleNotFoundError as missing:
    if missing.name != "confluent_kafka":
        raise
    raise ModuleNotFoundError(
        "Kafka's package is not installed (confluent_kafka is missing): pip install 'epochal[kafka]'",
        name=missing.name,
    ) from None

__all__ = ["KafkaSink"]
