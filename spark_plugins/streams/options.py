"""What a stream is made of besides its sinks and its writer: declared once, for settings, checks and docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from epochal.sinks.config.declaring import CheckedOptions, Option, declared
from epochal.sinks.config.options import Faults, nearest
from epochal.sinks.config.quantities import parse_duration

AVAILABLE_NOW, PROCESSING_TIME = "available_now", "processing_time"
_INSTEAD = f"use {AVAILABLE_NOW!r}, or '{PROCESSING_TIME}=10 s'"
REFUSED_TRIGGERS = {
    "once": f"Spark has replaced it: use {AVAILABLE_NOW!r}, which reads the same data",
    "continuous": f"continuous processing has no micro-batches: {_INSTEAD}",
    "real_time": f"real-time mode shows rows before the checkpoint: {_INSTEAD}",
}


def parse_trigger(text: object) -> dict[str, Any]:
    """The arguments of Spark's `trigger`; ValueError if the text stands for no trigger.

    >>> parse_trigger("available_now"), parse_trigger("processing_time = 10 s")
    ({'availableNow': True}, {'processingTime': '10000 milliseconds'})
    """
    word, equals, time = text.partition("=") if isinstance(text, str) else ("", "", "")
    name = word.strip()
    if name == AVAILABLE_NOW and not equals:
        return {"availableNow": True}
    if name == PROCESSING_TIME and equals:
        milliseconds = 0 if time.strip() in ("0", "0 s") else round(parse_duration(time.strip()) * 1000)
        return {"processingTime": f"{milliseconds} milliseconds"}
    plain = name.lower().replace("-", "_").replace("realtime", "real_time")
    if plain in REFUSED_TRIGGERS:
        raise ValueError(REFUSED_TRIGGERS[plain])
    raise ValueError(f"{AVAILABLE_NOW!r} or '{PROCESSING_TIME}=10 s'{nearest(name, (AVAILABLE_NOW, PROCESSING_TIME))}")


def _check_trigger(faults: Faults, option: str, value: Any) -> Any:
    faults.parsed(option, value, parse_trigger)
    return value


@declared
@dataclass(frozen=True, kw_only=True)
class Source(CheckedOptions):
    """What a stream reads.

    >>> Source(format="json", path="incoming", schema="order_id BIGINT, day DATE").path
    'incoming'
    """

    format: Annotated[str, Option("any format that Spark's `readStream` has: `json`, `kafka`, `delta`, `rate`, …")]
    path: Annotated[
        str | None, Option("the folder or URI, for a format that reads files", expects="a folder or URI")
    ] = None
    schema: Annotated[
        str | None,
        Option("the columns, such as `order_id BIGINT, day DATE`; most formats of files need it", expects="columns"),
    ] = None
    options: Annotated[
        Mapping[str, str],
        Option("options of Spark's reader, such as `options.maxFilesPerTrigger`", shown_default="none"),
    ] = field(default_factory=dict, repr=False)  # it may hold secrets


@declared
@dataclass(frozen=True, kw_only=True)
class Watermark(CheckedOptions):
    """How late rows may be, for aggregations and joins in the SQL."""

    column: Annotated[str, Option("a timestamp column of the source", expects="the name of a column")]
    delay: Annotated[str, Option("how late a row may be, such as `10 minutes`", expects="a time, such as '10 minutes'")]


@declared
@dataclass(frozen=True, kw_only=True)
class StreamOptions(CheckedOptions):
    """How the query runs."""

    checkpoint: Annotated[
        str, Option("the query's checkpoint: a folder or URI, of this stream alone", expects="a folder or URI")
    ]
    sql: Annotated[
        str | None,
        Option(
            "one query over the view `source`, such as `SELECT * FROM source WHERE amount > 0`",
            expects="a query over the view source",
            shown_default="all rows of the source",
        ),
    ] = None
    trigger: Annotated[
        str,
        Option(
            "`available_now` reads what is there and ends; `processing_time=10 s` begins an epoch every 10 seconds",
            check=_check_trigger,
            shown_default="`processing_time=0 s`: as soon as there are rows",
        ),
    ] = f"{PROCESSING_TIME}=0 s"
    output_mode: Annotated[
        Literal["append", "update", "complete"], Option("what a micro-batch of an aggregation gives, as in Spark")
    ] = "append"
    query_name: Annotated[
        str | None, Option("the query's name in Spark's UI", expects="a name", shown_default="the stream's name")
    ] = None

    @property
    def trigger_arguments(self) -> dict[str, Any]:
        return parse_trigger(self.trigger)
