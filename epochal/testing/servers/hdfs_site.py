"""The settings of a small HDFS, as its processes read them from XML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Self
from xml.sax.saxutils import escape

from epochal.testing.servers.ports import free_port

LOG4J = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
# The published jars have no web pages, and a server does not start without them. Empty ones suffice for WebHDFS, /jmx.
WEB_XML = '<?xml version="1.0" encoding="UTF-8"?>\n<web-app version="2.4" xmlns="http://java.sun.com/xml/ns/j2ee"/>\n'
APPS = ("hdfs", "datanode")
# For clients: closing a file checks for its complete block after 20 ms, not after 400.
CLIENT: Mapping[str, str] = {"dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20"}
SMALL: Mapping[str, object] = {
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.namenode.safemode.extension": 0,
    # The NameNode notices a dead DataNode after 14 s, not after 10 minutes.
    "dfs.heartbeat.interval": 1,
    "dfs.namenode.heartbeat.recheck-interval": 2000,
    "dfs.namenode.stale.datanode.interval": 6000,
    "dfs.namenode.redundancy.interval.seconds": "1s",
    "dfs.namenode.handler.count": 8,
    "dfs.datanode.handler.count": 8,
    "dfs.namenode.fs-limits.min-block-size": 1024,
    "dfs.datanode.du.reserved": 0,
    "fs.du.interval": 600_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of the processes: two of the NameNode, three of each DataNode."""

    rpc: int
    web: int
    datanodes: tuple[tuple[int, int, int], ...]

    @property
    def all(self) -> list[int]:
        return [self.rpc, self.web, *(port for three in self.datanodes for port in three)]

    @classmethod
    def free(cls, host: str, datanodes: int, rpc: int | None) -> Self:
        """Free ports; `rpc` may be given."""
        taken = [rpc] if rpc else []

        def one() -> int:
            taken.append(free_port([host], taken))
            return taken[-1]

        return cls(rpc=rpc or one(), web=one(), datanodes=tuple((one(), one(), one()) for _ in range(datanodes)))


def client(uri: str, replication: int) -> dict[str, str]:
    """The settings of a client; prefix each name with `spark.hadoop.` for Spark."""
    return {"fs.defaultFS": uri, "dfs.replication": str(replication), **CLIENT}


def title(number: int | None) -> str:
    """The name of a process, for messages: the NameNode or a DataNode."""
    return "HDFS's " + ("NameNode" if number is None else f"DataNode {number + 1}")


def files(
    folder: PurePath,
    host: str,
    ports: Ports,
    replication: int,
    given: Mapping[str, object],
    number: int | None,
    *,
    listen: str | None = None,
) -> dict[str, str]:
    """The settings files of one process, the NameNode or a DataNode, with its data in this folder.

    `host` is the address at which clients reach it, `listen` the one at which it listens, if that differs.
    """
    name = _name(number)
    common = {
        "dfs.namenode.rpc-address": f"{host}:{ports.rpc}",
        "dfs.namenode.rpc-bind-host": listen or host,
        "dfs.namenode.http-address": f"{host}:{ports.web}",
        "dfs.namenode.http-bind-host": listen or host,
        "dfs.namenode.name.dir": (folder / "namenode" / "data").as_uri(),
        "dfs.replication": replication,
        "dfs.namenode.safemode.min.datanodes": len(ports.datanodes),
        **SMALL,
    }
    if number is not None:
        data, web, ipc = ports.datanodes[number]
        common |= {
            "dfs.datanode.address": f"{listen or host}:{data}",
            "dfs.datanode.http.address": f"{listen or host}:{web}",
            "dfs.datanode.ipc.address": f"{listen or host}:{ipc}",
            "dfs.datanode.hostname": host,  # where WebHDFS sends its clients
            "dfs.datanode.data.dir": (folder / name / "data").as_uri(),
        }
    core = {"fs.defaultFS": f"hdfs://{host}:{ports.rpc}", "hadoop.tmp.dir": str(folder / name / "tmp")}
    return {
        "core-site.xml": text({**core, **given}),
        "hdfs-site.xml": text({**common, **given}),
        "log4j.properties": LOG4J,
    }


def write(
    folder: Path, host: str, ports: Ports, replication: int, given: Mapping[str, object], number: int | None
) -> Path:
    """Write the settings of one process, and return the folder for its class path."""
    place = folder / _name(number) / "conf"
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files(folder, host, ports, replication, given, number).items():
        (place / name).write_text(content)
    write_pages(place)
    return place


def write_pages(place: Path) -> None:
    """Write the web pages that a server from the published jars needs into a folder of its class path."""
    for app in APPS:
        page = place / "webapps" / app / "WEB-INF" / "web.xml"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(WEB_XML)
    (place / "webapps" / "static").mkdir(exist_ok=True)


def text(values: Mapping[str, object]) -> str:
    """The content of a settings file."""
    rows = (
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in values.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{"".join(rows)}</configuration>\n'


def _name(number: int | None) -> str:
    return "namenode" if number is None else f"datanode{number + 1}"
