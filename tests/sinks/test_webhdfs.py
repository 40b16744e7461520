"""WebHDFS's client, without a server: what it lacks is an error that names it, paths are taken as they are."""

from __future__ import annotations

import sys

import pytest

from epochal.sinks.storage.hadoop import resolve
from epochal.sinks.storage.webhdfs import ADDRESS, LOGIN, WebHdfsFiles, _plain, connect
from epochal.txn.errors import Refused


def test_paths_are_not_unescaped() -> None:
    assert _plain("hdfs://host:8020/a%20b/kind=c#1?d") == "/a%20b/kind=c#1?d"
    assert _plain("hdfs://host:8020") == "/"


def test_hdfs_without_a_session_is_reached_if_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.sinks.storage.hadoop.running_session", lambda: None)
    with pytest.raises(Refused, match="start a SparkSession first"):
        resolve("hdfs://host:8020/data")
    monkeypatch.setenv(ADDRESS, "http://host:9870")
    files, path = resolve("hdfs://host:8020/data/")

    assert isinstance(files, WebHdfsFiles)
    assert path == "hdfs://host:8020/data"


@pytest.mark.parametrize(("address", "login"), [("host:9870", "simple"), ("http://host:9870", "magic")])
def test_what_cannot_work_is_refused(monkeypatch: pytest.MonkeyPatch, address: str, login: str) -> None:
    monkeypatch.setenv(ADDRESS, address)
    monkeypatch.setenv(LOGIN, login)

    with pytest.raises(Refused, match=f"{ADDRESS} must be http://host:port, and {LOGIN} one of simple, kerberos"):
        connect()


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "http://host:9870")
    monkeypatch.setenv(LOGIN, "kerberos")
    monkeypatch.setitem(sys.modules, "hdfs.ext.kerberos", None)
    with pytest.raises(Refused, match=r"pip install 'hdfs\[kerberos\]'"):
        connect()
    monkeypatch.setitem(sys.modules, "hdfs", None)
    with pytest.raises(Refused, match=r"pip install 'epochal\[hdfs\]'"):
        connect()
