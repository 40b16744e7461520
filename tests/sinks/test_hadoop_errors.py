"""A page of Java from Hadoop becomes one line. Without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from epochal.sinks.storage.hadoop_errors import from_java, in_short, python_error

PATH = "hdfs://host/orders"
STACK = "\n\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.check(FSNamesystem.java:1)\n\tat more"


class Thrown:
    """A Java exception."""

    def __init__(self, kind: str, message: str | None, cause: Thrown | None = None, *, remote: str = "") -> None:
        self._kind, self._message, self._cause, self._remote = kind, message, cause, remote

    def getClass(self) -> Any:  # noqa: N802  # Java's names
        return self

    def getName(self) -> str:  # noqa: N802
        return self._kind

    def getClassName(self) -> str:  # noqa: N802
        return self._remote

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self._cause


def thrown(*links: Thrown) -> Py4JError:
    fault = Py4JError("An error occurred while calling o1.save")
    fault.java_exception = links[0]
    return fault


@pytest.mark.parametrize(
    ("kind", "python"),
    [
        ("java.io.FileNotFoundException", FileNotFoundError),
        ("org.apache.hadoop.fs.FileAlreadyExistsException", FileExistsError),
        ("org.apache.hadoop.security.AccessControlException", PermissionError),
        ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", OSError),
        ("java.net.ConnectException", OSError),
    ],
)
def test_the_python_error_has_the_same_meaning(kind: str, python: type[OSError]) -> None:
    assert type(from_java(PATH, thrown(Thrown(kind, "why")))) is python


def test_the_servers_stack_is_left_out_and_the_rest_is_one_line() -> None:
    told = 'Cannot delete /orders. Name node is in safe mode.\nUse "hdfs dfsadmin -safemode leave".'

    assert str(python_error(PATH, "SafeModeException", told + STACK)) == (
        f'{PATH}: Cannot delete /orders. Name node is in safe mode. Use "hdfs dfsadmin -safemode leave"'
    )


def test_a_full_quota_is_told_with_what_to_do() -> None:
    fault = python_error(PATH, "DSQuotaExceededException", f"The DiskSpace quota of /orders is exceeded{STACK}")

    assert (
        str(fault)
        == f"{PATH}: The DiskSpace quota of /orders is exceeded. Raise the quota (hdfs dfsadmin), or make room below it"
    )


def test_an_exception_that_the_client_left_wrapped_is_known_by_the_servers_name() -> None:
    remote = Thrown(
        "org.apache.hadoop.ipc.RemoteException", "no", remote="org.apache.hadoop.security.AccessControlException"
    )

    assert isinstance(from_java(PATH, thrown(remote)), PermissionError)


def test_an_exception_without_a_message_and_a_jvm_that_is_gone_are_told_too() -> None:
    assert str(from_java(PATH, thrown(Thrown("java.io.EOFException", None)))) == f"{PATH}: java.io.EOFException: "
    assert str(from_java(PATH, Py4JError("the JVM is gone"))) == f"{PATH}: the JVM is gone"


def test_what_matters_is_found_below_what_spark_has_wrapped_around_it() -> None:
    denied = Thrown("org.apache.hadoop.security.AccessControlException", f"Permission denied: user=eve{STACK}")
    task = Thrown("org.apache.spark.SparkException", "Task failed while writing rows", denied)

    assert "Permission denied: user=eve. Give" in in_short(
        thrown(Thrown("org.apache.spark.SparkException", "Job aborted", task))
    )
    assert in_short(thrown(Thrown("org.apache.spark.SparkException", "Job aborted" + STACK))) == (
        "org.apache.spark.SparkException: Job aborted"
    )
    assert in_short(TimeoutError("no answer")) == "TimeoutError: no answer"
