"""Sorts what Spark and the stores raise while a stream is checked: the user's fault, or a store that is away."""

from __future__ import annotations

import re
from types import TracebackType

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


class noting:  # noqa: N801  # used as a function is
    """Note what the block raises; `where` is the setting that it is about."""

    def __init__(self, report: StreamReport, where: str) -> None:
        self._report, self._prefix = report, f"{where}: " if where else ""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool:
        match fault:
            case NotSettled():
                self._report.unchecked(f"{self._prefix}{fault}")
            case EpochalError():
                self._report.fault(f"{self._prefix}{fault}")
            case PySparkException():
                self._report.fault(f"{self._prefix}{brief(fault)}")
            case OSError():
                note = self._report.fault if isinstance(fault, WRONG_PLACE) else self._report.unchecked
                note(f"{self._prefix}{fault}")
            case Py4JJavaError():
                is_away = any(kind.endswith(AWAY) for kind, _ in chain(fault))
                (self._report.unchecked if is_away else self._report.fault)(f"{self._prefix}{in_short(fault)}")
            case _:
                return False
        return True


def brief(fault: Exception) -> str:
    """The first sentence of Spark's message: its plan, or the query once more, comes after it."""
    return re.sub(r"[.:]? *SQLSTATE: \w+", "", in_one_line(str(fault).strip().partition("\n")[0])).rstrip(". ;")
