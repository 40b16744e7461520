"""When a time bucket is complete, and what its marker says. Pure: no I/O and no clock of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from math import inf
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from epochal.sinks.config import checks
from epochal.sinks.config.declaring import CheckedOptions, Option, declared
from epochal.sinks.config.quantities import parse_duration
from epochal.sinks.files.policies.buckets import AnyBucket, TimeBucket
from epochal.txn.model import Attempt

FORMAT = 1
SUCCESS = "_SUCCESS"
_MARKER = re.compile(r"_SUCCESS(?:-([1-9]\d{0,8}))?", re.ASCII)
_START = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H", "minute": "%Y-%m-%dT%H-%M"}
_INSTANT = timedelta(microseconds=1)


@declared
@dataclass(frozen=True, kw_only=True)
class Complete(CheckedOptions):
    """A bucket gets its ``_SUCCESS`` when its time is over: by the query's watermark, or by the clock of the driver.

    >>> Complete(by="clock", delay="10 min")
    Complete(by='clock', delay='10 min')

    If rows come later still than `delay`, the bucket is marked once more, as ``_SUCCESS-2``.
    """

    by: Annotated[
        Literal["watermark", "clock"],
        Option("a bucket's time is over by the query's watermark, or by the driver's clock"),
    ] = "watermark"
    delay: Annotated[
        float | str | timedelta | None,
        Option('how long to wait for late rows: seconds, or `"10 min"`', check=checks.parsed(parse_duration)),
    ] = None

    @cached_property
    def seconds(self) -> float:
        return 0.0 if self.delay is None else parse_duration(self.delay)

    def divide(self, awaited: Mapping[str, float], *, watermark: float | None, clock: float) -> Marks:
        """Divide the buckets into those that are complete and those that are not."""
        now = clock if self.by == "clock" else watermark
        over = {bucket for bucket, end in awaited.items() if now is not None and end + self.seconds <= now}
        return Marks({bucket: end for bucket, end in awaited.items() if bucket not in over}, tuple(sorted(over)))

    def due(self, first_end: float) -> float:
        """When the clock completes the bucket that ends first; infinity for never."""
        return first_end + self.seconds if self.by == "clock" else inf


@dataclass(frozen=True, slots=True)
class Marks:
    """The buckets that wait for their marker, with the time at which each ends, and those that get it now."""

    awaited: Mapping[str, float] = field(default_factory=dict)
    complete: tuple[str, ...] = ()


def ends_at(folder: str, buckets: Sequence[AnyBucket]) -> float | None:
    """When the time of a bucket's folder is over, in seconds since 1970; None if it has none.

    >>> ends_at("region=eu/day=2026-11-16/", ["region", TimeBucket("ordered_at", "day")])
    1794873600.0
    """
    ends = [
        _end(name.partition("=")[2], bucket)
        for name, bucket in zip(folder.rstrip("/").split("/"), buckets, strict=True)
        if isinstance(bucket, TimeBucket)
    ]
    return None if None in ends else min((end for end in ends if end is not None), default=None)


def next_version(names: Iterable[str]) -> int:
    """The version of a bucket's next marker, by the names of the files in its folder.

    >>> next_version(["part-0.json"]), next_version(["_SUCCESS"]), next_version(["_SUCCESS", "_SUCCESS-2"])
    (1, 2, 3)
    """
    found = (_MARKER.fullmatch(name) for name in names)
    return 1 + max((int(match[1] or 1) for match in found if match), default=0)


def marker(folder: str, version: int, attempt: Attempt) -> tuple[str, bytes]:
    """A marker's name below the target, and its content."""
    content = {
        "format": FORMAT,
        "bucket": folder.rstrip("/"),
        "version": version,
        "lineage": attempt.lineage,
        "epoch": attempt.epoch,
    }
    name = SUCCESS if version == 1 else f"{SUCCESS}-{version}"
    return f"{folder}{name}", json.dumps(content, sort_keys=True).encode() + b"\n"


def _end(text: str, bucket: TimeBucket) -> float | None:
    try:
        start = datetime.strptime(text, _START[bucket.unit])  # noqa: DTZ007  # its zone comes below
        after = _next(start, bucket.unit)
        # The last instant. Of two that clocks show alike in autumn it is the later one: the bucket holds both.
        last = (after - _INSTANT).replace(tzinfo=ZoneInfo(bucket.timezone), fold=1)
        return float(round(last.timestamp()))
    except (ValueError, OverflowError):
        return None  # null, or a year that Python's calendar does not have


def _next(start: datetime, unit: str) -> datetime:
    match unit:
        case "year":
            return start.replace(year=start.year + 1)
        case "month":
            return (start.replace(day=28) + timedelta(days=4)).replace(day=1)
        case _:
            return start + timedelta(**{f"{unit}s": 1})
