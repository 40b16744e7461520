"""Calls a function in a Python process of a Spark Connect server, on the server's machine and with its files.

Spark Connect has no such call. It does start a Python process beside the driver to ask a data source of the user's for
its schema: this source does what it is asked meanwhile, and the schema carries the answer. No job runs and nothing is
read. Spark may use the process again, for a later call of the same session.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StringType, StructField, StructType

from epochal._version import __version__
from epochal.spark_plugins.remote import on_server
from epochal.txn import errors
from epochal.txn.errors import EpochalError, Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER = "answer"
NO_EPOCHAL = "No module named 'epochal"  # in what Spark says of a Python that cannot load what it is sent


def call(session: SparkSession, function: str, **arguments: Any) -> Any:
    """Call a function of `on_server` by its name; what it returns, which is JSON.

    Raises what it raised: an error of ours, or OSError. PySparkException if the process died, or could not be started.
    """
    from pyspark.errors import PySparkException

    request = {"function": function, "arguments": arguments, "version": __version__, "id": uuid.uuid4().hex}
    try:
        _register(session)
        schema = session.read.format(ServerCall.name()).option("request", json.dumps(request)).load().schema
    except PySparkException as fault:
        if NO_EPOCHAL in str(fault):
            raise no_epochal() from fault
        raise
    answer = json.loads(schema[0].metadata[ANSWER])
    if "error" in answer:
        raise error_of(answer["error"], answer["text"]) or OSError(f"on the server: {answer['text']}")
    return answer["returned"]


def error_of(kind: str, text: str) -> EpochalError | None:
    """An error of ours from its class and its text; None if it is none of ours.

    >>> error_of("BadRows", "column x is null")
    BadRows('column x is null')
    """
    found = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, EpochalError)):
        return None
    error = EpochalError.__new__(found)
    EpochalError.__init__(error, text)  # some have other arguments; what they say is the same
    return error


def no_epochal() -> Refused:
    """The error for a server whose Python cannot load what it is sent."""
    return Refused(
        "the Spark Connect server's Python has no epochal. Nothing was written. Install the same version there as "
        "here, or name the interpreter that has it: PYSPARK_PYTHON in the server's environment"
    )


class ServerCall(DataSource):
    """A source without rows. Spark sends its class to the server by name, so the server's own code runs."""

    @classmethod
    def name(cls) -> str:
        return "epochal_call"

    def schema(self) -> StructType:
        """Carry out the request; the answer is in the metadata of the only column."""
        answer = answer_to(json.loads(self.options["request"]))
        return StructType([StructField(ANSWER, StringType(), True, {ANSWER: json.dumps(answer)})])


def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out a request, in the process of the server."""
    try:
        on_server.check_version(request["version"])
        return {"returned": on_server.FUNCTIONS[request["function"]](**request["arguments"])}
    except (EpochalError, OSError) as fault:
        return {"error": type(fault).__name__, "text": str(fault)}


@cache
def _register(session: SparkSession) -> None:
    session.dataSource.register(ServerCall)
