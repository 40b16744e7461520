"""File systems on which a name can have two winners are refused before anything is written. Without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from epochal import RollingFileSink
from epochal.sinks.storage import filesystems
from epochal.sinks.storage.filesystems import ACLS, SETTING, behind, check, check_azure
from epochal.sinks.storage.hadoop import resolve
from epochal.txn.errors import Refused


class Session:
    """A session whose Hadoop has some settings and one file system, of which every call is noted."""

    def __init__(self, *, capabilities: tuple[str, ...] = (), default: str = "hdfs://host", **settings: str) -> None:
        self.calls: list[str] = []
        self._capabilities, self._default = capabilities, default
        settings = {name.replace("_", "."): value for name, value in settings.items()}
        conf = SimpleNamespace(get=settings.get)
        self._jsc = SimpleNamespace(hadoopConfiguration=lambda: conf)
        fs = SimpleNamespace(Path=self._path)
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs))))
        self.sparkContext = SimpleNamespace(_gateway=None)
        self.mounts: dict[str, list[str]] = {}

    def _path(self, text: str) -> Any:
        return SimpleNamespace(getFileSystem=lambda conf: self, toString=lambda: text, text=text)

    def makeQualified(self, path: Any) -> Any:  # noqa: N802  # Java's name
        return self._path(f"{self._default}{path.text}" if path.text.startswith("/") else path.text)

    def hasPathCapability(self, path: Any, capability: str) -> bool:  # noqa: N802
        return capability in self._capabilities

    def getMountPoints(self) -> list[Any]:  # noqa: N802
        def mount(folder: str, places: list[str]) -> Any:
            uri = SimpleNamespace(getPath=lambda: folder)
            on = SimpleNamespace(toUri=lambda: uri)
            return SimpleNamespace(getMountedOnPath=lambda: on, getTargetFileSystemPaths=lambda: places)

        return [mount(folder, places) for folder, places in self.mounts.items()]

    def resolve(self, path: str) -> str:
        return resolve(path, self)[1]  # type: ignore[arg-type]  # all of a session that is needed here


@pytest.mark.parametrize("scheme", sorted(filesystems.BROKEN))
def test_a_file_system_that_is_known_not_to_do_is_refused_with_the_reason(scheme: str) -> None:
    path = f"{scheme}://place/orders"

    with pytest.raises(Refused, match=f"{path}: no file of {scheme} can be made exactly once: ") as no:
        resolve(path)
    assert filesystems.BROKEN[scheme] in str(no.value)
    assert "epochal has written nothing. Use HDFS or a local disk" in str(no.value)


def test_no_word_of_the_user_makes_an_object_store_safe() -> None:
    with pytest.raises(Refused, match="object store"):
        check("s3a://bucket/orders", answered_for="s3a")


@pytest.mark.parametrize("path", ["hdfs://host:8020/a", "HDFS://host/a", "file:/a", "/a", "a"])
def test_file_systems_with_one_winner_are_allowed(path: str) -> None:
    check(path)


def test_an_unknown_file_system_is_refused_unless_the_user_answers_for_it() -> None:
    with pytest.raises(Refused, match=rf"spark\.hadoop\.{SETTING}=maprfs"):
        Session().resolve("maprfs:///orders")

    assert Session(epochal_atomic_filesystems="other, MapRFS").resolve("maprfs:///orders") == "maprfs:///orders"


def test_ozone_is_allowed_to_those_who_know_their_bucket() -> None:
    with pytest.raises(Refused, match="FILE_SYSTEM_OPTIMIZED"):
        check("ofs://om/volume/bucket/orders")
    check("ofs://om/volume/bucket/orders", answered_for="ofs,o3fs")


def test_what_the_default_file_system_makes_of_a_plain_path_is_judged() -> None:
    assert Session().resolve("/orders") == "hdfs://host/orders"
    with pytest.raises(Refused, match="s3a://bucket/orders"):
        Session(default="s3a://bucket").resolve("/orders")


def test_azure_is_allowed_with_a_hierarchical_namespace_only() -> None:
    path = "abfss://data@shop.dfs.core.windows.net/orders"
    assert Session(capabilities=(ACLS,)).resolve(path) == path
    with pytest.raises(Refused, match="no hierarchical namespace"):
        Session().resolve(path)
    check_azure("hdfs://host/orders", lambda _: False)


def test_a_view_is_judged_by_what_is_mounted_where_the_path_is() -> None:
    session = Session()
    session.mounts = {"/data": ["hdfs://host/data"], "/data-old": ["s3a://bucket/old"], "/lake": ["abfs://d@s/lake"]}

    assert session.resolve("viewfs://shop/data/orders") == "viewfs://shop/data/orders"
    for path, reason in (("data-old", "object store"), ("lake/a", "no hierarchical namespace"), ("x", "no mount")):
        with pytest.raises(Refused, match=reason):
            session.resolve(f"viewfs://shop/{path}")


def test_a_view_of_everything_covers_everything() -> None:
    assert behind("viewfs:/orders#1", [("/", ["hdfs://host/"])]) == ["hdfs://host/"]


def test_a_sink_on_another_object_store_is_refused_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.sinks.storage.hadoop.running_session", lambda: None)

    with pytest.raises(Refused, match="oss://bucket/orders: no file of oss"):
        RollingFileSink("oss://bucket/orders").open("lineage")
