"""Spark Connect: sessions without a JVM at hand, and how paths are resolved there.

A path without a scheme means what the server makes of it: its ``fs.defaultFS``, its working directory. The server is
asked, once, by reading a file that cannot exist: the error has the path in full. Nothing is read or written.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from epochal.sinks.storage import filesystems, webhdfs
from epochal.txn.errors import Refused
from epochal.txn.files import is_local, join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "pyspark.sql.connect.session"
LITERAL = {"__globPaths__": "false"}  # the path is no pattern


def is_connect(session: Any) -> bool:
    """Whether a session talks to a Spark Connect server, and so has no JVM."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def running_session() -> SparkSession | None:
    """The Connect session of this process, from whatever thread is asking."""
    module = sys.modules.get(MODULE)  # a session cannot run if nobody has imported it
    if module is None:
        return None
    session: SparkSession | None = module.SparkSession.getActiveSession() or module.SparkSession._get_default_session()
    return session


def full_path(session: SparkSession, path: str) -> str:
    """A path with its scheme, as the server resolves it."""
    return in_full(path, lambda start: _folder(session, start))


def in_full(path: str, folder: Callable[[str], str]) -> str:
    """A path with its scheme; `folder` tells where those that begin with ``/`` begin, and where all others do."""
    filesystems.check_known(path)
    if filesystems.scheme_of(path):
        return path
    return join(folder("/" if path.startswith("/") else ""), path.lstrip("/")).rstrip("/")


def folders(session: SparkSession) -> dict[str, str]:
    """Where paths without a scheme begin in the server, for `resolving`."""
    return {start: _folder(session, start) for start in ("/", "")}


_known: dict[str, str] = {}


@contextmanager
def resolving(known: Mapping[str, str]) -> Iterator[None]:
    """Resolve paths as a server does for the duration of a block: in a process of it that has no session to ask."""
    _known.update(known)
    try:
        yield
    finally:
        _known.clear()


def known_full_path(path: str) -> str | None:
    """A path with its scheme, as the server resolves it; None outside of `resolving`."""
    return in_full(path, _known.__getitem__) if _known else None


@cache
def _folder(session: SparkSession, path: str) -> str:
    """What the server takes for the root or, for an empty path, for the folder that other paths begin in."""
    from pyspark.errors import PySparkException

    name = f"epochal-{uuid.uuid4().hex}"
    try:
        _ = session.read.options(**LITERAL).schema("value string").text(f"{path}{name}").schema
    except PySparkException as fault:
        found = str((fault.getMessageParameters() or {}).get("path", ""))
        if fault.getCondition() == "PATH_NOT_FOUND" and found.endswith(f"/{name}"):
            return found.removesuffix(name)
        reason = str(fault.getMessage()).partition("\n")[0]
        raise Refused(f"the Spark Connect server cannot resolve paths: {reason}. Nothing was written") from None
    raise Refused("the Spark Connect server does not say where paths without a scheme are. Give them as file:/...")


def check_scheme(path: str) -> None:
    """Refuse a full path that no process without a JVM can reach."""
    filesystems.check(path)
    if not is_local(path) and not path.startswith("hdfs:"):
        raise Refused(
            f"{path}: on Spark Connect only local disks and HDFS (by WebHDFS) can be reached. Nothing was written. Use "
            "one of them, or a classic SparkSession"
        )


def check_reachable(path: str) -> None:
    """Refuse a full path that this process cannot reach without a JVM."""
    check_scheme(path)
    if not is_local(path) and not webhdfs.reaches(path):
        raise Refused(
            f"{path}: on Spark Connect HDFS is reached by WebHDFS. Nothing was written. Set {webhdfs.ADDRESS} to its "
            "HTTP address, such as http://namenode:9870, in the environment of the server"
        )
