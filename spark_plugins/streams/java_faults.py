"""Sorts what Spark and the stores raise while a stream is checked: the user's fault, or a store that is away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from epochal.sinks.storage.hadoop_errors import chain, in_one_line, in_short
from epochal.spark_plugins.streams.report import StreamReport
from epochal.txn.access import WRONG_PLACE
from epochal.txn.errors import EpochalError, NotSettled

# Java's exceptions of a network or a server that does not answer; another user, or another setting, would not help.
AWAY = (
    "ConnectException",
    "ConnectTimeoutException",
    "SocketTimeoutException",
    "SocketException",
    "UnknownHostException",
    "NoRouteToHostException",
    "StandbyException",
    "SafeModeException",
    "RetriableException",
    "EOFException",
)


@contextmanager
def noting(report: StreamReport, where: str) -> Iterator[None]:
    """Note what the block raises; `where` is the setting that it is about."""
    prefix = f"{where}: " if where else ""
    try:
        yield
    except NotSettled as fault:
        report.unchecked(f"{prefix}{fault}")
    except EpochalError as fault:
        report.fault(f"{prefix}{fault}")
    except PySparkException as fault:
        report.fault(f"{prefix}{brief(fault)}")
    except WRONG_PLACE as fault:
        report.fault(f"{prefix}{fault}")
    except OSError as fault:
        report.unchecked(f"{prefix}{fault}")
    except Py4JJavaError as fault:
        is_away = any(kind.endswith(AWAY) for kind, _ in chain(fault))
        (report.unchecked if is_away else report.fault)(f"{prefix}{in_short(fault)}")


def brief(fault: Exception) -> str:
    """The first sentence of Spark's message: its plan, or the query once more, comes after it."""
    return re.sub(r"[.:]? *SQLSTATE: \w+", "", in_one_line(str(fault).strip().partition("\n")[0])).rstrip(". ;")
