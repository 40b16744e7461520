"""Hadoop's exceptions as the Python errors of the same meaning, each in one line that says what to do.

Their messages include the server's stack trace, and Spark's exceptions wrap them several times: a page of Java with the
one sentence that matters somewhere inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError

DENIED = ("AccessControlException", "AuthorizationException")
FULL = ("NSQuotaExceededException", "DSQuotaExceededException", "QuotaByStorageTypeExceededException")
SAFE_MODE = ("SafeModeException",)  # its own message says what to do
_WITH_ADVICE = (*DENIED, *FULL, *SAFE_MODE)
_DEPTH = 16  # causes of causes; more than Spark nests


def python_error(path: str, kind: str, message: str) -> OSError:
    """Hadoop's error about a path as a Python error. Those without a class of their own are OSError: try again.

    >>> python_error("hdfs://host/a", "AccessControlException", "Permission denied: user=eve")
    PermissionError('hdfs://host/a: Permission denied: user=eve. Give that user the right, or run as another')
    """
    name = _simple(kind)
    brief = in_one_line(message)
    if name == "FileNotFoundException":
        return FileNotFoundError(path)
    if name == "FileAlreadyExistsException":
        return FileExistsError(path)
    if name in DENIED:
        return PermissionError(f"{path}: {brief}. Give that user the right, or run as another")
    if name in FULL:
        return OSError(f"{path}: {brief}. Raise the quota (hdfs dfsadmin), or make room below it")
    if name in SAFE_MODE:
        return OSError(f"{path}: {brief}")
    return OSError(f"{path}: {kind}: {brief}" if kind else f"{path}: {brief}")


def from_java(path: str, fault: Py4JError) -> OSError:
    """The same for an exception of a call into the JVM."""
    found = list(chain(fault))
    return python_error(path, *found[0]) if found else OSError(f"{path}: {in_one_line(str(fault))}")


def in_short(fault: Exception) -> str:
    """One line about a failure; the sentence that matters, if Spark has wrapped one of Hadoop's."""
    if not isinstance(fault, Py4JError):
        return _named(type(fault).__name__, str(fault))
    found = list(chain(fault))
    for kind, message in found:
        if _simple(kind) in _WITH_ADVICE:
            # The path is in the message: Spark's writer has chosen it.
            return str(python_error("Hadoop", kind, message))
    return _named(found[0][0], in_one_line(found[0][1])) if found else in_one_line(str(fault))


def _named(kind: str, message: str) -> str:
    return f"{kind}: {message}" if message else kind


def chain(fault: Py4JError) -> Iterator[tuple[str, str]]:
    """The class and the message of a Java exception and of its causes."""
    java: Any = getattr(fault, "java_exception", None)
    for _ in range(_DEPTH):
        if java is None:
            return
        kind = str(java.getClass().getName())
        # The server's exception, if the client does not know its class or left it wrapped.
        kind = str(java.getClassName()) if _simple(kind) == "RemoteException" else kind
        yield kind, str(java.getMessage() or "")
        java = java.getCause()


def _simple(kind: str) -> str:
    return kind.rpartition(".")[2]


def in_one_line(message: str) -> str:
    """A message without the server's stack, without the link to a wiki, in one line."""
    text = message.partition("\n\tat ")[0].partition("; For more details see:")[0]
    return " ".join(text.split()).removesuffix(".")
