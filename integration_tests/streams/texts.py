"""Settings files of streams on a world's source, for tests."""

from __future__ import annotations

from pathlib import Path

from epochal.spark_plugins.streams.checking import Checked, check_settings, check_with_spark
from epochal.spark_plugins.streams.reading import from_file
from integration_tests.spark.world import SCHEMA, World

STREAM = """
[streams.{name}]
checkpoint = "{checkpoint}"
trigger = "{trigger}"
{more}
[streams.{name}.source]
format = "parquet"
path = "{source}"
schema = "{schema}"
options.maxFilesPerTrigger = 1
[streams.{name}.sinks.out]
type = "files"
path = "{target}"
"""


def stream(
    world: World,
    name: str,
    more: str = "",
    *,
    trigger: str = "available_now",
    checkpoint: Path | None = None,
    target: Path | None = None,
) -> str:
    """A stream from a world's source into a folder."""
    return STREAM.format(
        name=name,
        checkpoint=checkpoint or world.root / f"checkpoint-{name}",
        target=target or world.root / name,
        trigger=trigger,
        more=more,
        source=world.source,
        schema=SCHEMA,
    )


def checked(spark: object, folder: Path, text: str) -> Checked:
    """What a check finds about a file with this text."""
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    (folder / "streams.toml").write_text(text)
    return check_with_spark(spark, check_settings(from_file(str(folder / "streams.toml"))))
